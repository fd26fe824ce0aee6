"""Writes sales that have happened: orders, history, movements and payments by COPY, stock by the ledger.
Never admits or settles anybody: a million orders take a minute or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from inventory import ledger
from inventory.states import Reason
from loadtest.bench.harness.fixtures import PRICE, make_sale
from shop.models import Sale

PAST = timedelta(days=3)
# Of the old payments: most were captured, some were declined, and some were never collected. A provider was asked last
# when a payment was so old; nothing is asked about that was asked about two days after it began (LAST_CAPTURE).
CAPTURED, DECLINED = 0.8, 0.15
LAST_ASKED = {"captured": timedelta(minutes=1), "declined": timedelta(hours=50)}
SALES_A_COMMIT = 500
# A buyer of the past asked once in each of so many sales.
SALES_A_BUYER = 50
HOLDS_AT_ONCE = 50_000
ORDERS = """
COPY shop_order (request_id, sale_id, buyer, quantity, buyer_limit, seq, state, actor, reason, unit_price, currency,
                 hold_expires_at, decided_at, changed_at, restored, terms_version, ordinal) FROM STDIN
"""
PAYMENTS = """
COPY shop_payment (order_id, provider, reference, amount, currency, state, reason, created_at, changed_at) FROM STDIN
"""
EVENTS = (
    "INSERT INTO shop_orderevent (order_id, from_state, to_state, at, actor, reason) "
    "SELECT id, 'queued', CASE WHEN hold_expires_at IS NULL THEN state ELSE 'held' END, decided_at, 'settler', '' "
    "FROM shop_order WHERE id > %(after)s ORDER BY id",
    "INSERT INTO shop_orderevent (order_id, from_state, to_state, at, actor, reason) "
    "SELECT id, 'held', state, changed_at, actor, reason FROM shop_order "
    "WHERE id > %(after)s AND hold_expires_at IS NOT NULL AND state <> 'held' ORDER BY id",
)
# When the hold of the nth order of a sale ends, None for those that never had one.
HoldEnd = Callable[[int], datetime]


@dataclass(frozen=True, kw_only=True)
class WrittenSale:
    """A sale whose stock is written; names: the request ids in the order of the line, with the state of each."""

    sale: Sale
    names: list[tuple[str, str]]


@contextmanager
def without_timeout() -> Iterator[None]:
    """Let statements of this process take as long as they need for the length of a `with` block."""
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        yield
        cursor.execute("RESET statement_timeout")


@without_timeout()
def write_past(*, sales: int, orders: int, payments: int) -> None:
    """Write `sales` retired sales, each of a SKU of its own, with `orders` and `payments` in all, evenly spread."""
    moment = timezone.now() - PAST
    paid, each = max(1, round(payments * CAPTURED / sales)), orders // sales
    states = {"paid": paid, "sold_out": each - paid}
    past: list[WrittenSale] = []
    for start in range(0, sales, SALES_A_COMMIT):
        with transaction.atomic():
            numbers = range(start, min(start + SALES_A_COMMIT, sales))
            past += [write_stock(f"age-past-{number}", states=states, opens_at=moment) for number in numbers]
    Sale.objects.filter(pk__in=[each.sale.pk for each in past]).update(retired_at=moment + PAST / 2)
    write_orders(past, decided_at=moment, hold_end=lambda _: moment + timedelta(minutes=10))
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM shop_order WHERE state = 'paid' ORDER BY id")
        _copy(cursor, PAYMENTS, _payment_rows([row[0] for row in cursor.fetchall()], count=payments, moment=moment))
        cursor.execute("VACUUM ANALYZE")  # as autovacuum has done long before a sale is retired


def write_stock(sku: str, *, states: Mapping[str, int], opens_at: datetime) -> WrittenSale:
    """Make `sku` and a sale of it whose units went to so many orders of each state; its orders are still to write."""
    with_units = [state for state, count in states.items() for _ in range(count) if state != "sold_out"]
    sale = make_sale(sku, units=len(with_units), opens_at=opens_at)
    every = [*with_units, *["sold_out"] * states.get("sold_out", 0)]
    names = [(f"{sale.pk:x}-{number:022d}", state) for number, state in enumerate(every)]
    holds = [(name, 1) for name, state in names if state != "sold_out"]
    ended = [(name, 1) for name, state in names if state in ("expired", "cancelled")]
    with transaction.atomic(), connection.cursor() as cursor, connection.cursor() as moves:
        ledger.claim_stock(cursor, sku=sku, fence=1)
        ledger.recv_claim(cursor)
        for start in range(0, len(holds), HOLDS_AT_ONCE):
            batch = holds[start : start + HOLDS_AT_ONCE]
            ledger.hold_units(cursor, moves, stock_id=sale.stock_id, fence=1, holds=batch, actor="settler")
            ledger.recv_hold(cursor)
        if states.get("paid"):
            ledger.sell_units(cursor, stock_id=sale.stock_id, units=states["paid"])
        for start in range(0, len(ended), HOLDS_AT_ONCE):
            batch = ended[start : start + HOLDS_AT_ONCE]
            ledger.release_units(cursor, stock_id=sale.stock_id, units=batch, actor="expirer")
    return WrittenSale(sale=sale, names=names)


def write_orders(sales: Iterable[WrittenSale], *, decided_at: datetime, hold_end: HoldEnd) -> None:
    """Write the orders of `sales` with their history. hold_end: when the hold of a sale's nth order ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM shop_order")
        (after,) = cursor.fetchone()
        # It refuses orders that begin as paid; the history is written below, as it would have written it.
        cursor.execute("ALTER TABLE shop_order DISABLE TRIGGER order_begins")
        _copy(cursor, ORDERS, _order_rows(sales, decided_at=decided_at, hold_end=hold_end))
        cursor.execute("ALTER TABLE shop_order ENABLE TRIGGER order_begins")
        for statement in EVENTS:
            cursor.execute(statement, {"after": after})


def _copy(cursor: Any, statement: str, rows: Iterator[tuple[object, ...]]) -> None:
    with cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def _order_rows(
    sales: Iterable[WrittenSale], *, decided_at: datetime, hold_end: HoldEnd
) -> Iterator[tuple[object, ...]]:
    seq = round(decided_at.timestamp() * 1_000_000)
    for written in sales:
        group = written.sale.pk // SALES_A_BUYER
        for number, (name, state) in enumerate(written.names):
            seq += 1
            ends = None if state == "sold_out" else hold_end(number)
            buyer = f"past-{group:08x}-{number:08x}"
            yield (
                *(name, written.sale.pk, buyer, 1, 1, seq, state, "settler", "", PRICE, "EUR", ends),
                *(decided_at, decided_at, False, 1, number + 1),
            )


def _payment_rows(order_ids: list[int], *, count: int, moment: datetime) -> Iterator[tuple[object, ...]]:
    """Yield a captured payment of every order, and before some of them one that was declined or never collected."""
    others = max(0, count - len(order_ids))
    declined = round(others * DECLINED / (1 - CAPTURED))
    parts = (
        ("declined", "", order_ids[:declined]),
        ("declined", Reason.NEVER_COLLECTED, order_ids[declined:others]),
        ("captured", "", order_ids),
    )
    for state, reason, ids in parts:
        asked = moment + LAST_ASKED[state]
        for order_id in ids:
            reference = f"past-{state}-{order_id}"
            yield order_id, "sandbox", reference, Decimal(PRICE), "EUR", state, reason, moment, asked
