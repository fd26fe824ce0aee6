"""The hosted page: pay, decline, pay with a slow notice, pay with one that never comes; then back to the shop.
Never touches an order, never takes a card.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from inventory.exceptions import InvalidRequest, RequestNotFound
from shop.payments.providers import Kind
from shop.sandbox import accounts, deliveries
from shop.sandbox.models import Charge
from shop.web.pages import page, show
from shop.web.sale_presenter import clock, milliseconds, money


class Choice(NamedTuple):
    """What a button does. told_after_seconds: None means that the shop must ask by itself."""

    kind: Kind
    told_after_seconds: float | None


CHOICES = {
    "pay": Choice("captured", 0.0),
    "decline": Choice("declined", 0.0),
    "slow": Choice("captured", accounts.SLOW_SECONDS),
    "never": Choice("captured", None),
}


@require_http_methods(["GET", "HEAD", "POST"])
@page
def pay(request: HttpRequest, *, reference: str) -> HttpResponse:
    """Show a charge; a POST chooses what becomes of it and leads back to the shop."""
    charge = Charge.objects.filter(reference=reference).first()
    if charge is None:
        raise RequestNotFound("there is no such charge")
    if request.method != "POST":
        moment = timezone.now()
        shown: dict[str, Any] = {
            "charge": charge,
            "amount": money(charge.amount, currency=charge.currency),
            "payable": charge.state in accounts.ALLOWED["captured"] and not charge.is_over,
            "now": moment,
        }
        if charge.ends_at:
            left = charge.ends_at - moment
            shown |= {"left": clock(left), "is_late": left <= timedelta(), "ends_ms": milliseconds(charge.ends_at)}
        return show(request, "sandbox/pay.html", shown)
    choice = CHOICES.get(request.POST.get("choice", ""))
    if choice is None:
        raise InvalidRequest("choose one of the buttons")
    event, now = accounts.record(reference, choice.kind, told_after_seconds=choice.told_after_seconds)
    if now:
        deliveries.send_soon(event)
    return HttpResponseRedirect(charge.return_url, status=303)
