"""The calls of the API that change a request: pay, cancel, restore, and a provider's notices. Each may be repeated.
Never serves a hot call, never lets an error out but as a problem.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.utils import translation

from inventory import redis
from inventory.exceptions import InvalidRequest, RequestNotFound, SaleNotFound, TooLarge
from inventory.line import reading
from inventory.records import sale_id_of
from inventory.states import WAITING_STATES
from shop.api.views import api_call
from shop.http import MAX_BODY_BYTES, buyer_of, check_json_content_type, read_json_object
from shop.orders import holds, requests, restoring
from shop.orders.requests import RequestView
from shop.orders.status import status_answer
from shop.payments import checkout, notices
from shop.payments.providers import default_provider, provider
from shop.sales import catalogue
from shop.web.languages import language_of

# Other companies' notices are longer than our own calls.
MAX_NOTICE_BYTES = 16 * 1024
JSON_TYPES = {str: "string", bool: "boolean"}


@api_call("POST")
def pay(request: HttpRequest, request_id: str) -> JsonResponse:
    """POST /api/v1/requests/<id>/payment: pay a hold at once, or with {"page": true} begin at the provider's page."""
    buyer = caller(request)
    wish = read_object(request, {"provider": str, "page": bool})
    name = wish.get("provider", default_provider())
    provider(name)
    root = checkout.root_of(request)
    with translation.override(language_of(request)):  # the provider shows what is bought in it
        if not wish.get("page"):
            checkout.pay_at_once(request_id, buyer=buyer, provider_name=name, root=root)
            return JsonResponse(answer(requests.look_up(request_id, buyer=buyer)))
        url = checkout.begin_page(request_id, buyer=buyer, provider_name=name, root=root)
    page = {"payment_url": request.build_absolute_uri(url)} if url else {}
    return JsonResponse(answer(requests.look_up(request_id, buyer=buyer)) | page)


@api_call("POST")
def cancel(request: HttpRequest, request_id: str) -> JsonResponse:
    """POST /api/v1/requests/<id>/cancel: give up a hold, or a place in line."""
    buyer = caller(request)
    read_object(request, {})
    if sale_id_of(request_id) is None:
        raise RequestNotFound
    try:
        holds.cancel(request_id, buyer=buyer)
    except SaleNotFound as error:
        raise RequestNotFound from error
    return JsonResponse(answer(requests.look_up(request_id, buyer=buyer)))


@api_call("POST")
def restore(request: HttpRequest) -> JsonResponse:
    """POST /api/v1/tickets/restore: bring a lost place back (202); what is known is only told (200)."""
    buyer = caller(request)
    ticket = read_object(request, {"ticket": str}).get("ticket")
    if ticket is None:
        raise InvalidRequest("ticket is missing")
    view, restored = restoring.restore(ticket, buyer=buyer)
    return JsonResponse(answer(view), status=202 if restored else 200)


@api_call("POST")
def take_notice(request: HttpRequest, provider_name: str) -> JsonResponse:
    """POST /api/v1/payments/<provider>/notices: what a provider has to say, proved by its signature alone."""
    body = read_body(request, max_bytes=MAX_NOTICE_BYTES)
    return JsonResponse({"result": notices.read_and_take(request.headers, body, provider_name=provider_name)})


def caller(request: HttpRequest, *, unsafe: bool = True) -> str:
    """Return the buyer who calls, as the gate knows them. Raises Unauthenticated, ForbiddenOrigin."""
    headers = {name.lower().encode(): value.encode("latin-1", "replace") for name, value in request.headers.items()}
    return buyer_of(headers, unsafe=unsafe)


def read_body(request: HttpRequest, *, max_bytes: int) -> bytes:
    """Return the body. Raises TooLarge before it is read, InvalidRequest when its length is not said."""
    if "Transfer-Encoding" in request.headers:
        raise InvalidRequest("Content-Length is required")
    if int(request.META.get("CONTENT_LENGTH") or 0) > max_bytes:
        raise TooLarge(f"The body is larger than {max_bytes // 1024} KiB.")
    return request.body


def read_object(request: HttpRequest, fields: dict[str, type]) -> dict[str, Any]:
    """Return the JSON object of the body; no body is an empty one. fields: which names may stand in it, and their type.

    Raises TooLarge, InvalidRequest.
    """
    body = read_body(request, max_bytes=MAX_BODY_BYTES)
    if not body:
        return {}
    check_json_content_type({b"content-type": (request.content_type or "").encode("latin-1", "replace")})
    found = read_json_object(body)
    for name, value in found.items():
        if name not in fields:
            raise InvalidRequest(f"unknown field: {name[:40]!a}")
        if type(value) is not fields[name]:
            raise InvalidRequest(f"{name} must be a {JSON_TYPES[fields[name]]}")
    return found


def answer(view: RequestView) -> dict[str, Any]:
    """Return the status answer of a request, with the line's figures while it waits."""
    card = catalogue.find_sale(view.sale_slug)
    waits = view.state in WAITING_STATES
    figures = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id) if waits else None
    return status_answer(view, card, figures=figures)
