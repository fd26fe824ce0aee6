"""Measures what the parts below the shop can do at most: the disk alone, Redis alone without a script.
Never touches the shop's keys. The copied rows are in raw_rows.py.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from inventory.redis import connect, run_commands

PAGE_BYTES = 8192
PER_TRIP = 512
CLIENT_TIMEOUT_SECONDS = 5.0


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
    client, done = connect(timeout_seconds=CLIENT_TIMEOUT_SECONDS), 0
    line, records = "raw:line", "raw:records"
    began = time.monotonic()
    while (took := time.monotonic() - began) < seconds:
        names = [secrets.token_urlsafe(16) for _ in range(PER_TRIP)]
        scored = [part for number, name in enumerate(names, start=done) for part in (number, name)]
        noted = [part for number, name in enumerate(names, start=done) for part in (name, f"q|{number}|1|1|{name}")]
        run_commands(client, [("ZADD", line, *scored), ("HSET", records, *noted)])
        done += PER_TRIP
    run_commands(client, [("UNLINK", line, records)])
    return done / took
