"""What staff do to a sale while it runs: open, pause, resume, close, restock, adjust, new terms; each act is logged.
Never writes stock but through the ledger, never acts without an actor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any

import structlog
from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, OperationalError, connection, transaction
from django.utils import timezone
from django.utils.text import Truncator
from django.utils.translation import gettext

from inventory import ledger
from inventory.exceptions import InvalidRequest, LineNotTold, RedisUnavailable, SaleNotFound
from inventory.postgres import look_at_clock
from inventory.records import StockFigures
from inventory.redis import clocks
from shop.client_address import read_mark
from shop.models import Sale, StaffAct
from shop.names.changes import change_in_words
from shop.orders.holds import Changes, publish
from shop.payments.providers import check_price
from shop.sales import priming

log = structlog.get_logger(__name__)

MAX_REASON_LENGTH = 200
# Each ask in the sale is compared with all of them.
MAX_REVOKED = 100
CHANGED_BY_ACTS = (
    "operator_state",
    "pause_reason",
    "opens_at",
    "closes_at",
    "price",
    "per_buyer_limit",
    "revoked_networks",
)


def open_now(slug: str, *, actor: str, reason: str = "") -> Sale:
    """Let a sale that has not begun begin now. Raises SaleNotFound, InvalidRequest."""

    def act(sale: Sale) -> str:
        now = timezone.now()
        if sale.state_at(now) != "scheduled":
            text = gettext("%(name)s is %(state)s; only a scheduled sale can be opened")
            raise InvalidRequest(text % {"name": slug, "state": gettext(sale.state_at(now))})
        before, sale.opens_at = sale.opens_at, now - timedelta(milliseconds=1)
        return change_in_words("opens_at", before, sale.opens_at)

    return _act(slug, "open", act, actor=actor, reason=reason)


def pause(slug: str, *, actor: str, reason: str, publishes: bool = True) -> Sale:
    """Stop a sale for a while: nobody is let in and nobody in line is decided; holds may be paid.

    reason: shown to buyers. publishes: write it to Redis at once. Raises SaleNotFound, InvalidRequest.
    """
    if not reason:
        raise InvalidRequest(gettext("say why: buyers read it while they wait"))

    def act(sale: Sale) -> str:
        _refuse_when_closed(sale)
        before, sale.operator_state, sale.pause_reason = sale.operator_state, Sale.OperatorState.PAUSED, reason
        return change_in_words("switch", before, sale.operator_state)

    return _act(slug, "pause", act, actor=actor, reason=reason, publishes=publishes)


def resume(slug: str, *, actor: str, reason: str = "") -> Sale:
    """Let a paused sale go on where it stood. Raises SaleNotFound, InvalidRequest."""

    def act(sale: Sale) -> str:
        if sale.operator_state != Sale.OperatorState.PAUSED:
            raise InvalidRequest(gettext("%(name)s is not paused") % {"name": slug})
        before, sale.operator_state, sale.pause_reason = sale.operator_state, Sale.OperatorState.ON, ""
        return change_in_words("switch", before, sale.operator_state)

    return _act(slug, "resume", act, actor=actor, reason=reason)


def close(slug: str, *, actor: str, reason: str = "") -> Sale:
    """End a sale for good: people in line get what is free, the rest are told sold out; holds may still be paid.

    Raises SaleNotFound, InvalidRequest.
    """

    def act(sale: Sale) -> str:
        look_at_clock()  # it also decides who waited until the close
        now = clocks.DATABASE.now()
        # "closed" says that staff ended it early: one that is over by its time only loses its pause.
        before, is_over = sale.operator_state, now >= sale.closes_at
        if before == Sale.OperatorState.CLOSED or (is_over and before != Sale.OperatorState.PAUSED):
            raise InvalidRequest(gettext("%(name)s is closed") % {"name": slug})
        sale.pause_reason = ""
        sale.operator_state = Sale.OperatorState.ON if is_over else Sale.OperatorState.CLOSED
        changes = [change_in_words("switch", before, sale.operator_state)]
        if sale.opens_at < now < sale.closes_at:
            changes.append(change_in_words("closes_at", sale.closes_at, now))
            sale.closes_at = now  # from here on it is over, and its time in the list runs
        return ", ".join(changes)

    return _act(slug, "close", act, actor=actor, reason=reason)


def change_terms(
    slug: str, *, actor: str, reason: str = "", price: Decimal | None = None, per_buyer_limit: int | None = None
) -> Sale:
    """Change price or limit for those who ask from now on; people in line keep what they were promised.

    Raises SaleNotFound, InvalidRequest.
    """
    wanted = {"price": price, "per_buyer_limit": per_buyer_limit}

    def act(sale: Sale) -> str:
        _refuse_when_closed(sale)
        new = {field: value for field, value in wanted.items() if value is not None}
        if not new:
            raise InvalidRequest("name a new price or a new limit")
        old = {field: getattr(sale, field) for field in new}
        for field, value in new.items():
            setattr(sale, field, value)
        try:
            sale.clean_fields(exclude={field.name for field in Sale._meta.fields} - set(new))
        except ValidationError as error:
            raise InvalidRequest("; ".join(error.messages)) from error
        if price is not None:
            check_price(sale.price, currency=sale.currency)
        return ", ".join(change_in_words(field, old[field], new[field]) for field in new)

    return _act(slug, "terms", act, actor=actor, reason=reason)


def note_change(sale: Sale, *, actor: str, changes: Sequence[tuple[str, object, object]]) -> None:
    """Write down what a form of the admin changed of a sale, in the caller's transaction. changes: field, old, new."""
    detail = Truncator(", ".join(change_in_words(*each) for each in changes)).chars(MAX_REASON_LENGTH)
    StaffAct.objects.create(sale=sale, act="change", actor=actor, detail=detail)


def restock(slug: str, *, units: int, actor: str, reason: str = "", seen_total: int | None = None) -> StockFigures:
    """Add `units` (≥ 1) that came in; they go to the head of the line. Raises SaleNotFound, InvalidRequest."""

    def change(cursor: Any, sku: str) -> StockFigures:
        ledger.load_stock(cursor, sku=sku, units=units, actor=actor, reason=reason)
        return ledger.figures_of(ledger.lock_stock(cursor, sku=sku))

    return _change_stock(slug, "restock", change, units=units, actor=actor, reason=reason, seen_total=seen_total)


def adjust(slug: str, *, units: int, actor: str, reason: str, seen_total: int | None = None) -> StockFigures:
    """Correct the count by `units` (negative: fewer), never below what is held and sold (I20).

    Raises SaleNotFound, InvalidRequest.
    """

    def change(cursor: Any, sku: str) -> StockFigures:
        return ledger.adjust_stock(cursor, sku=sku, units=units, actor=actor, reason=reason)

    return _change_stock(slug, "adjust", change, units=units, actor=actor, reason=reason, seen_total=seen_total)


def revoke_network(slug: str, *, network: str, actor: str, reason: str) -> Sale:
    """Let nobody in any more who asks from `network`, or with a token that was given there; the line stays as it is.

    network: its mark, an address, or a network as people write it. Raises SaleNotFound, InvalidRequest.
    """

    def act(sale: Sale) -> str:
        mark, revoked = read_mark(network), sale.revoked_networks.split()
        if mark in revoked:
            raise InvalidRequest(gettext("network %(mark)s is revoked already") % {"mark": mark})
        if len(revoked) >= MAX_REVOKED:
            text = gettext("at most %(n)s networks of a sale; give one back first")
            raise InvalidRequest(text % {"n": MAX_REVOKED})
        sale.revoked_networks = " ".join([*revoked, mark])
        return f"network {mark}"

    return _act(slug, "revoke", act, actor=actor, reason=reason)


def restore_network(slug: str, *, network: str, actor: str, reason: str) -> Sale:
    """Let people of `network` in again. Raises as revoke_network, and when it is not revoked."""

    def act(sale: Sale) -> str:
        mark, revoked = read_mark(network), sale.revoked_networks.split()
        if mark not in revoked:
            raise InvalidRequest(gettext("network %(mark)s is not revoked") % {"mark": mark})
        sale.revoked_networks = " ".join(each for each in revoked if each != mark)
        return f"network {mark}"

    return _act(slug, "unrevoke", act, actor=actor, reason=reason)


def _refuse_when_closed(sale: Sale) -> None:
    if sale.state_at(timezone.now()) == "closed":
        raise InvalidRequest(gettext("%(name)s is closed") % {"name": sale.slug})


def _act(slug: str, name: str, act: Callable[[Sale], str], *, actor: str, reason: str, publishes: bool = True) -> Sale:
    check_act(actor=actor, reason=reason)
    try:
        with transaction.atomic():
            sale = locked(slug)
            if sale.retired_at is not None:
                text = gettext("%(name)s is retired; nothing about it can be changed")
                raise InvalidRequest(text % {"name": slug})
            detail = act(sale)
            sale.save(update_fields=CHANGED_BY_ACTS)
            StaffAct.objects.create(sale=sale, act=name, actor=actor, reason=reason, detail=detail)
    except IntegrityError as error:
        text = gettext("%(name)s would overlap another sale of the same stock")
        raise InvalidRequest(text % {"name": slug}) from error
    if publishes:
        tell_line(slug)
    return sale


def _change_stock(
    slug: str,
    name: str,
    change: Callable[[Any, str], StockFigures],
    *,
    units: int,
    actor: str,
    reason: str,
    seen_total: int | None,
) -> StockFigures:
    """Change the count. seen_total: units in all as the page showed them; only restocks and corrections change it."""
    check_act(actor=actor, reason=reason)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            sale = locked(slug)
            sku = sale.stock.sku
            stock = ledger.lock_stock(cursor, sku=sku)
            if seen_total not in (None, stock.available + stock.held + stock.sold):
                text = gettext("the count of %(sku)s was changed after you had looked; look again first")
                raise InvalidRequest(text % {"sku": sku})
            figures = change(cursor, sku)
            before = stock.available + stock.held + stock.sold
            detail = f"{units:+d} units, {change_in_words('total', before, before + units)}"
            StaffAct.objects.create(sale=sale, act=name, actor=actor, reason=reason, detail=detail)
    except DataError as error:
        text = gettext("%(n)s units are more than the books can count")
        raise InvalidRequest(text % {"n": units}) from error
    with suppress(LineNotTold):  # the board of every web process sees the newer figures and primes them
        publish(Changes(sku, figures, []))
    return figures


def check_act(*, actor: str, reason: str) -> None:
    """Raise InvalidRequest unless somebody is named and the reason is not too long."""
    if not actor:
        raise InvalidRequest("actor must be named")
    if len(reason) > MAX_REASON_LENGTH:
        raise InvalidRequest(f"reason may have at most {MAX_REASON_LENGTH} characters")


def locked(slug: str) -> Sale:
    """Return the sale `slug` with its row locked, in the caller's transaction. Raises SaleNotFound."""
    # Not the key: settlement inserts orders of this sale while it holds the stock row, which we want next.
    sale = Sale.objects.select_related("stock").select_for_update(of=("self",), no_key=True).filter(slug=slug).first()
    if sale is None:
        raise SaleNotFound
    return sale


def tell_line(slug: str) -> bool:
    """Prime a sale whose change is committed, and say whether it was; else the boards of the web processes do it."""
    try:
        priming.prime_sale(slug)
        return True
    except (RedisUnavailable, OperationalError) as error:
        # Done all the same. The board of every web process sees the newer terms within a second or so and primes them.
        log.warning("committed, but the line was not told", action="tell_failed", sale=slug, error=repr(error))
        return False
