"""Copies of the tables without triggers, into which the rows of a sale are written by plain statements: the limit.
Never touches the shop's own tables but to read them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from django.db import connection, transaction

BATCH = 500
TABLES = {
    "raw_order": "shop_order",
    "raw_event": "shop_orderevent",
    "raw_movement": "inventory_stockmovement",
}
COPIES = (
    "INSERT INTO raw_order SELECT * FROM shop_order WHERE id = ANY(%(ids)s) ORDER BY id",
    "INSERT INTO raw_event SELECT * FROM shop_orderevent WHERE order_id = ANY(%(ids)s) ORDER BY id",
    "INSERT INTO raw_movement SELECT m.* FROM inventory_stockmovement m JOIN shop_order o USING (request_id) "
    "WHERE o.id = ANY(%(ids)s) ORDER BY m.id",
)
EXPIRE = (
    "UPDATE raw_order SET state = 'expired', reason = 'not paid in time', changed_at = clock_timestamp() "
    "WHERE id = ANY(%(ids)s)",
    "INSERT INTO raw_event (order_id, from_state, to_state, at, actor, reason) "
    "SELECT id, 'held', state, changed_at, 'expirer', reason FROM raw_order WHERE id = ANY(%(ids)s) ORDER BY id",
    "INSERT INTO raw_movement (stock_id, kind, delta, request_id, actor, reason) "
    "SELECT m.stock_id, 'release', -m.delta, m.request_id, 'expirer', 'expired' FROM raw_movement m "
    "JOIN raw_order o USING (request_id) WHERE o.id = ANY(%(ids)s)",
)


def make_raw_tables() -> None:
    """Make the copies, empty: the same columns, indexes and constraints."""
    with connection.cursor() as cursor:
        for copy, table in TABLES.items():
            cursor.execute(f"CREATE TABLE {copy} (LIKE {table} INCLUDING ALL)")
            # Rows that are copied bring their ids; those that are written here must not meet them.
            cursor.execute(f"ALTER TABLE {copy} ALTER COLUMN id RESTART WITH 1000000000")


def copied_per_second(sale_id: int, *, newest: int) -> float:
    """Copy the rows of the `newest` orders of a sale; return how many orders that were a second."""
    ids = _newest(sale_id, count=newest)
    return len(ids) / _run(COPIES, ids)


def expiry_seconds(sale_id: int, *, newest: int) -> float:
    """Copy the rows of the `newest` orders of a sale, then end their holds there; return the seconds of the latter."""
    ids = _newest(sale_id, count=newest)
    _run(COPIES, ids)
    return _run(EXPIRE, ids)


def _run(statements: tuple[str, ...], ids: list[int]) -> float:
    began = time.monotonic()
    for batch in _batches(ids):
        with transaction.atomic(), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement, {"ids": batch})
    return time.monotonic() - began


def _newest(sale_id: int, *, count: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM shop_order WHERE sale_id = %s ORDER BY id DESC LIMIT %s", [sale_id, count])
        return sorted(row[0] for row in cursor.fetchall())


def _batches(ids: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]
