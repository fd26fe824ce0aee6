"""What one writes without a gate: a Django view that admits one request by one call of the same script.
Never asks the database after its first request, so that it is as fast as such a view can be.
"""

from __future__ import annotations

import json
from functools import cache

from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from inventory.exceptions import FairdropError
from inventory.records import Ticket
from shop.api.views import problem_response
from shop.buyers import verify_token
from shop.orders import requests
from shop.sales import catalogue
from shop.tickets.signing import sign_tickets

find_sale = cache(catalogue.find_sale)


@csrf_exempt
@require_POST
def ask(request: HttpRequest, slug: str) -> JsonResponse:
    """POST /api/v1/sales/<slug>/requests, with the bearer token only."""
    try:
        buyer = verify_token(request.headers.get("Authorization", "").removeprefix("Bearer "))
        quantity = json.loads(request.body)["quantity"]
        card = find_sale(slug)
        place = requests.ask(card, buyer=buyer, quantity=quantity, idempotency_key="")
    except FairdropError as error:
        return problem_response(error)
    return JsonResponse(answer(place, card, buyer=buyer), status=202)


def answer(place: requests.RequestView, card: catalogue.SaleCard, *, buyer: str) -> dict[str, object]:
    """Return what the gate answers, of the same parts."""
    said = Ticket(place.request_id, buyer, place.quantity, place.seq, place.terms_version, place.ordinal)
    url = f"/api/v1/requests/{place.request_id}"
    return {
        "request_id": place.request_id,
        "state": place.state,
        "position": place.position,
        "seq": place.seq,
        "ticket": sign_tickets([said], slug=card.slug, request_key=card.request_id_key())[0],
        "status_url": url,
        "events_url": f"{url}/events",
        "poll_after_ms": 1000,
    }


urlpatterns = [path("api/v1/sales/<slug:slug>/requests", ask)]
