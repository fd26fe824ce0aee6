"""The books that the benchmark fills are sound, so that what is measured is an audit that finds nothing.
Real servers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta

import pytest
from django.db import connection, transaction

from inventory.audit import queries
from inventory.audit.run import read_books
from inventory.postgres import Cursor
from loadtest.bench.harness.fixtures import LATE, REFUNDED, fill_books
from shop.models import Sale
from shop.sales.audit import audit_sale
from tests.support.query_plans import no_new_statistics, rows_read

pytestmark = pytest.mark.usefixtures("shop_database")
ORDERS = 2_000


def test_the_books_are_filled_and_sound(new_sku: Callable[[], str]) -> None:
    books = fill_books(new_sku(), orders=ORDERS)
    report = audit_sale(books.slug, thorough=True)
    assert [each for each in report["invariants"] if not each["ok"]] == []
    counts = report["counts"]
    names = ("held", "paid", "expired", "cancelled", "sold_out", "refunded")
    assert {name: counts[f"orders_{name}"] for name in names} == {
        "held": ORDERS // 5, "paid": ORDERS * 2 // 5 - REFUNDED + LATE, "expired": ORDERS * 15 // 100 - LATE,
        "cancelled": ORDERS // 20, "sold_out": ORDERS // 5, "refunded": REFUNDED,
    }  # fmt: skip
    assert counts["decided"] == counts["admitted"] == ORDERS
    assert counts["available"] + counts["held"] + counts["sold"] == counts["total"]


def test_an_audit_may_take_longer_than_other_statements(new_sku: Callable[[], str]) -> None:
    """A sale with 700,000 orders took more than 15 s on a slow machine, and its audit had no answer."""
    books = fill_books(new_sku(), orders=SMALL)
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '15s'")
        with transaction.atomic():
            read_books(cursor, books.scope)
            assert shown(cursor) == "2min"
        assert shown(cursor) == "15s"
        cursor.execute("RESET statement_timeout")


def shown(cursor: Cursor) -> str:
    """Return how long a statement may take now."""
    cursor.execute("SHOW statement_timeout")
    (found,) = cursor.fetchone()
    return str(found)


SMALL, OTHERS = 1_000, 20_000
TABLES = ("shop_order", "shop_orderevent", "shop_payment")
# Orders of another sale, with their history (by a trigger), and a payment each.
OTHER_ORDERS = """
INSERT INTO shop_order (request_id, sale_id, buyer, buyer_limit, quantity, seq, state, reason, unit_price, currency)
SELECT %(sale_id)s || '-other-' || no, %(sale_id)s, 'buyer-' || no, 1, 1, no, 'refused', '', 1, 'EUR'
FROM generate_series(1, %(orders)s) AS no
"""
OTHER_PAYMENTS = """
INSERT INTO shop_payment (order_id, provider, reference, amount, currency, state, reason)
SELECT id, 'sandbox', 'of-' || request_id, 1, 'EUR', 'declined', '' FROM shop_order WHERE sale_id = %(sale_id)s
"""


def sale_after(sale_id: int) -> int:
    """Make the next sale of a SKU; return its id."""
    sale = Sale.objects.get(pk=sale_id)
    sale.pk, sale.slug, sale.opens_at = None, f"{sale.slug}-again", sale.closes_at
    sale.closes_at += timedelta(hours=1)
    sale.save(force_insert=True)
    return int(sale.pk)


@pytest.mark.parametrize("is_analyzed", [False, True], ids=["old statistics", "fresh statistics"])
def test_the_orders_of_other_sales_are_not_read(new_sku: Callable[[], str], is_analyzed: bool) -> None:
    """Those that lie between two sales of the SKU neither."""
    with nullcontext() if is_analyzed else no_new_statistics(*TABLES):
        assert_others_are_not_read(new_sku, is_analyzed=is_analyzed)


def assert_others_are_not_read(new_sku: Callable[[], str], *, is_analyzed: bool) -> None:
    books, other = (fill_books(new_sku(), orders=SMALL) for _ in range(2))
    with transaction.atomic(), connection.cursor() as cursor:
        for sale_id, orders in ((other.scope.sale_id, OTHERS), (sale_after(books.scope.sale_id), 1)):
            for statement in (OTHER_ORDERS, OTHER_PAYMENTS):
                cursor.execute(statement, {"sale_id": sale_id, "orders": orders})
        if is_analyzed:
            cursor.execute(f"ANALYZE {', '.join(TABLES)}")
        before = rows_read(*TABLES)
        assert [each for each in read_books(cursor, books.scope).findings if not each.ok] == []
        # Orders are read for themselves, their history and their payments.
        assert rows_read(*TABLES) - before < 10 * SMALL
        transaction.set_rollback(True)


def test_without_their_numbers_every_order_would_be_read(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the statement as a join of the stock's sales with all orders."""
    books, other = (fill_books(new_sku(), orders=SMALL) for _ in range(2))
    joined = queries.BOOKS.replace(queries.OF_SKU, "stock_id = %(stock_id)s").replace(queries.OF_ORDERS, "true")
    assert joined != queries.BOOKS
    monkeypatch.setattr(queries, "BOOKS", joined)
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in (OTHER_ORDERS, OTHER_PAYMENTS):
            cursor.execute(statement, {"sale_id": other.scope.sale_id, "orders": OTHERS})
        before = rows_read(*TABLES)
        read_books(cursor, books.scope)
        assert rows_read(*TABLES) - before > 3 * OTHERS
        transaction.set_rollback(True)
