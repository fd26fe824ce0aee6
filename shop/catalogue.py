"""Reads sales and their stock from the database, and primes Redis with them. Never changes what is offered.
Called by the pages, the gate's loader, the admin and the demo.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, Max, Q, Sum
from django.db.models.functions import Now
from django.db.models.query import QuerySet

from inventory import line_changes, priming, redis
from inventory.exceptions import SaleNotFound, SaleNotPrimed
from inventory.line_changes import Settled, StockFigures, live_field
from inventory.outcomes import State
from inventory.tickets import Record
from shop.models import Order, Sale
from shop.terms import end_past_terms

# Longer than priming and the longest transaction together.
LONGEST_COMMIT = timedelta(minutes=1)
# A sale stays in the list for so long after its end; then it is a past sale.
LISTED = timedelta(days=1)
PAST_PAGE = 50


@dataclass(frozen=True, slots=True)
class SaleCard:
    """A sale with its product and its stock, as one moment saw it. price in units of currency, quantity in pieces."""

    sale_id: int
    slug: str
    sku: str
    title: str
    tagline: str
    description: str
    picture: str
    price: Decimal
    list_price: Decimal
    currency: str
    opens_at: datetime
    closes_at: datetime
    per_buyer_limit: int
    hold_seconds: int
    switch: str
    pause_reason: str
    room: int
    request_key: str
    quantity: int
    available: int
    held: int
    sold: int
    version: int
    fence: int
    terms_version: int
    retired_at: datetime | None = None

    def state_at(self, moment: datetime) -> str:
        """Return scheduled, open, paused or closed as of `moment` (an aware datetime)."""
        if self.switch == "closed" or moment >= self.closes_at:
            return "closed"
        if moment < self.opens_at:
            return "scheduled"
        return "paused" if self.switch == "paused" else "open"

    def is_listed(self, moment: datetime) -> bool:
        """Say whether the list of sales has it as of `moment`: open, coming, or over for less than a day."""
        return self.retired_at is None and self.closes_at > moment - LISTED

    def request_id_key(self) -> bytes:
        """Return the key of this sale's request ids."""
        return self.request_key.encode()


def _card(sale: Sale) -> SaleCard:
    product, stock = sale.product, sale.stock
    return SaleCard(
        sale_id=sale.pk,
        slug=sale.slug,
        sku=stock.sku,
        title=sale.title,
        tagline=product.tagline,
        description=product.description,
        picture=product.picture,
        price=sale.price,
        list_price=product.list_price,
        currency=sale.currency,
        opens_at=sale.opens_at,
        closes_at=sale.closes_at,
        per_buyer_limit=sale.per_buyer_limit,
        hold_seconds=sale.hold_seconds,
        switch=sale.switch,
        pause_reason=sale.pause_reason,
        room=sale.room,
        request_key=sale.request_key,
        quantity=stock.total,
        available=stock.available,
        held=stock.held,
        sold=stock.sold,
        version=stock.version,
        fence=stock.fence,
        terms_version=sale.terms_version,
        retired_at=sale.retired_at,
    )


def list_sales() -> list[SaleCard]:
    """Return every sale that is not retired, the one that opens first first."""
    return [_card(sale) for sale in _sales().filter(retired_at__isnull=True)]


def list_past(page: int) -> tuple[list[SaleCard], bool]:
    """Return one page (from 1) of the sales that are listed no more, the last one first, and whether more follow."""
    past = _sales().filter(Q(retired_at__isnull=False) | Q(closes_at__lte=Now() - LISTED))
    start = (page - 1) * PAST_PAGE
    found = [_card(sale) for sale in past.order_by("-closes_at", "-pk")[start : start + PAST_PAGE + 1]]
    return found[:PAST_PAGE], len(found) > PAST_PAGE


def find_sale(slug: str) -> SaleCard:
    """Return the sale `slug`, retired or not. Raises SaleNotFound."""
    return _find(slug=slug)


def find_sale_by_id(sale_id: int) -> SaleCard:
    """Return the sale with this id, retired or not. Raises SaleNotFound."""
    return _find(pk=sale_id)


def _sales() -> QuerySet[Sale]:
    return Sale.objects.select_related("product", "stock")


def _find(**wanted: Any) -> SaleCard:
    sale = _sales().filter(**wanted).first()
    if sale is None:
        raise SaleNotFound
    return _card(sale)


def prime_card(card: SaleCard) -> None:
    """Put `card` into Redis: its terms, its stock and, when Redis was empty, what its buyers hold (I18).

    Safe to run at any time by anyone. A retired sale is refused with SaleNotPrimed: the database answers for it.
    Raises RedisUnavailable.
    """
    _refuse_retired(card)
    client = redis.connect()
    was_primed = priming.is_primed(client, card.sku)
    if was_primed:
        seen = _seen(card.sku)
    else:
        card, seen = _prime_requests(client, card)
    priming.prime(
        client,
        priming.SaleTerms(
            sale_id=card.sale_id,
            sku=card.sku,
            switch=card.switch,
            opens_at=card.opens_at,
            closes_at=card.closes_at,
            limit=card.per_buyer_limit,
            room=card.room,
            version=card.terms_version,
        ),
        figures=StockFigures(card.available, card.held, card.sold, card.held, card.version),
        fence=card.fence,
        **seen,
    )
    end_past_terms(client, card.sku, sale_id=card.sale_id)
    if not was_primed:
        _tell_missed(client, card)


def _refuse_retired(card: SaleCard) -> None:
    if card.retired_at is not None:
        raise SaleNotPrimed("This sale is retired: only the database answers for it.")


def _tell_missed(client: redis.Client, card: SaleCard) -> None:
    """Tell what was committed after the snapshot: whoever did it told a Redis that was not primed, so nobody."""
    now = find_sale_by_id(card.sale_id)
    if now.version == card.version:
        return
    orders = _orders(card.sku).filter(changed_at__gte=Now() - LONGEST_COMMIT)
    changed = [Settled(name, record) for name, record in _records_of(orders)]
    line_changes.tell_changes(
        client,
        card.sku,
        figures=StockFigures(now.available, now.held, now.sold, now.held, now.version),
        changed=changed,
    )


def _prime_requests(client: redis.Client, card: SaleCard) -> tuple[SaleCard, dict[str, int]]:
    """Write what buyers hold and what was decided; return the card of that moment, and what was seen with it.

    One snapshot for all of it: a count that knows of more than the records do would make requests look lost (I4).
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        card = find_sale_by_id(card.sale_id)
        _refuse_retired(card)
        units, records = list(_units_by_field(card.sku)), list(_records(card.sku))
        seen = _seen(card.sku)
    priming.prime_live_units(client, card.sku, units_by_field=units)
    priming.prime_records(client, card.sku, records=records)
    return card, seen


def _seen(sku: str) -> dict[str, int]:
    """Return the highest seq that the database has seen of `sku`, how many it has decided, and of retired sales."""
    seen = Order.objects.filter(sale__stock__sku=sku).aggregate(
        last_seq=Max("seq"), decided=Count("id"), forgotten=Count("id", filter=Q(sale__retired_at__isnull=False))
    )
    return {name: value or 0 for name, value in seen.items()}


def _orders(sku: str) -> QuerySet[Order]:
    """Return the orders of a SKU that Redis is told of."""
    return Order.objects.filter(sale__stock__sku=sku, sale__retired_at__isnull=True)


def _units_by_field(sku: str) -> Iterable[tuple[str, int]]:
    live = _orders(sku).filter(state__in=["held", "paid"]).order_by()
    for sale_id, buyer, units in live.values_list("sale_id", "buyer").annotate(units=Sum("quantity")):
        yield live_field(sale_id=sale_id, buyer=buyer), units


def _records(sku: str) -> Iterable[tuple[str, str]]:
    for name, record in _records_of(_orders(sku).order_by("id")):
        yield name, record.text()


def _records_of(orders: QuerySet[Order]) -> Iterable[tuple[str, Record]]:
    fields = ("request_id", "state", "seq", "quantity", "sale_id", "buyer", "hold_expires_at")
    for name, state, seq, quantity, sale_id, buyer, ends in orders.values_list(*fields).iterator():
        hold_expires_ms = round(ends.timestamp() * 1000) if ends and state == State.HELD else None
        yield name, Record(State(state), seq, quantity, sale_id, buyer, hold_expires_ms)


def prime_sale(slug: str) -> None:
    """Prime the sale `slug` as the database has it now. Raises SaleNotFound, RedisUnavailable."""
    prime_card(find_sale(slug))
