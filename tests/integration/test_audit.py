"""A clean sale passes the audit; each invariant, broken on purpose, is named alone. The database rolls the damage back.
Real servers. Called by pytest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import pytest
from django.db import connection, transaction

from inventory import keys
from inventory.audit import QUERIES, Scope, audit
from shop.catalogue import SaleCard
from shop.models import Sale
from tests.road import held_lock, queue, run, settle_line, take
from tests.shopkeeping import assert_books_balance, audit_of, make_sale

pytestmark = pytest.mark.usefixtures("shop_database")

# The base of every control: three units, two of them held by ann and bob, one each; %(ann)s and %(bob)s are their ids.
UNLOCK = (
    "GRANT UPDATE ON inventory_stockmovement TO CURRENT_USER",
    "DROP TRIGGER movement_rows_never_change ON inventory_stockmovement",
)
ORDER = """
INSERT INTO shop_order (request_id, sale_id, buyer, buyer_limit, quantity, seq, state, reason, unit_price, currency,
                        hold_expires_at)
SELECT 'extra-' || number, %(sale_id)s, 'buyer-' || number, 1, 1, 9000000000000000 + number, {state}, '', 1,
       'EUR', now()
FROM generate_series(1, {count}) AS number
"""
MOVE = """
INSERT INTO inventory_stockmovement (stock_id, kind, delta, request_id, actor, reason)
VALUES (%(stock_id)s, {}, 'test', '')
"""
MOVE_EXTRA = """
INSERT INTO inventory_stockmovement (stock_id, kind, delta, request_id, actor, reason)
SELECT %(stock_id)s, 'hold', -1, 'extra-' || number, 'test', '' FROM generate_series(1, {count}) AS number
"""
# Damage, and the one invariant that must name it.
DAMAGE = {
    "two more are held than there are units": (
        "I1",
        [
            ORDER.format(state="'held'", count=2),
            MOVE_EXTRA.format(count=2),
            "ALTER TABLE inventory_stock DROP CONSTRAINT stock_available_not_negative",
            "ALTER TABLE inventory_stock DROP CONSTRAINT inventory_stock_available_check",
            "UPDATE inventory_stock SET available = -1, held = 4 WHERE id = %(stock_id)s",
        ],
    ),
    "a delivery that the counters never saw": ("I2", [MOVE.format("'load', 1, NULL")]),
    "counters that do not add up": (
        "I2",
        [
            "ALTER TABLE inventory_stock DROP CONSTRAINT stock_every_unit_is_somewhere",
            "UPDATE inventory_stock SET total = 4 WHERE id = %(stock_id)s",
        ],
    ),
    "a unit counted as sold that nobody paid": (
        "I2b",
        ["UPDATE inventory_stock SET held = 1, sold = 1 WHERE id = %(stock_id)s"],
    ),
    "units taken twice and given back once": (
        "I3",
        [
            "ALTER TABLE inventory_stockmovement DROP CONSTRAINT movement_once_per_request_and_kind",
            MOVE.format("'hold', -1, %(ann)s"),
            MOVE.format("'release', 1, %(ann)s"),
        ],
    ),
    "units that move for requests nobody made": (
        "I5",
        [MOVE.format("'hold', -1, 'ghost'"), MOVE.format("'release', 1, 'other ghost'")],
    ),
    "a hold whose units were moved for another": (
        "I5",
        [*UNLOCK, "UPDATE inventory_stockmovement SET request_id = 'ghost' WHERE request_id = %(bob)s"],
    ),
    "one buyer with two units where one is allowed": (
        "I7",
        ["UPDATE shop_order SET buyer = 'ann' WHERE request_id = %(bob)s"],
    ),
    "a decision before its turn": (
        "I8",
        ["UPDATE shop_order SET seq = 9000000000000000 WHERE request_id = %(ann)s"],
    ),
    "two requests with one place": (
        "I8",
        [
            "UPDATE shop_order SET seq = (SELECT seq FROM shop_order WHERE request_id = %(bob)s)"
            " WHERE request_id = %(ann)s"
        ],
    ),
    "sold out while a unit is free": ("I9", [ORDER.format(state="'sold_out'", count=1)]),
    "a movement under an older fence": (
        "I16",
        [*UNLOCK, "UPDATE inventory_stockmovement SET fence = fence - 1 WHERE request_id = %(bob)s"],
    ),
}
# The same for Redis: one waits (eve), one is in flight (joe).
LOSS = {
    "a request that vanished from the line": ("I4", lambda sku: [("ZPOPMIN", keys.line(sku))]),
    "more orders than requests": ("I5b", lambda sku: [("HSET", keys.stock(sku), "admitted", 1)]),
    "units queued while nobody waits": ("I15", lambda sku: [("HINCRBY", keys.stock(sku), "queued", 1)]),
    "a request in line and in flight at once": ("I17", lambda sku: [("ZADD", keys.line(sku), 1, flying(sku))]),
}


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return a sale of three units, two of them held."""
    made = make_sale(new_sku(), units=3)
    queue(made, "ann", "bob")
    settle_line(made)
    return made


def scope_of(card: SaleCard) -> Scope:
    return Scope(sku=card.sku, stock_id=Sale.objects.get(pk=card.sale_id).stock_id, sale_id=card.sale_id)


def flying(sku: str) -> str:
    return run(("ZRANGE", keys.in_flight(sku), 0, 0))[0][0]


def broken(card: SaleCard) -> list[str]:
    """Return the invariants that the audit finds broken."""
    return [each["id"] for each in audit_of(card)["invariants"] if not each["ok"]]


def broken_after(card: SaleCard, damage: list[str]) -> dict[str, str]:
    """Do `damage` in a transaction that is rolled back; return what the audit's queries said, by id."""
    values = asdict(scope_of(card))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT buyer, request_id FROM shop_order WHERE sale_id = %(sale_id)s", values)
        values_of_damage = values | dict(cursor.fetchall())
        for statement in damage:
            cursor.execute(statement, values_of_damage)
        rows = {}
        for number, _, query in QUERIES:
            cursor.execute(query, values)
            rows[number] = cursor.fetchone()
        transaction.set_rollback(True)
    return {number: row[0] for number, row in rows.items() if row}


def test_a_clean_sale_is_clean(card: SaleCard) -> None:
    report = audit_of(card)
    assert report["ok"] is True
    assert [each for each in report["invariants"] if not each["ok"]] == []
    names = ("total", "available", "held", "sold", "decided", "orders_held", "units_held", "admitted", "queued")
    assert [report["counts"][name] for name in names] == [3, 1, 2, 0, 2, 2, 2, 2, 0]


def test_a_sale_under_way_is_clean(card: SaleCard) -> None:
    queue(card, "eve", "joe")
    lock = held_lock(card.sku)
    take(lock, batch=1)
    counts = assert_books_balance(card)
    assert [counts[name] for name in ("queued", "waiting", "in_flight", "admitted", "decided")] == [2, 1, 1, 4, 2]
    lock.release()


def test_a_sale_that_sold_out_is_clean(card: SaleCard) -> None:
    queue(card, "eve", "joe", "kim")
    settle_line(card)
    counts = assert_books_balance(card)
    assert [counts[name] for name in ("available", "orders_held", "orders_sold_out")] == [0, 3, 2]


def test_without_damage_the_queries_find_nothing(card: SaleCard) -> None:
    """The control of the controls."""
    assert broken_after(card, []) == {}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_to_the_books_is_named(card: SaleCard, what: str) -> None:
    number, damage = DAMAGE[what]
    found = broken_after(card, damage)
    assert list(found) == [number]
    assert found[number]
    assert_books_balance(card)  # the damage was rolled back


@pytest.mark.parametrize("what", LOSS)
def test_damage_to_the_line_is_named(card: SaleCard, what: str) -> None:
    number, damage = LOSS[what]
    if number in {"I4", "I17"}:
        queue(card, "eve", "joe")
        lock = held_lock(card.sku)
        take(lock, batch=1)
        lock.release()
    assert broken(card) == []
    run(*damage(card.sku))
    assert broken(card) == [number]


def test_every_invariant_has_its_control(card: SaleCard) -> None:
    tried = {number for number, _ in (*DAMAGE.values(), *LOSS.values())}
    assert {each["id"] for each in audit_of(card)["invariants"]} == tried


def test_damage_turns_the_whole_report(card: SaleCard) -> None:
    run(("HINCRBY", keys.stock(card.sku), "queued", 1))
    report = audit(scope_of(card))
    assert report["ok"] is False
    assert [each["detail"] for each in report["invariants"] if not each["ok"]] == ["1 units queued at rest"]
