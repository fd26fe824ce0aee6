"""Adds up the ledger to the balance behind each of some movements. Reads only, one statement however many there are."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

# What came before the page is one sum a SKU; within it the sum runs. Filters of the page leave nothing out of it.
BALANCES = """
WITH page AS (
    SELECT stock_id, min(id) AS first, max(id) AS last FROM inventory_stockmovement WHERE id = ANY(%(ids)s)
    GROUP BY stock_id
), running AS (
    SELECT m.id, before.units + sum(m.delta) OVER (PARTITION BY m.stock_id ORDER BY m.id) AS balance
    FROM page CROSS JOIN LATERAL (
        SELECT coalesce(sum(b.delta), 0) AS units FROM inventory_stockmovement b
        WHERE b.stock_id = page.stock_id AND b.id < page.first
    ) before
    JOIN inventory_stockmovement m ON m.stock_id = page.stock_id AND m.id BETWEEN page.first AND page.last
)
SELECT id, balance FROM running WHERE id = ANY(%(ids)s)
"""


def balances(movement_ids: Sequence[int]) -> dict[int, int]:
    """Return the free units of its SKU after each movement, by the ledger alone."""
    if not movement_ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(BALANCES, {"ids": list(movement_ids)})
        return {int(number): int(balance) for number, balance in cursor.fetchall()}
