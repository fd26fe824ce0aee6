"""Reads sales and their stock from the database, and primes Redis with them. Never writes the database.
Called by the pages, the gate's loader, the admin and the demo.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import Count, Max, Sum

from inventory import priming, redis
from inventory.exceptions import SaleNotFound
from inventory.line import StockFigures, live_field
from inventory.outcomes import State
from inventory.tickets import Record
from shop.models import Order, Sale


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
    )


def list_sales() -> list[SaleCard]:
    """Return every sale, the one that opens first first."""
    return [_card(sale) for sale in Sale.objects.select_related("product", "stock")]


def find_sale(slug: str) -> SaleCard:
    """Return the sale `slug`. Raises SaleNotFound."""
    sale = Sale.objects.select_related("product", "stock").filter(slug=slug).first()
    if sale is None:
        raise SaleNotFound
    return _card(sale)


def find_sale_by_id(sale_id: int) -> SaleCard:
    """Return the sale with this id. Raises SaleNotFound."""
    sale = Sale.objects.select_related("product", "stock").filter(pk=sale_id).first()
    if sale is None:
        raise SaleNotFound
    return _card(sale)


def prime_card(card: SaleCard) -> None:
    """Put `card` into Redis: its terms, its stock and, when Redis was empty, what its buyers hold (I18).

    Safe to run at any time by anyone. Raises RedisUnavailable.
    """
    client = redis.connect()
    if not priming.is_primed(client, card.sku):
        priming.prime_live_units(client, card.sku, units_by_field=list(_units_by_field(card.sku)))
        priming.prime_records(client, card.sku, records=list(_records(card.sku)))
    seen = Order.objects.filter(sale__stock__sku=card.sku).aggregate(last_seq=Max("seq"), decided=Count("id"))
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
        figures=StockFigures(card.available, card.held, card.sold, 0, card.version),
        last_seq=seen["last_seq"] or 0,
        decided=seen["decided"],
        fence=card.fence,
    )


def _units_by_field(sku: str) -> Iterable[tuple[str, int]]:
    live = Order.objects.filter(sale__stock__sku=sku, state__in=["held", "paid"]).order_by()
    for sale_id, buyer, units in live.values_list("sale_id", "buyer").annotate(units=Sum("quantity")):
        yield live_field(sale_id=sale_id, buyer=buyer), units


def _records(sku: str) -> Iterable[tuple[str, str]]:
    orders = Order.objects.filter(sale__stock__sku=sku).order_by("id")
    fields = ("request_id", "state", "seq", "quantity", "sale_id", "buyer", "hold_expires_at")
    for name, state, seq, quantity, sale_id, buyer, ends in orders.values_list(*fields).iterator():
        hold_expires_ms = round(ends.timestamp() * 1000) if ends and state == State.HELD else None
        yield name, Record(State(state), seq, quantity, sale_id, buyer, hold_expires_ms).text()


def prime_sale(slug: str) -> None:
    """Prime the sale `slug` as the database has it now. Raises SaleNotFound, RedisUnavailable."""
    prime_card(find_sale(slug))


def prime_all_sales() -> int:
    """Prime every sale; return how many. Raises RedisUnavailable."""
    cards = list_sales()
    for card in cards:
        prime_card(card)
    return len(cards)
