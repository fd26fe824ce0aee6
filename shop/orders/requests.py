"""Asks for units and looks requests up, for callers without an event loop; same rules as the gate.
Never decides and never writes the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import ParamSpec, TypeVar

from inventory import records, redis
from inventory.exceptions import (
    FairdropError,
    IdempotencyMismatch,
    InvalidRequest,
    MemoryFull,
    RequestNotFound,
    SaleClosed,
    SaleNotFound,
)
from inventory.line import admission, reading
from inventory.redis import clocks, memory
from inventory.states import State
from inventory.telemetry import traces
from inventory.telemetry.measures import Tally
from shop.access import codes, emails, passes
from shop.models import Order
from shop.orders import holds
from shop.orders.numbers import order_number
from shop.orders.refusals import refusal
from shop.sales import catalogue, priming
from shop.sales.catalogue import SaleCard

MAX_UNITS = 1000
# By what was answered: admitted, standby, known (asked before), or the code of a refusal.
ASKS = Tally(
    "fairdrop_asks", "Purchases by what was answered", label="answer",
    known=("admitted", "standby", "known", "sold_out", "rate_limited", "unavailable"),
)  # fmt: skip
Given = ParamSpec("Given")
Found = TypeVar("Found")
MAX_KEY_LENGTH = 100


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request as its page shows it. seq in µs; position 1 is next, None when it does not wait.

    order_number: '' as long as there is no order; terms_version, ordinal: as in its ticket, 0 when not known.
    on_standby: it waits on standby, or did so until it was decided.
    """

    request_id: str
    sale_slug: str
    quantity: int
    state: State
    seq: int
    position: int | None = None
    hold_expires_at: datetime | None = None
    decided_at: datetime | None = None
    reason: str = ""
    order_number: str = ""
    terms_version: int = 0
    ordinal: int = 0
    on_standby: bool = False


def counting_refusals(call: Callable[Given, Found]) -> Callable[Given, Found]:
    """Count each refusal that `call` raises among the answers to purchases."""

    @wraps(call)
    def counted(*args: Given.args, **named: Given.kwargs) -> Found:
        try:
            return call(*args, **named)
        except FairdropError as error:
            ASKS.add(error.code)
            raise

    return counted


@counting_refusals
def ask(
    card: SaleCard,
    *,
    buyer: str,
    quantity: int,
    idempotency_key: str,
    terms_version: int = 0,
    standby: bool = False,
    network: str = "",
    pass_text: str = "",
    code: str = "",
    email_proof: str = "",
    mark: str = "",
) -> RequestView:
    """Put `buyer`'s wish for `quantity` units into the line of `card`; a repeated key is the same request (I14).

    terms_version: of the terms the buyer was shown, 0 when none is named. standby: without room in the line, wait on
    standby for what comes back. network: from which the wish came, '' when that is not known; mark: of the one to which
    the buyer's token was given. pass_text, code, email_proof: the pass, code and proof of an e-mail that came with it.

    Raises SoldOut, LineFull, LimitReached, NetworkLimited, NetworkRevoked, PassRequired, CodeRequired, EmailRequired,
    TermsChanged, SaleNotOpen, SaleClosed, IdempotencyMismatch, InvalidRequest, Unavailable.
    """
    check_wish(quantity=quantity, idempotency_key=idempotency_key)
    name = name_of(card, buyer=buyer, idempotency_key=idempotency_key)
    if card.retired_at is not None:
        return find_asked(name, quantity=quantity)
    if memory.look(redis.connect(), card.sku):
        raise MemoryFull
    network = admission.REVOKED if card.revokes(network, mark=mark) else network
    wish = admission.Ask(name, buyer, quantity, terms_version, standby, network)
    sent = _check_shown(card, wish, pass_text=pass_text, email_proof=email_proof, code=code)
    wish = wish._replace(pass_id=sent.pass_id, entry=sent.entry, early=sent.early)
    card, answer = _admit_primed(card, wish)
    if error := refusal(answer.code, card, now=clocks.now()):
        raise sent.refusal if answer.code in codes.NOT_SHOWN and sent.refusal else error
    ASKS.add(admission.word_of(answer.code))
    return _view_of_answer(wish, answer, card=card)


def check_wish(*, quantity: int, idempotency_key: str) -> None:
    """Raise InvalidRequest when nobody may ask so."""
    if not 1 <= quantity <= MAX_UNITS:
        raise InvalidRequest(f"quantity must be a whole number from 1 to {MAX_UNITS}")
    if len(idempotency_key) > MAX_KEY_LENGTH:
        raise InvalidRequest(f"Idempotency-Key may have at most {MAX_KEY_LENGTH} characters")


def _check_shown(
    card: SaleCard, wish: admission.Ask, *, pass_text: str, email_proof: str, code: str
) -> passes.AccessCheck:
    """Return what came with a wish is worth, in the order of the gate."""
    name, buyer, quantity, network = wish.request_id, wish.buyer, wish.quantity, wish.network
    sent = passes.check(pass_text, card, buyer=buyer)
    sent = emails.check(email_proof, card, buyer=buyer, sent=sent)
    if card.codes_required and network != admission.REVOKED:
        sent = codes.check(code, card, request_id=name, quantity=quantity, network=network, sent=sent)
    return sent


def _view_of_answer(wish: admission.Ask, answer: admission.Answer, *, card: SaleCard) -> RequestView:
    state = admission.state_of(answer.code) or State.QUEUED
    return RequestView(
        request_id=wish.request_id,
        sale_slug=card.slug,
        quantity=wish.quantity,
        state=state,
        seq=answer.seq,
        position=answer.position or None,
        terms_version=answer.terms_version,
        ordinal=answer.ordinal,
        on_standby=state is State.STANDBY,
    )


def name_of(card: SaleCard, *, buyer: str, idempotency_key: str) -> str:
    """Return the id of the request that `buyer` makes with this key."""
    return records.request_id(
        sale_id=card.sale_id, request_key=card.request_id_key(), buyer=buyer, idempotency_key=idempotency_key
    )


def find_asked(request_id: str, *, quantity: int) -> RequestView:
    """Return what became of a request of a retired sale: asking again gets the same answer, nobody gets a new place.

    Raises SaleClosed when it was never asked, IdempotencyMismatch.
    """
    order = Order.objects.select_related("sale").filter(request_id=request_id).first()
    if order is None:
        raise SaleClosed
    if order.quantity != quantity:
        raise IdempotencyMismatch
    return _view_of_order(order, buyer=order.buyer)


def _admit_primed(card: SaleCard, wish: admission.Ask) -> tuple[SaleCard, admission.Answer]:
    """Return what the line says of `wish`, with the sale as it is: read and primed once more where Redis lacks it."""
    answer = _admit(card, wish)
    if answer.code in (admission.Code.NOT_PRIMED, admission.Code.TERMS_UNKNOWN):
        card = catalogue.find_sale_by_id(card.sale_id)
        priming.prime_card(card)
        answer = _admit(card, wish)
    return card, answer


def _admit(card: SaleCard, wish: admission.Ask) -> admission.Answer:
    line = admission.SaleLine(card.sale_id, card.sku, card.network_limit, card.public_us)
    sent_at = time.monotonic()
    (answer,) = admission.admit(redis.connect(), line, [wish])
    traces.note_asks([traces.Asked(wish.request_id, sent_at, admission.word_of(answer.code))], sent_at=sent_at)
    return answer


def find_buyer(request_id: str) -> str:
    """Return whose request it is, '' when it is unknown. Whether the caller may know is the caller's to check.

    Raises Unavailable when the line does not answer.
    """
    buyer = Order.objects.filter(request_id=request_id).values_list("buyer", flat=True).first()
    sale_id = records.sale_id_of(request_id)
    if buyer is not None or sale_id is None:
        return buyer or ""
    (place,) = reading.places(redis.connect(), catalogue.find_sale_by_id(sale_id).sku, [request_id])
    return place.record.buyer if place else ""


def look_up(request_id: str, *, buyer: str) -> RequestView:
    """Return `buyer`'s own request: decided ones from the database, waiting ones from the line.

    What the database says is told to the line first, if the line is behind: its next answer must not take it back.

    Raises RequestNotFound (also for another buyer's), Unavailable when the line does not answer.
    """
    sale_id = records.sale_id_of(request_id)
    if sale_id is None:
        raise RequestNotFound
    order = Order.objects.select_related("sale__stock").filter(request_id=request_id).first()
    if order is not None:
        return _view_of_order(order, buyer=buyer)
    return _view_in_line(request_id, sale_id=sale_id, buyer=buyer)


def _view_of_order(order: Order, *, buyer: str) -> RequestView:
    if order.buyer != buyer:
        raise RequestNotFound
    holds.catch_up(order)
    return RequestView(
        order.request_id,
        order.sale.slug,
        order.quantity,
        State(order.state),
        order.seq,
        None,
        order.hold_expires_at,
        order.decided_at,
        order.reason,
        order_number(order.pk),
        order.terms_version or 0,
        order.ordinal or 0,
        order.standby,
    )


def _view_in_line(request_id: str, *, sale_id: int, buyer: str) -> RequestView:
    try:
        card = catalogue.find_sale_by_id(sale_id)
    except SaleNotFound as error:
        raise RequestNotFound from error
    if card.retired_at is not None:
        raise RequestNotFound
    (place,) = reading.places(redis.connect(), card.sku, [request_id])
    if place is None or place.record.buyer != buyer:
        raise RequestNotFound
    return view_of_place(request_id, place, sale_slug=card.slug)


def view_of_place(request_id: str, place: reading.Place, *, sale_slug: str) -> RequestView:
    """Return a request as the line knows it."""
    record, ends = place.record, place.record.hold_expires_ms
    return RequestView(
        request_id,
        sale_slug,
        record.quantity,
        record.state,
        record.seq,
        place.position or None,
        None if ends is None else datetime.fromtimestamp(ends / 1000, UTC),
        terms_version=record.terms_version,
        ordinal=record.ordinal,
        on_standby=record.state is State.STANDBY,
    )
