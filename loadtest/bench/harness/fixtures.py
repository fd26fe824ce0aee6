"""Makes the sales that are measured: fresh ones, and one with orders in every stage; and counts what became of them.
Never touches other sales.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from inventory import ledger
from inventory.audit.run import Scope, audit
from inventory.signing import MAC_LENGTH
from inventory.states import State
from loadtest.bench.harness.machine import one_row
from shop.models import Product, Sale
from shop.orders import holds
from shop.sales.catalogue import find_sale
from shop.sales.priming import prime_sale

# More than any run can ask for: a sale that sells out would be answered from memory and flatter the gate.
UNITS = 5_000_000
PRICE = Decimal(9)
# Columns of a sale that counts no units by network.
NO_LIMIT: dict[str, Any] = {"per_network_limit": 0}
BATCH = 1_000  # the trigger on orders compares the old and new rows of a statement: many at once take far longer
# Percent of all orders; the rest stays held. Those refunded were paid, those late had expired.
PERCENT = {"paid": 40, "expired": 15, "cancelled": 5, "sold_out": 20}
LATE, REFUNDED = 200, 200

ORDERS = """
INSERT INTO shop_order (request_id, sale_id, buyer, quantity, buyer_limit, seq, state, actor, reason, unit_price,
                        currency, hold_expires_at, decided_at, changed_at, restored)
SELECT to_hex(%(sale_id)s) || '-' || left(md5(no::text), %(mac)s), %(sale_id)s,
       left(md5(no::text), 20), 1, 1, %(first_seq)s + no, %(state)s, 'settler', '', %(price)s, 'EUR',
       CASE WHEN %(state)s = 'held' THEN clock_timestamp() + interval '1 day' END, now(), now(), false
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS no ORDER BY no
RETURNING request_id
"""
# No expirer works in a run: a hold that ends before the audit at its end would outlive its time (I11).
HOLD_SECONDS = 4 * 3600
# A hold may lapse only when it is over (I11).
LET_END = "UPDATE shop_order SET hold_expires_at = clock_timestamp() WHERE request_id = ANY(%s)"
PAY = """
WITH paid AS (
    UPDATE shop_order SET state = 'paid', actor = 'payment', reason = %(reason)s, changed_at = clock_timestamp()
    WHERE request_id = ANY(%(names)s) RETURNING id, unit_price * quantity AS due, currency)
INSERT INTO shop_payment (order_id, provider, reference, amount, currency, state, reason)
SELECT id, 'sandbox', md5('of order ' || id), due, currency, 'captured', '' FROM paid
"""
REFUND = """
WITH refunded AS (
    UPDATE shop_order SET state = 'refunded', actor = 'staff', reason = 'sent back', changed_at = clock_timestamp()
    WHERE request_id = ANY(%(names)s) RETURNING id)
UPDATE shop_payment SET state = 'refunded' WHERE order_id IN (SELECT id FROM refunded)
"""
DECIDED = """
SELECT count(*), count(*) FILTER (WHERE state = 'held') FROM shop_order
WHERE sale_id = ANY(%s) AND decided_at >= to_timestamp(%s) AND decided_at < to_timestamp(%s)
"""


@dataclass(frozen=True, kw_only=True)
class Fixture:
    """One sale and what belongs to it. network_limit: for how many units one network is let in."""

    slug: str
    sku: str
    sale_id: int
    request_key: bytes
    scope: Scope
    opens_at: datetime
    network_limit: int


def make_fixture(
    sku: str, *, hold_seconds: int = HOLD_SECONDS, units: int = UNITS, opens_in_seconds: float = 0.0, **terms: Any
) -> Fixture:
    """Make `sku` with its stock and a sale of the same slug, open or soon, primed into the Redis of our settings.

    terms: other columns of the sale.
    """
    opens_at = timezone.now() + timedelta(seconds=opens_in_seconds)
    sale = make_sale(sku, units=units, opens_at=opens_at, hold_seconds=hold_seconds, **terms)
    prime_sale(sku)
    scope = Scope(sku=sku, stock_id=sale.stock_id, sale_id=sale.pk)
    return Fixture(
        slug=sku,
        sku=sku,
        sale_id=sale.pk,
        request_key=sale.request_key.encode(),
        scope=scope,
        opens_at=opens_at,
        network_limit=find_sale(sku).network_limit,
    )


def make_sale(sku: str, *, units: int, opens_at: datetime, hold_seconds: int = HOLD_SECONDS, **terms: Any) -> Sale:
    """Make `sku` with its stock and a sale of the same slug for twelve hours; Redis is not told."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            stock_id = ledger.load_stock(
                cursor, sku=sku, units=units, actor="benchmark", reason="units to measure with"
            )
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
            **terms,
        )


def decided_between(sale_ids: Sequence[int], *, begin: float, seconds: float) -> tuple[int, int]:
    """Return how many orders were decided in the `seconds` from `begin` (s since 1970), and how many are held."""
    decided, held = one_row(DECIDED, list(sale_ids), begin, begin + seconds)
    return decided, held


def faults_of(scope: Scope) -> list[str]:
    """Return a sentence for each invariant of a sale that is broken."""
    found = audit(scope)["invariants"]
    return [f"{scope.sku}: {each['id']} {each['name']}: {each['detail']}" for each in found if not each["ok"]]


@dataclass(frozen=True, kw_only=True)
class FilledBooks:
    """A sale that was filled; names: the request ids by what became of them."""

    slug: str
    sku: str
    scope: Scope
    names: dict[str, list[str]] = field(repr=False)


def fill_books(sku: str, *, orders: int) -> FilledBooks:
    """Make `sku`, a sale of it and `orders` orders in every stage, with movements, history, payments and records.

    orders: at least 1,000. What is free at the end came back after the last one was told that all is sold out.
    """
    with transaction.atomic():  # a web process would prime a sale that it sees half made
        books = _write_books(sku, orders=orders)
    prime_sale(books.slug)
    return books


def _write_books(sku: str, *, orders: int) -> FilledBooks:
    counts = {name: orders * percent // 100 for name, percent in PERCENT.items()}
    counts["held"] = orders - sum(counts.values())
    units = orders - counts["sold_out"]
    sale = make_sale(sku, units=units, opens_at=timezone.now())
    stock_id = sale.stock_id
    got = _insert(sale.pk, first=1, count=units, state=State.HELD)
    names: dict[str, list[str]] = {}
    for name in ("paid", "expired", "cancelled", "held"):
        names[name], got = got[: counts[name]], got[counts[name] :]
    _hold(sku, stock_id, [one for group in names.values() for one in group])
    names["sold_out"] = _insert(sale.pk, first=units + 1, count=counts["sold_out"], state=State.SOLD_OUT)
    for state in (State.EXPIRED, State.CANCELLED):
        _end(sku, names[state], state=state)
    _pay(sku, names["paid"], stock_id=stock_id)
    _pay_late(sku, names["expired"][:LATE], stock_id=stock_id)
    _refund(sku, names["paid"][:REFUNDED], stock_id=stock_id)
    return FilledBooks(slug=sale.slug, sku=sku, scope=Scope(sku=sku, stock_id=stock_id, sale_id=sale.pk), names=names)


def _insert(sale_id: int, *, first: int, count: int, state: State) -> list[str]:
    names: list[str] = []
    for start in range(first, first + count, BATCH):
        values: dict[str, Any] = {
            "sale_id": sale_id,
            "mac": MAC_LENGTH,
            "first_seq": 10**15,
            "state": state.value,
            "price": PRICE,
            "first": start,
            "last": min(start + BATCH, first + count) - 1,
        }
        with connection.cursor() as cursor:
            cursor.execute(ORDERS, values)
            names += [name for (name,) in cursor.fetchall()]
    return names


def _batches(names: list[str]) -> list[list[str]]:
    return [names[start : start + BATCH] for start in range(0, len(names), BATCH)]


def _hold(sku: str, stock_id: int, names: list[str]) -> None:
    for fence, batch in enumerate(_batches(names), start=1):
        with transaction.atomic(), connection.cursor() as cursor, connection.cursor() as moves:
            ledger.claim_stock(cursor, sku=sku, fence=fence)
            ledger.recv_claim(cursor)
            holding = [(name, 1) for name in batch]
            ledger.hold_units(cursor, moves, stock_id=stock_id, fence=fence, holds=holding, actor="settler")
            ledger.recv_hold(cursor)


def _end(sku: str, names: list[str], *, state: State) -> None:
    for batch in _batches(names):
        with transaction.atomic(), connection.cursor() as cursor:
            if state is State.EXPIRED:
                cursor.execute(LET_END, [batch])
            holds.end_holds(
                cursor, sku=sku, request_ids=batch, state=state, actor="benchmark", reason="", due_only=False
            )


def _pay(sku: str, names: list[str], *, stock_id: int) -> None:
    for batch in _batches(names):
        with transaction.atomic(), connection.cursor() as cursor:
            ledger.lock_stock(cursor, sku=sku)
            cursor.execute(PAY, {"names": batch, "reason": ""})
            ledger.sell_units(cursor, stock_id=stock_id, units=len(batch))


def _pay_late(sku: str, names: list[str], *, stock_id: int) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        ledger.lock_stock(cursor, sku=sku)
        cursor.execute(PAY, {"names": names, "reason": "paid late"})
        for name in names:
            ledger.retake_units(cursor, stock_id=stock_id, request_id=name, units=1, actor="payment")


def _refund(sku: str, names: list[str], *, stock_id: int) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        ledger.lock_stock(cursor, sku=sku)
        cursor.execute(REFUND, {"names": names})
        for name in names:
            ledger.return_units(cursor, stock_id=stock_id, request_id=name, units=1, actor="staff", reason="sent back")
