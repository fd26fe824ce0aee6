"""PostgreSQL itself refuses what the code must never do, and movements are written once. Real PostgreSQL.
Every test has a SKU of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, ProgrammingError, connection, transaction
from django.utils import timezone

from inventory.models import Stock
from inventory.postgres import Connection
from shop.models import Sale
from shop.sales.catalogue import SaleCard
from tests.support.road import own_connection, queue, settle_line
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")

STOCK, SALE, ORDER, MOVEMENT = "inventory_stock", "shop_sale", "shop_order", "inventory_stockmovement"
MOVE = (
    "INSERT INTO inventory_stockmovement (stock_id, kind, delta, request_id, actor, reason)"
    " SELECT id, {}, 'test', '' FROM inventory_stock WHERE sku = %(sku)s"
)
# What the database must refuse, by the name of the rule that refuses it; %(sku)s has one unit held and one free.
FORBIDDEN = {
    "stock_available_not_negative": "UPDATE inventory_stock SET available = -1, held = 3 WHERE sku = %(sku)s",
    "stock_held_not_negative": "UPDATE inventory_stock SET held = -1, available = 3 WHERE sku = %(sku)s",
    "stock_sold_not_negative": "UPDATE inventory_stock SET sold = -1, available = 2 WHERE sku = %(sku)s",
    "stock_every_unit_is_somewhere": "UPDATE inventory_stock SET available = available + 1 WHERE sku = %(sku)s",
    "inventory_stock_sku_": "INSERT INTO inventory_stock (sku, total, available, held, sold, fence, version)"
    " VALUES (%(sku)s, 0, 0, 0, 0, 0, 0)",
    "movement_once_per_request_and_kind": MOVE.format("'hold', -1, %(request_id)s"),
    "movement_of_a_request_names_it": MOVE.format("'hold', -1, NULL"),
    "movement_has_the_sign_of_its_kind": MOVE.format("'hold', 1, 'another'"),
    "sale_ends_after_it_begins": "UPDATE shop_sale SET closes_at = opens_at WHERE slug = %(slug)s",
    "sale_limit_at_least_one": "UPDATE shop_sale SET per_buyer_limit = 0 WHERE slug = %(slug)s",
    "sale_price_not_negative": "UPDATE shop_sale SET price = -0.01 WHERE slug = %(slug)s",
    "order_of_at_least_one": "UPDATE shop_order SET quantity = 0 WHERE request_id = %(request_id)s",
    "order_held_has_an_end": "UPDATE shop_order SET hold_expires_at = NULL WHERE request_id = %(request_id)s",
    "order_state_is_known": "UPDATE shop_order SET state = 'queued' WHERE request_id = %(request_id)s",
    "order_once_per_request": "INSERT INTO shop_order (request_id, sale_id, buyer, buyer_limit, quantity, seq, state,"
    " reason, unit_price, currency) SELECT request_id, sale_id, 'bob', 1, 1, 9, 'refused', '', 1, 'EUR'"
    " FROM shop_order WHERE request_id = %(request_id)s",
}
# Django gives these to every positive number and every slug; the rules above say the same and more.
OF_DJANGO = {"inventory_stock_total_check", "inventory_stock_available_check", "inventory_stock_held_check",
             "inventory_stock_sold_check", "shop_sale_hold_seconds_check", "shop_sale_per_buyer_limit_check",
             "shop_sale_room_check", "shop_sale_per_network_limit_check", "shop_sale_pass_rush_check",
             "shop_order_quantity_check",
             "shop_order_buyer_limit_check", "shop_sale_slug_key"}  # fmt: skip


@pytest.fixture
def shop(new_sku: Callable[[], str]) -> dict[str, Any]:
    """Return the names of a sale with two units, one of them held."""
    card = make_sale(new_sku(), units=2)
    (request_id,) = queue(card, "ann")
    settle_line(card)
    return {"sku": card.sku, "slug": card.slug, "request_id": request_id}


def refused_by(error: Exception) -> str:
    """Return the name of the constraint that refused."""
    assert isinstance(error.__cause__, psycopg.Error)
    return error.__cause__.diag.constraint_name or ""


def execute(statement: str, values: dict[str, Any] | None = None) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, values)


@pytest.mark.parametrize("rule", FORBIDDEN)
def test_the_database_refuses(shop: dict[str, Any], rule: str) -> None:
    with pytest.raises(IntegrityError) as refused:
        execute(FORBIDDEN[rule], shop)
    # A rule of Django's own ("…_check") may be looked at before ours of the same meaning.
    assert refused_by(refused.value).startswith(rule) or refused_by(refused.value) in OF_DJANGO


def test_every_rule_of_the_database_is_tried() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conname FROM pg_constraint WHERE contype IN ('c', 'u', 'x') AND conrelid = ANY(%s::regclass[])",
            [[STOCK, SALE, ORDER, MOVEMENT]],
        )
        rules = {row[0] for row in cursor.fetchall()}
    untried = {rule for rule in rules - OF_DJANGO if not any(rule.startswith(name) for name in FORBIDDEN)}
    assert untried == {"sales_of_one_sku_never_overlap"}  # tried below


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE inventory_stockmovement SET delta = delta",
        "DELETE FROM inventory_stockmovement",
        "TRUNCATE inventory_stockmovement",
    ],
)
def test_movements_are_refused_a_change_by_the_missing_right(shop: dict[str, Any], statement: str) -> None:
    with pytest.raises(ProgrammingError, match="permission denied"):
        execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE inventory_stockmovement SET delta = delta",
        "DELETE FROM inventory_stockmovement",
        "TRUNCATE inventory_stockmovement",
    ],
)
def test_movements_are_refused_a_change_by_the_trigger_too(shop: dict[str, Any], statement: str) -> None:
    # The table is locked first: an automatic ANALYZE that has begun waits for a GRANT, and the lock waits for it.
    lock = "ALTER TABLE inventory_stockmovement ENABLE TRIGGER movement_rows_never_change"
    with pytest.raises(ProgrammingError, match="append-only"):
        execute(f"{lock}; GRANT UPDATE, DELETE, TRUNCATE ON inventory_stockmovement TO CURRENT_USER; {statement}")


def test_a_movement_may_be_written(shop: dict[str, Any]) -> None:
    """The control: the statement that the rules refuse is fine when it obeys them."""
    with transaction.atomic():
        execute(MOVE.format("'release', 1, %(request_id)s"), shop)
        transaction.set_rollback(True)


def test_the_shop_is_no_superuser() -> None:
    """The control: missing rights mean something."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        assert cursor.fetchone() == (False,)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DELETE FROM inventory_stock WHERE sku = %(sku)s", "stock .* still has movements"),
        ("DELETE FROM shop_sale WHERE slug = %(slug)s", "sale .* still has orders"),
        (
            "INSERT INTO shop_order (request_id, sale_id, buyer, buyer_limit, quantity, seq, state, reason, unit_price,"
            " currency) VALUES ('of no sale', 0, 'bob', 1, 1, 9, 'refused', '', 1, 'EUR')",
            "an order names a sale that does not exist",
        ),
        (
            "INSERT INTO inventory_stockmovement (stock_id, kind, delta, request_id, actor, reason)"
            " VALUES (0, 'hold', -1, 'of no stock', 'test', '')",
            "a movement names a stock that does not exist",
        ),
    ],
)
def test_orders_and_movements_refer_to_what_is_there(shop: dict[str, Any], statement: str, says: str) -> None:
    with pytest.raises(IntegrityError, match=says) as refused:
        execute(statement, shop)
    assert isinstance(refused.value.__cause__, psycopg.errors.ForeignKeyViolation)


def test_a_delete_waits_for_an_order_that_is_being_written(shop: dict[str, Any], new_sku: Callable[[], str]) -> None:
    """The control: without a look after the wait, the delete would see no order and leave one without a sale."""
    card = make_sale(new_sku(), units=1)
    order = (
        "INSERT INTO shop_order (request_id, sale_id, buyer, buyer_limit, quantity, seq, state, reason, unit_price,"
        " currency) VALUES (%s, %s, 'bob', 1, 1, 9, 'refused', '', 1, 'EUR')"
    )
    delete = "DELETE FROM shop_saleterms WHERE sale_id = %(id)s; DELETE FROM shop_sale WHERE id = %(id)s"
    with own_connection() as writer, ThreadPoolExecutor(1) as threads:
        with writer.transaction():
            writer.execute(order, [f"{card.sale_id:x}-order", card.sale_id])
            deleting = threads.submit(execute_elsewhere, delete, {"id": card.sale_id})
            wait_until(lambda: is_somebody_waiting(writer), what="the delete waits")
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match="still has orders"):
            deleting.result(timeout=120)
    assert Sale.objects.filter(pk=card.sale_id).exists()


def execute_elsewhere(statement: str, values: dict[str, Any]) -> None:
    with own_connection() as other, other.transaction(), psycopg.ClientCursor(other) as cursor:
        cursor.execute(statement, values)


def is_somebody_waiting(writer: Connection) -> bool:
    """Say so on another connection: within a transaction the list of activities stays as it was first seen."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
    with connection.cursor() as cursor:
        cursor.execute(waiting, [writer.info.backend_pid])
        return cursor.fetchone() is not None


def another_sale(card: SaleCard, *, opens_at: datetime, closes_at: datetime) -> Sale:
    first = Sale.objects.get(pk=card.sale_id)
    return Sale.objects.create(
        slug=f"{card.sku}-{Sale.objects.count()}",
        product=first.product,
        stock=first.stock,
        title="Paper kite, again",
        price=1,
        opens_at=opens_at,
        closes_at=closes_at,
    )


@pytest.mark.parametrize(("begin", "end"), [(-1, 1), (0.25, 0.75), (0, 1), (0.999999, 2), (-1, 2), (-1, 0.000001)])
def test_overlapping_sales_of_one_sku_are_refused(new_sku: Callable[[], str], begin: float, end: float) -> None:
    card = make_sale(new_sku(), units=1)
    length = card.closes_at - card.opens_at
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        another_sale(card, opens_at=card.opens_at + begin * length, closes_at=card.opens_at + end * length)
    assert refused_by(refused.value) == "sales_of_one_sku_never_overlap"


def test_a_sale_that_staff_closed_holds_no_window(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1, opens_in_seconds=3600, closes_in_seconds=7200)
    window = {"opens_at": card.opens_at, "closes_at": card.closes_at}
    # The control: while it is only paused, the window is its own.
    Sale.objects.filter(pk=card.sale_id).update(operator_state="paused")
    with pytest.raises(IntegrityError), transaction.atomic():
        another_sale(card, **window)
    Sale.objects.filter(pk=card.sale_id).update(operator_state="closed")
    another_sale(card, **window)
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        Sale.objects.filter(pk=card.sale_id).update(operator_state="on")
    assert refused_by(refused.value) == "sales_of_one_sku_never_overlap"


def test_sales_of_one_sku_may_touch(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    another_sale(card, opens_at=card.closes_at, closes_at=card.closes_at + timedelta(hours=1))
    another_sale(card, opens_at=card.opens_at - timedelta(hours=1), closes_at=card.opens_at)
    assert Sale.objects.filter(stock__sku=card.sku).count() == 3


def test_sales_of_two_skus_may_overlap(new_sku: Callable[[], str]) -> None:
    one, other = make_sale(new_sku(), units=1), make_sale(new_sku(), units=1)
    assert one.opens_at < other.closes_at
    assert Stock.objects.filter(sku__in=[one.sku, other.sku]).count() == 2
    assert timezone.now() < one.closes_at
