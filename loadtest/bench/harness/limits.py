"""Measures what the parts below the shop can do at most: PostgreSQL by plain statements without triggers, the disk
alone, Redis alone without a script. Never touches the shop's keys, nor its tables but to read them.
"""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import asdict
from pathlib import Path

from django.db import connection, transaction

from inventory import postgres, redis
from inventory.audit.run import Scope

BATCH = 500
PAGE_BYTES = 8192
PER_TRIP = 512
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
COUNTS = (
    "SELECT count(*), sum(quantity) FROM shop_order WHERE sale_id = %(sale_id)s",
    "SELECT count(*) FROM shop_orderevent e JOIN shop_order o ON o.id = e.order_id WHERE o.sale_id = %(sale_id)s",
    "SELECT count(*), sum(delta) FROM inventory_stockmovement WHERE stock_id = %(stock_id)s",
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
    for start in range(0, len(ids), BATCH):
        with transaction.atomic(), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement, {"ids": ids[start : start + BATCH]})
    return time.monotonic() - began


def _newest(sale_id: int, *, count: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM shop_order WHERE sale_id = %s ORDER BY id DESC LIMIT %s", [sale_id, count])
        return sorted(row[0] for row in cursor.fetchall())


def count_seconds(scope: Scope) -> float:
    """Count the rows of a sale once, a statement a table; return the seconds."""
    began = time.monotonic()
    with connection.cursor() as cursor:
        for statement in COUNTS:
            cursor.execute(statement, asdict(scope))
            cursor.fetchone()
    return time.monotonic() - began


def commit_waits_ms(*, per_second: float, seconds: float) -> list[float]:
    """Write a row at an even pace, each in a transaction of its own; return from when each was due to its COMMIT."""
    waits = []
    with postgres.connect() as database:
        database.execute("CREATE TABLE IF NOT EXISTS raw_commit (at timestamptz)")
        began = time.monotonic()
        for number in range(int(per_second * seconds)):
            due = began + number / per_second
            time.sleep(max(0.0, due - time.monotonic()))
            database.execute("INSERT INTO raw_commit VALUES (now())")
            waits.append((time.monotonic() - due) * 1000)
    return waits


def syncs_per_second(folder: Path, *, seconds: float) -> float:
    """Write a page behind the other and wait for the disk each time; return how often a second."""
    path, page, done = folder / "synced", b"\0" * PAGE_BYTES, 0
    handle = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        began = time.monotonic()
        while (took := time.monotonic() - began) < seconds:
            os.write(handle, page)
            os.fdatasync(handle)
            done += 1
        return done / took
    finally:
        os.close(handle)
        path.unlink()


def pipelined_per_second(*, seconds: float) -> float:
    """Put requests into a sorted set and a hash, so many a round trip, as any line must; return them a second."""
    client, done = redis.connect(), 0
    line, records = "raw:line", "raw:records"
    began = time.monotonic()
    while (took := time.monotonic() - began) < seconds:
        names = [secrets.token_urlsafe(16) for _ in range(PER_TRIP)]
        scored = [part for number, name in enumerate(names, start=done) for part in (number, name)]
        noted = [part for number, name in enumerate(names, start=done) for part in (name, f"q|{number}|1|1|{name}")]
        redis.run_commands(client, [("ZADD", line, *scored), ("HSET", records, *noted)])
        done += PER_TRIP
    redis.run_commands(client, [("UNLINK", line, records)])
    return done / took
