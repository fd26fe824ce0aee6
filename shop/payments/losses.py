"""Names what a database restored from a backup has lost: what Redis and the payment providers remember and it does not.
Reads only: never changes an order, a stock row, a record or a charge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from django.conf import settings

from inventory import redis
from inventory.exceptions import Unavailable
from inventory.line import reading
from inventory.models import Stock
from inventory.records import Record, record_or_none
from inventory.redis import Client, keys, scan
from inventory.states import RANK, WAITING_STATES, State
from shop.models import Order, Payment, Sale
from shop.payments.providers import provider

PAGE = 1_000
WITH_UNITS = frozenset({State.HELD, State.PAID})


class Loss(NamedTuple):
    """One thing that outlived the database. units: so many would be sold a second time.

    kind: order_missing, order_older, record_damaged, stock_older, redis_empty, charge_newer, provider_away.
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


def _newer_charges() -> Iterator[Loss]:
    """Ask each provider about payments that the database has as pending: the others it can name itself."""
    pending = Payment.objects.filter(state=Payment.State.PENDING, order__sale__retired_at__isnull=True)
    away: set[str] = set()
    for payment in pending.select_related("order__sale__stock").order_by("id").iterator(chunk_size=PAGE):
        name, sku, buyer = payment.provider, payment.order.sale.stock.sku, payment.order.buyer
        if name in away or name not in settings.PAYMENT_PROVIDERS:
            continue
        try:
            notice = provider(name).look_up(payment.reference)
        except Unavailable:
            away.add(name)
            yield Loss("provider_away", "", name, "", 0, "its charges were not compared")
            continue
        if notice is not None:
            text = f"{name} says {notice.kind} {notice.amount} {notice.currency}, the database pending"
            yield Loss("charge_newer", sku, payment.reference, buyer, 0, text)
