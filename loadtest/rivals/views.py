"""One address for every rival: POST asks for a unit, GET says what became of it, in the shapes of the shop's own API.
Decides nothing: the strategy does.
"""

from __future__ import annotations

import json

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from inventory.exceptions import FairdropError, InvalidRequest, SaleNotFound
from loadtest.rivals.rival import RivalAnswer
from loadtest.rivals.strategies import RIVALS
from shop.api.views import problem_response
from shop.buyers import verify_token

STATUSES = {RivalAnswer.HELD: 201, RivalAnswer.QUEUED: 202, RivalAnswer.SOLD_OUT: 409, RivalAnswer.BUSY: 503}


@csrf_exempt  # the bearer token proves the buyer; a cookie is not looked at
@require_http_methods(["GET", "POST"])
def requests(request: HttpRequest, name: str, sale: str) -> HttpResponse:
    """POST and GET /rivals/<name>/sales/<sale>/requests, with a buyer's bearer token."""
    try:
        rival = RIVALS.get(name)
        if rival is None:
            raise SaleNotFound
        buyer = verify_token(request.headers.get("Authorization", "").removeprefix("Bearer "))
        key = request.headers.get("Idempotency-Key", "")
        if request.method == "GET":
            return _answer(rival.look_up(sale, buyer=buyer, key=key), status=200, url=request.path)
        _refuse_other_quantities(request.body)
        answer = rival.buy(sale, buyer=buyer, key=key)
    except FairdropError as error:
        return problem_response(error)
    return _answer(answer, status=STATUSES[answer], url=request.path)


def _refuse_other_quantities(body: bytes) -> None:
    try:
        wish = json.loads(body)
    except ValueError as error:
        raise InvalidRequest("the body must be JSON") from error
    if wish != {"quantity": 1}:
        raise InvalidRequest("rivals sell one unit a wish")


def _answer(answer: RivalAnswer, *, status: int, url: str) -> JsonResponse:
    return JsonResponse({"state": answer, "status_url": url}, status=status)
