"""The pages: list of sales, one sale with its form, one ticket. Each view checks input, calls a service, renders.
Never writes a store itself and never answers a foreseeable fault with a 500. Called by urls.py.
"""

from __future__ import annotations

import functools
import re
import secrets
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import add_never_cache_headers
from django.views.decorators.http import require_http_methods, require_safe

from inventory import line, redis
from inventory.exceptions import FairdropError, IdempotencyMismatch, InvalidRequest, Unauthenticated, Unavailable
from inventory.outcomes import WAITING_STATES
from shop import buyers, catalogue, checkout
from shop import requests as requests_service
from shop.presentation import SaleFace, TicketFace, milliseconds

View = Callable[..., HttpResponse]
IDEMPOTENCY_KEY = re.compile(r"[A-Za-z0-9_-]{8,64}")
QUANTITY = re.compile(r"[0-9]{1,4}")
REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{8,40}")
# Remembers, for one sale's path only, which ticket this browser got there.
TICKET_COOKIE = "ticket"
SECTIONS = {"scheduled": "coming", "closed": "over", "sold_out": "over"}


def page(view: View) -> View:
    """Answer every foreseeable fault of a page with its own status and a page that says what to do."""

    @functools.wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response = view(request, *args, **kwargs)
        except FairdropError as error:
            response = error_page(request, error)
        except (OperationalError, InterfaceError):
            response = error_page(request, Unavailable())
        add_never_cache_headers(response)
        return response

    return wrapped


def error_page(request: HttpRequest, error: FairdropError) -> HttpResponse:
    """Render the page of one of our errors: not found as 404.html, anything else as error.html."""
    template = "shop/404.html" if error.status == 404 else "shop/error.html"
    response = show(request, template, {"error": error}, status=error.status)
    return with_retry_after(response, error)


def with_retry_after(response: HttpResponse, error: FairdropError) -> HttpResponse:
    if error.retry_after_seconds is not None:
        response["Retry-After"] = str(error.retry_after_seconds)
    return response


def show(request: HttpRequest, template: str, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    """Render a page with the server's moment in it, from which countdown.js counts."""
    now: datetime = context.get("now") or timezone.now()
    return render(request, template, {**context, "server_ms": milliseconds(now)}, status=status)


def known_buyer(request: HttpRequest) -> str | None:
    """Return the buyer of a valid cookie, else None."""
    try:
        return buyers.verify_token(request.COOKIES.get(buyers.COOKIE_NAME, ""))
    except Unauthenticated:
        return None


def set_cookie(response: HttpResponse, *, name: str, value: str, path: str = "/") -> None:
    """Set a cookie that scripts and other sites cannot use."""
    response.set_cookie(
        name,
        value,
        max_age=buyers.COOKIE_MAX_AGE_SECONDS,
        path=path,
        secure=settings.BEHIND_TLS,
        httponly=True,
        samesite="Lax",
    )


@require_safe
@page
def sale_list(request: HttpRequest) -> HttpResponse:
    """Show all sales: open now, coming up, over."""
    now = timezone.now()
    groups: dict[str, list[SaleFace]] = {"open": [], "coming": [], "over": []}
    for card in catalogue.list_sales():
        face = SaleFace(card=card, now=now)
        groups[SECTIONS.get(face.state, "open")].append(face)
    groups["open"].sort(key=lambda face: not face.takes_requests)
    groups["over"].reverse()
    return show(request, "shop/list.html", {"groups": groups, "now": now})


@require_http_methods(["GET", "HEAD", "POST"])
@page
def sale(request: HttpRequest, *, slug: str) -> HttpResponse:
    """Show one sale; a POST asks for units in it."""
    card = catalogue.find_sale(slug)
    buyer, token = known_buyer(request), ""
    if buyer is None:
        buyer, token = buyers.issue_buyer()
    response = ask(request, card, buyer=buyer) if request.method == "POST" else sale_page(request, card)
    if token:
        set_cookie(response, name=buyers.COOKIE_NAME, value=token)
    return response


def ask(request: HttpRequest, card: catalogue.SaleCard, *, buyer: str) -> HttpResponse:
    """Put the request in line and lead to its ticket; what stands in the way is said on the sale page."""
    try:
        quantity, key = read_form(request)
        ticket = requests_service.ask(card, buyer=buyer, quantity=quantity, idempotency_key=key)
    except FairdropError as error:
        return sale_page(request, card, error=error)
    response = HttpResponseRedirect(reverse("ticket", args=[ticket.request_id]), status=303)
    set_cookie(response, name=TICKET_COOKIE, value=ticket.request_id, path=reverse("sale", args=[card.slug]))
    return response


def read_form(request: HttpRequest) -> tuple[int, str]:
    """Return quantity and idempotency key of the form, or raise InvalidRequest."""
    quantity, key = read_quantity(request), request.POST.get("idempotency_key", "")
    if not quantity or not IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidRequest
    return quantity, key


def read_quantity(request: HttpRequest) -> int:
    """Return the quantity of the form, 1 when it has none, 0 when it is not a whole number."""
    text = request.POST.get("quantity", "1")
    return int(text) if QUANTITY.fullmatch(text) else 0


def sale_page(request: HttpRequest, card: catalogue.SaleCard, *, error: FairdropError | None = None) -> HttpResponse:
    """Render the sale; after an error the same form, so that trying again is the same request."""
    now = timezone.now()
    ticket = request.COOKIES.get(TICKET_COOKIE, "")
    context = {
        "face": SaleFace(card=card, now=now),
        "now": now,
        "error": error,
        "quantity": read_quantity(request),
        "idempotency_key": kept_key(request, error=error),
        "ticket": ticket if REQUEST_ID.fullmatch(ticket) else "",
    }
    response = show(request, "shop/sale.html", context, status=error.status if error else 200)
    return with_retry_after(response, error) if error else response


def kept_key(request: HttpRequest, *, error: FairdropError | None) -> str:
    """Return the form's own key again after an error, unless that key is what was wrong; else a new one."""
    key = request.POST.get("idempotency_key", "")
    if error and not isinstance(error, IdempotencyMismatch) and IDEMPOTENCY_KEY.fullmatch(key):
        return key
    return secrets.token_urlsafe(18)


@require_safe
@page
def ticket(request: HttpRequest, *, request_id: str) -> HttpResponse:
    """Show the buyer's own request: place in line, then outcome. Somebody else's is not found."""
    return ticket_page(request, request_id)


def ticket_page(request: HttpRequest, request_id: str, *, error: FairdropError | None = None) -> HttpResponse:
    """Render the buyer's own ticket as it is now; error: what stood in the way of what they wanted to do with it."""
    # The bill before the order: a payment captured in between shows as paid, not as a hold nobody pays for.
    bill = checkout.find_bill(request_id)
    found = requests_service.look_up(request_id, buyer=known_buyer(request) or "")
    card, now = catalogue.find_sale(found.sale_slug), timezone.now()
    waits = found.state in WAITING_STATES
    face = TicketFace(
        ticket=found,
        sale=SaleFace(card=card, now=now),
        now=now,
        bill=bill,
        figures=line.figures(redis.connect(), card.sku, sale_id=card.sale_id) if waits else None,
    )
    response = show(
        request,
        "shop/ticket.html",
        {"face": face, "now": now, "error": error},
        status=error.status if error else 200,
    )
    return with_retry_after(response, error) if error else response


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an unknown address."""
    return show(request, "shop/404.html", {}, status=404)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer a fault of ours, without anything from the request.

    The session of a page is read behind every view's back; when the database is away that is no fault, but a 503.
    """
    if isinstance(sys.exc_info()[1], OperationalError | InterfaceError):
        return with_retry_after(show(request, "shop/500.html", {}, status=503), Unavailable())
    return show(request, "shop/500.html", {}, status=500)
