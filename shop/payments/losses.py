"""Names what a database restored from a backup has lost: what Redis and the payment providers remember and it does not.
Never changes an order, a stock row or a record by itself: take_newer_charges takes notices as they come any day.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from django.conf import settings

from inventory import redis
from inventory.exceptions import LineNotTold, RedisUnavailable, Unavailable
from inventory.line import reading
from inventory.models import Stock
from inventory.records import Record, record_or_none
from inventory.redis import Client, keys, scan
from inventory.states import RANK, WAITING_STATES, State
from shop.models import Order, Payment, Sale
from shop.payments import notices
from shop.payments.providers import Notice, provider

PAGE = 1_000
WITH_UNITS = frozenset({State.HELD, State.PAID})


class Loss(NamedTuple):
    """One thing that outlived the database. units: so many would be sold a second time.

    kind: order_missing, order_older, record_damaged, stock_older, units_differ, redis_empty, charge_newer,
    provider_away; of shop/staff/restore: terms_missing, units_short, charge_unknown, place_published, place_mailed,
    log_shorter.
    """

    kind: str
    sku: str
    name: str  # the request, the SKU, or the payment's reference
    buyer: str
    units: int
    detail: str


def find_losses() -> list[Loss]:
    """Return every loss of all sales that are not retired. Raises RedisUnavailable."""
    client = redis.connect(timeout_seconds=2)
    live = Sale.objects.filter(retired_at__isnull=True)
    losses: list[Loss] = []
    for sku in live.order_by("stock__sku").values_list("stock__sku", flat=True).distinct():
        losses += lost_of_sku(client, sku)
    return losses + list(_newer_charges())


def lost_of_sku(client: Client, sku: str) -> list[Loss]:
    """Return the losses of one SKU, without its charges. Raises RedisUnavailable."""
    told = reading.figures(client, sku)
    if told is None:
        return [Loss("redis_empty", sku, sku, "", 0, "Redis knows nothing of this SKU: nothing can be compared")]
    row = Stock.objects.get(sku=sku)
    losses = []
    total = told.available + told.held + told.sold
    # Of the same version the row must have the same units: somebody has changed it since it was restored.
    if told.version >= row.version and total != row.total:
        text = f"{row.total} units in all, Redis was told {total}: restock or adjust them first"
        losses.append(Loss("units_differ", sku, sku, "", 0, text))
    if told.version > row.version:
        text = f"version {row.version} with {row.available} available; Redis: {told.version} with {told.available}"
        losses.append(Loss("stock_older", sku, sku, "", 0, text))
    for page in scan.pages(client, "HSCAN", keys.records(sku), size=PAGE):
        losses += _lost_orders(sku, page)
    # What moves during the walk may come twice.
    return list(dict.fromkeys(losses))


def _lost_orders(sku: str, page: Sequence[tuple[str, Any]]) -> Iterator[Loss]:
    orders = dict(Order.objects.filter(request_id__in=[name for name, _ in page]).values_list("request_id", "state"))
    for name, text in page:
        record, order = record_or_none(text), State(orders[name]) if name in orders else None
        if record is None:
            if order is None:
                yield Loss("record_damaged", sku, name, "", 0, f"it has no order, and its record is {text!r:.100}")
        elif record.state not in WAITING_STATES and (order is None or RANK[record.state] > RANK[order]):
            yield _lost_order(sku, name, record, order)


def _lost_order(sku: str, name: str, record: Record, order: State | None) -> Loss:
    again = record.state in WITH_UNITS and order not in WITH_UNITS
    detail = f"was {record.state}, the database has {order or 'no order'}; {record.quantity} asked, seq {record.seq}"
    kind = "order_missing" if order is None else "order_older"
    return Loss(kind, sku, name, record.buyer, record.quantity if again else 0, detail)


def take_newer_charges() -> None:
    """Bring in what providers say of payments that the database has as pending."""
    for payment, notice in _asked():
        if notice is not None:
            with suppress(LineNotTold, RedisUnavailable):
                notices.take_notice(notice, provider_name=payment.provider)


def _newer_charges() -> Iterator[Loss]:
    """Ask each provider about payments that the database has as pending: the others it can name itself."""
    away: set[str] = set()
    for payment, notice in _asked(away=away):
        if notice is not None:
            name, sku, buyer = payment.provider, payment.order.sale.stock.sku, payment.order.buyer
            text = f"{name} says {notice.kind} {notice.amount} {notice.currency}, the database pending"
            yield Loss("charge_newer", sku, payment.reference, buyer, 0, text)
    for name in sorted(away):
        yield Loss("provider_away", "", name, "", 0, "its charges were not compared")


def _asked(away: set[str] | None = None) -> Iterator[tuple[Payment, Notice | None]]:
    """Yield each pending payment and what its provider says; away: gets the names of those that do not answer."""
    pending = Payment.objects.filter(state=Payment.State.PENDING, order__sale__retired_at__isnull=True)
    away = set() if away is None else away
    for payment in pending.select_related("order__sale__stock").order_by("id").iterator(chunk_size=PAGE):
        name = payment.provider
        if name in away or name not in settings.PAYMENT_PROVIDERS:
            continue
        try:
            yield payment, provider(name).look_up(payment.reference)
        except Unavailable:
            away.add(name)
