"""The books that the benchmark fills are sound, so that what is measured is an audit that finds nothing.
Real servers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loadtest.bench.harness.fixtures import LATE, REFUNDED, fill_books
from shop.sales.audit import audit_sale

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
