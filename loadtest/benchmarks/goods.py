"""Makes the sales that are measured: plenty of units, open now, one unit a buyer. Never touches other sales.
Called by the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from django.db import connection, transaction
from django.utils import timezone

from inventory.audit import Scope
from inventory.ledger import load_stock
from shop.catalogue import prime_sale
from shop.models import Product, Sale

# More than any run can ask for: a sale that sells out would be answered from memory and flatter the gate.
UNITS = 5_000_000


@dataclass(frozen=True, kw_only=True)
class Goods:
    """One sale and what belongs to it."""

    slug: str
    sku: str
    sale_id: int
    request_key: bytes
    scope: Scope


def make_goods(sku: str, *, hold_seconds: int = 600) -> Goods:
    """Make `sku` with its stock and an open sale of the same slug, primed into the Redis of our settings."""
    now = timezone.now()
    with transaction.atomic():
        with connection.cursor() as cursor:
            stock_id = load_stock(cursor, sku=sku, units=UNITS, actor="benchmark", reason="goods to measure with")
        product = Product.objects.create(slug=sku, title=sku, list_price=Decimal(10), stock_id=stock_id)
        sale = Sale.objects.create(
            slug=sku,
            product=product,
            stock_id=stock_id,
            title=sku,
            price=Decimal(9),
            opens_at=now,
            closes_at=now + timedelta(hours=12),
            hold_seconds=hold_seconds,
        )
    prime_sale(sku)
    scope = Scope(sku=sku, stock_id=stock_id, sale_id=sale.pk)
    return Goods(slug=sku, sku=sku, sale_id=sale.pk, request_key=sale.request_key.encode(), scope=scope)
