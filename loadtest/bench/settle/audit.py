"""Measures a full audit of a sale with many orders in every stage of their life.
Never believes one that finds a fault.
"""

from __future__ import annotations

import time
from dataclasses import asdict

from django.db import connection

from inventory.audit.run import audit
from loadtest.bench.harness.books import FilledBooks

COUNTS = (
    "SELECT count(*), sum(quantity) FROM shop_order WHERE sale_id = %(sale_id)s",
    "SELECT count(*) FROM shop_orderevent e JOIN shop_order o ON o.id = e.order_id WHERE o.sale_id = %(sale_id)s",
    "SELECT count(*), sum(delta) FROM inventory_stockmovement WHERE stock_id = %(stock_id)s",
)


def audit_seconds(books: FilledBooks) -> tuple[float, list[str]]:
    """Audit the sale once; return the seconds, and a sentence for each invariant that is broken."""
    began = time.monotonic()
    report = audit(books.scope)
    seconds = time.monotonic() - began
    return seconds, [
        f"{each['id']} {each['name']}: {each['detail']}" for each in report["invariants"] if not each["ok"]
    ]


def count_seconds(books: FilledBooks) -> float:
    """Count the rows of the sale once, a statement a table; return the seconds."""
    began = time.monotonic()
    with connection.cursor() as cursor:
        for statement in COUNTS:
            cursor.execute(statement, asdict(books.scope))
            cursor.fetchone()
    return time.monotonic() - began


def analyse() -> None:
    """Let PostgreSQL look at its tables, as its autovacuum does within a minute of so many new rows."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
