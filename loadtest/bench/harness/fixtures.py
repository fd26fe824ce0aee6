"""Makes the sales that are measured: plenty of units or as many as told, one a buyer. Never touches other sales."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db import connection, transaction
from django.utils import timezone

from inventory.audit.run import Scope, audit
from inventory.ledger import load_stock
from shop.models import Product, Sale
from shop.sales.catalogue import prime_sale

# More than any run can ask for: a sale that sells out would be answered from memory and flatter the gate.
UNITS = 5_000_000
PRICE = Decimal(9)


@dataclass(frozen=True, kw_only=True)
class Fixture:
    """One sale and what belongs to it."""

    slug: str
    sku: str
    sale_id: int
    request_key: bytes
    scope: Scope
    opens_at: datetime


def make_fixture(sku: str, *, hold_seconds: int = 600, units: int = UNITS, opens_in_seconds: float = 0.0) -> Fixture:
    """Make `sku` with its stock and a sale of the same slug, open or soon, primed into the Redis of our settings."""
    opens_at = timezone.now() + timedelta(seconds=opens_in_seconds)
    sale = make_sale(sku, units=units, opens_at=opens_at, hold_seconds=hold_seconds)
    prime_sale(sku)
    scope = Scope(sku=sku, stock_id=sale.stock_id, sale_id=sale.pk)
    return Fixture(
        slug=sku, sku=sku, sale_id=sale.pk, request_key=sale.request_key.encode(), scope=scope, opens_at=opens_at
    )


def make_sale(sku: str, *, units: int, opens_at: datetime, hold_seconds: int = 600) -> Sale:
    """Make `sku` with its stock and a sale of the same slug for twelve hours; Redis is not told."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            stock_id = load_stock(cursor, sku=sku, units=units, actor="benchmark", reason="goods to measure with")
        product = Product.objects.create(slug=sku, title=sku, list_price=Decimal(10), stock_id=stock_id)
        return Sale.objects.create(
            slug=sku,
            product=product,
            stock_id=stock_id,
            title=sku,
            price=PRICE,
            opens_at=opens_at,
            closes_at=opens_at + timedelta(hours=12),
            hold_seconds=hold_seconds,
        )


def faults_of(scope: Scope) -> list[str]:
    """Return a sentence for each invariant of a sale that is broken."""
    found = audit(scope)["invariants"]
    return [f"{scope.sku}: {each['id']} {each['name']}: {each['detail']}" for each in found if not each["ok"]]
