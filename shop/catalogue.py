"""Reads sales and their stock from the database, and primes Redis with them. Never changes what is offered.
Called by the pages, the gate's loader, the admin and the demo.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db import connection, transaction
from django.db.models import Case, Count, Max, OuterRef, Subquery, Sum, When
from django.db.models.functions import Now
from django.db.models.query import QuerySet

from inventory import line_changes, priming, redis
from inventory.exceptions import SaleNotFound
from inventory.line_changes import Settled, StockFigures, live_field
from inventory.outcomes import State
from inventory.tickets import Record
from shop.models import Order, Sale
from shop.terms import end_past_terms

# Longer than priming and the longest transaction together.
LONGEST_COMMIT = timedelta(minutes=1)
# A hold that ended longer ago is not looked for: the index keeps ended holds until a vacuum.
OVERDUE = timedelta(seconds=10)


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
    # When the first of its holds ends, None when nothing is held; by the card's moment.
    next_lapse_at: datetime | None = None

    def state_at(self, moment: datetime) -> str:
        """Return scheduled, open, paused or closed as of `moment` (an aware datetime)."""
        if self.switch == "closed" or moment >= self.closes_at:
            return "closed"
        if moment < self.opens_at:
            return "scheduled"
        return "paused" if self.switch == "paused" else "open"

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
        next_lapse_at=getattr(sale, "next_lapse_at", None),  # annotated, not a column
    )


def _sales() -> QuerySet[Sale]:
    holds = Order.objects.filter(sale=OuterRef("pk"), state=State.HELD, hold_expires_at__gte=Now() - OVERDUE)
    first_end = Subquery(holds.order_by("hold_expires_at").values("hold_expires_at")[:1])
    # Without the condition a sale with nothing held would read the index of all holds.
    next_lapse_at = Case(When(stock__held__gt=0, closes_at__gt=Now(), then=first_end))
    return Sale.objects.select_related("product", "stock").annotate(next_lapse_at=next_lapse_at)


def list_sales() -> list[SaleCard]:
    """Return every sale, the one that opens first first."""
    return [_card(sale) for sale in _sales()]


def find_sale(slug: str) -> SaleCard:
    """Return the sale `slug`. Raises SaleNotFound."""
    sale = _sales().filter(slug=slug).first()
    if sale is None:
        raise SaleNotFound
    return _card(sale)


def find_sale_by_id(sale_id: int) -> SaleCard:
    """Return the sale with this id. Raises SaleNotFound."""
    sale = _sales().filter(pk=sale_id).first()
    if sale is None:
        raise SaleNotFound
    return _card(sale)


def prime_card(card: SaleCard) -> None:
    """Put `card` into Redis: its terms, its stock and, when Redis was empty, what its buyers hold (I18).

    Safe to run at any time by anyone. Raises RedisUnavailable.
    """
    client = redis.connect()
    was_primed = priming.is_primed(client, card.sku)
    if was_primed:
        last_seq, decided = _seen(card.sku)
    else:
        card, last_seq, decided = _prime_requests(client, card)
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
        last_seq=last_seq,
        decided=decided,
        fence=card.fence,
    )
    end_past_terms(client, card.sku, sale_id=card.sale_id)
    if not was_primed:
        _tell_missed(client, card)


def _tell_missed(client: redis.Client, card: SaleCard) -> None:
    """Tell what was committed after the snapshot: whoever did it told a Redis that was not primed, so nobody."""
    now = find_sale_by_id(card.sale_id)
    if now.version == card.version:
        return
    orders = Order.objects.filter(sale__stock__sku=card.sku, changed_at__gte=Now() - LONGEST_COMMIT)
    changed = [Settled(name, record) for name, record in _records_of(orders)]
    line_changes.tell_changes(
        client,
        card.sku,
        figures=StockFigures(now.available, now.held, now.sold, now.held, now.version),
        changed=changed,
    )


def _prime_requests(client: redis.Client, card: SaleCard) -> tuple[SaleCard, int, int]:
    """Write what buyers hold and what was decided; return the card of that moment, its last seq, how many decided.

    One snapshot for all of it: a count that knows of more than the records do would make requests look lost (I4).
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        card = find_sale_by_id(card.sale_id)
        units, records = list(_units_by_field(card.sku)), list(_records(card.sku))
        last_seq, decided = _seen(card.sku)
    priming.prime_live_units(client, card.sku, units_by_field=units)
    priming.prime_records(client, card.sku, records=records)
    return card, last_seq, decided


def _seen(sku: str) -> tuple[int, int]:
    """Return the highest seq that the database has seen of `sku`, and how many requests it has decided."""
    seen = Order.objects.filter(sale__stock__sku=sku).aggregate(last_seq=Max("seq"), decided=Count("id"))
    return seen["last_seq"] or 0, seen["decided"]


def _units_by_field(sku: str) -> Iterable[tuple[str, int]]:
    live = Order.objects.filter(sale__stock__sku=sku, state__in=["held", "paid"]).order_by()
    for sale_id, buyer, units in live.values_list("sale_id", "buyer").annotate(units=Sum("quantity")):
        yield live_field(sale_id=sale_id, buyer=buyer), units


def _records(sku: str) -> Iterable[tuple[str, str]]:
    for name, record in _records_of(Order.objects.filter(sale__stock__sku=sku).order_by("id")):
        yield name, record.text()


def _records_of(orders: QuerySet[Order]) -> Iterable[tuple[str, Record]]:
    fields = ("request_id", "state", "seq", "quantity", "sale_id", "buyer", "hold_expires_at")
    for name, state, seq, quantity, sale_id, buyer, ends in orders.values_list(*fields).iterator():
        hold_expires_ms = round(ends.timestamp() * 1000) if ends and state == State.HELD else None
        yield name, Record(State(state), seq, quantity, sale_id, buyer, hold_expires_ms)


def prime_sale(slug: str) -> None:
    """Prime the sale `slug` as the database has it now. Raises SaleNotFound, RedisUnavailable."""
    prime_card(find_sale(slug))
