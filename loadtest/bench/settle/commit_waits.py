"""Measures how long PostgreSQL takes for a transaction that writes one row: what no durable answer can be below.
Never touches a table of the shop.
"""

from __future__ import annotations

import time

from inventory.postgres import connect


def commit_waits_ms(*, per_second: float, seconds: float) -> list[float]:
    """Write a row at an even pace, each in a transaction of its own; return from when each was due to its COMMIT."""
    waits = []
    with connect() as database:
        database.execute("CREATE TABLE IF NOT EXISTS raw_commit (at timestamptz)")
        began = time.monotonic()
        for number in range(int(per_second * seconds)):
            due = began + number / per_second
            time.sleep(max(0.0, due - time.monotonic()))
            database.execute("INSERT INTO raw_commit VALUES (now())")
            waits.append((time.monotonic() - due) * 1000)
    return waits
