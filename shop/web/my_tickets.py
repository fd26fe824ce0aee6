"""The page of everything a buyer has: each order that got units, and what this browser asked for lately.

Never shows another buyer's, and never scans: an order that got units is found by an index. A request that waits, or got
no units, is not in that index, which each settlement would pay for: a cookie of the browser that asked names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.views.decorators.http import require_safe

from inventory.exceptions import InvalidRequest, RequestNotFound, SaleClosed, SaleNotFound
from inventory.records import Ticket, read_ticket, sign_ticket
from shop.buyers import ticket_signer
from shop.http import PAGE_NUMBER
from shop.models import HAS_UNITS, WITHOUT_UNITS, Order
from shop.orders import holds, restoring
from shop.orders.numbers import order_number
from shop.sales import catalogue
from shop.web.languages import language_of
from shop.web.pages import ASKED_COOKIE, ASKED_TURNS, known_buyer, page, paging, show
from shop.web.sale_presenter import money

ORDERS_PER_PAGE = 20


@dataclass(frozen=True, slots=True)
class Row:
    """One request as the page lists it. seq in µs; number: '' as long as there is no order."""

    request_id: str
    title: str
    quantity: int
    state: str
    price: Decimal
    currency: str
    seq: int
    number: str = ""

    @property
    def total(self) -> str:
        return money(self.price * self.quantity, currency=self.currency)

    @property
    def asked_at(self) -> datetime:
        return datetime.fromtimestamp(self.seq / 1_000_000, tz=UTC)


@require_safe
@page
def my_tickets(request: HttpRequest) -> HttpResponse:
    """Show what the buyer of this browser has, the newest first: ?page=, from 1."""
    asked, buyer = request.GET.get("page", "1"), known_buyer(request)
    number = int(asked) if PAGE_NUMBER.fullmatch(asked) else 1
    if buyer is None:
        return show(request, "shop/my_tickets.html", {"rows": []})
    start = (number - 1) * ORDERS_PER_PAGE
    mine = Order.objects.filter(HAS_UNITS, buyer=buyer).select_related("sale__stock").order_by("-id")
    orders = list(mine[start : start + ORDERS_PER_PAGE + 1])
    with translation.override(language_of(request)):  # titles are those of its reader
        lately = asked_lately(request, buyer=buyer) if number == 1 else []
        rows = [*lately, *map(row_of, orders[:ORDERS_PER_PAGE])]
    context = {"rows": rows, **paging(request, number, has_older=len(orders) > ORDERS_PER_PAGE)}
    return show(request, "shop/my_tickets.html", context)


def row_of(order: Order) -> Row:
    """Return an order as a row. Raises Unavailable when the line does not know its state and cannot be told."""
    if order.sale.retired_at is None:
        holds.catch_up(order)
    return Row(
        order.request_id,
        order.sale.shown_title,
        order.quantity,
        order.state,
        order.unit_price,
        order.currency,
        order.seq,
        order_number(order.pk),
    )


def asked_lately(request: HttpRequest, *, buyer: str) -> list[Row]:
    """Return what this browser asked for and got no units of: it waits, is sold out, or was refused; the newest first.

    Raises Unavailable.
    """
    proofs = [proof for name, proof in request.COOKIES.items() if name.startswith(ASKED_COOKIE)]
    found = [each for each in map(ticket_or_none, proofs) if each is not None and each.buyer == buyer]
    by_name = {each.request_id: each for each in found}  # asked for again, it may be in two cookies
    # Each may cost a call to the line; older ones are found at their own addresses.
    tickets = sorted(by_name.values(), key=lambda each: each.seq, reverse=True)[: len(ASKED_TURNS)]
    decided = Order.objects.filter(request_id__in=[each.request_id for each in tickets]).select_related("sale__stock")
    orders = {each.request_id: each for each in decided}
    rows = []
    for ticket in tickets:
        order = orders.get(ticket.request_id)
        if order is None:
            rows += waiting(ticket)
        elif order.state in WITHOUT_UNITS and order.buyer == buyer:  # else its buyer was forgotten
            rows.append(row_of(order))
    return rows


def ticket_or_none(proof: str) -> Ticket | None:
    """Return the ticket in a cookie, None when it is none of ours."""
    try:
        return read_ticket(ticket_signer(), proof)
    except InvalidRequest:
        return None


def waiting(ticket: Ticket) -> list[Row]:
    """Return the row of a request without an order, brought back if the line has lost it; none if it cannot be.

    Raises Unavailable.
    """
    try:
        view, _ = restoring.restore(sign_ticket(ticket_signer(), ticket), buyer=ticket.buyer)
    except (RequestNotFound, SaleClosed, SaleNotFound):
        return []
    card = catalogue.as_promised(catalogue.find_sale(view.sale_slug), version=view.terms_version)
    return [Row(view.request_id, card.shown_title, view.quantity, view.state, card.price, card.currency, view.seq)]
