"""Brings a request back that Redis has lost, at the place its ticket names. Never lets anyone in without a ticket."""

from __future__ import annotations

from inventory import redis
from inventory.exceptions import IdempotencyMismatch, RequestNotFound, SaleClosed, SaleNotPrimed, Unavailable
from inventory.line import writing
from inventory.records import Ticket, read_ticket, sale_id_of
from inventory.states import State
from shop.buyers import ticket_signer
from shop.models import Order, Sale
from shop.order_rows import record_of
from shop.orders.requests import RequestView, look_up
from shop.sales import catalogue, priming
from shop.tickets.reading import is_signed, read_signed
from shop.tickets.signing import holder_of


def restore_asked(text: str, *, request_id: str, quantity: int, buyer: str) -> tuple[RequestView, bool]:
    """As restore, for an ask that shows the ticket it got before. request_id, quantity: what is asked for now.

    Raises InvalidRequest, RequestNotFound for a ticket of another buyer or sale, IdempotencyMismatch for one of another
    key or quantity, Unavailable.
    """
    ticket = read_own(text, buyer=buyer)
    if sale_id_of(ticket.request_id) != sale_id_of(request_id):
        raise RequestNotFound
    if (ticket.request_id, ticket.quantity) != (request_id, quantity):
        raise IdempotencyMismatch("This ticket is of another Idempotency-Key or quantity.")
    return _bring_back(ticket)


def restore(text: str, *, buyer: str) -> tuple[RequestView, bool]:
    """Return the request of a ticket and whether it was lost until now; its seq is the ticket's (I8, I18).

    Raises InvalidRequest for what is no ticket of ours, RequestNotFound for another buyer's, SaleClosed when the sale
    is retired and never decided it, Unavailable.
    """
    return _bring_back(read_own(text, buyer=buyer))


def read_own(text: str, *, buyer: str) -> Ticket:
    """Return `buyer`'s ticket, of now or of before. Raises InvalidRequest, RequestNotFound for another's."""
    if not is_signed(text):
        ticket = read_ticket(ticket_signer(), text)
        is_own = ticket.buyer == buyer and sale_id_of(ticket.request_id) is not None
    else:
        place, holder, _ = read_signed(text)
        keys = Sale.objects.filter(pk=sale_id_of(place.request_id) or 0).values_list("request_key", flat=True)
        is_own = [holder_of(key.encode(), buyer) for key in keys] == [holder]
        ticket = place._replace(buyer=buyer)
    if not is_own:
        raise RequestNotFound
    return ticket


def _bring_back(ticket: Ticket) -> tuple[RequestView, bool]:
    buyer, sale_id, restored = ticket.buyer, sale_id_of(ticket.request_id) or 0, False
    # The database first: what was decided is never queued again.
    if not Order.objects.filter(request_id=ticket.request_id).exists():
        card = catalogue.find_sale_by_id(sale_id)
        if card.retired_at is not None:
            raise SaleClosed
        state = State.STANDBY if ticket.on_standby else State.QUEUED
        record = record_of(
            state, ticket.seq, ticket.quantity, sale_id, buyer, ticket.terms_version, ticket.ordinal
        )._replace(restored=True)
        try:
            restored = writing.restore(redis.connect(), card.sku, request_id=ticket.request_id, record=record)
        except SaleNotPrimed:
            priming.prime_card(card)
            restored = writing.restore(redis.connect(), card.sku, request_id=ticket.request_id, record=record)
    try:
        return look_up(ticket.request_id, buyer=buyer), restored
    except RequestNotFound:
        # Emptied once more since then. The ticket is sound: anyone who shows it again gets the place.
        raise Unavailable from None
