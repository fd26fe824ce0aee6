"""Measures how long an expirer takes for many holds that are due at once: they are made by the real settler.
Never moves a hold's end by hand: it waits until it is over.
"""

from __future__ import annotations

import time
from functools import partial

from inventory.redis import connect
from loadtest.bench.gate.settlement import BATCH, CLIENT_TIMEOUT_SECONDS, empty_line, fill_line, warm_settler
from loadtest.bench.harness.fixtures import Fixture
from loadtest.bench.harness.machine import one_row
from loadtest.bench.harness.timing import wait_for
from loadtest.bench.load.loop import LoadFailed
from workers.expirer import Expirer

# Long enough to settle all of them before the first is due.
HOLD_SECONDS = 4
MAX_SECONDS = 60.0
LEFT = (
    "SELECT count(*), max(hold_expires_at) <= clock_timestamp() FROM shop_order WHERE sale_id = %s AND state = 'held'"
)


def make_due(fixture: Fixture, *, holds: int) -> None:
    """Let the settler give `holds` holds of `fixture` (hold_seconds: HOLD_SECONDS), and wait until all are over."""
    client = connect(timeout_seconds=CLIENT_TIMEOUT_SECONDS)
    with warm_settler(client, fixture, batch=BATCH, warm_up=0) as settler:
        fill_line(client, fixture, count=holds)
        empty_line(settler, count=holds)
    every = (holds, True)
    wait_for(every, partial(holds_left, fixture), seconds=HOLD_SECONDS + MAX_SECONDS, what="holds, and whether over")


def holds_left(fixture: Fixture) -> tuple[int, bool]:
    """Return how many orders are held, and whether the last hold is over."""
    count, over = one_row(LEFT, fixture.sale_id)
    return count, bool(over)


def expiry_seconds(fixture: Fixture, *, holds: int) -> float:
    """Run an expirer that has not looked yet until `holds` holds have ended; return the seconds. Raises LoadFailed."""
    expirer = Expirer(stopping=lambda: False)
    try:
        began, ended = time.monotonic(), 0
        while ended < holds:
            ended += expirer.work_once()
            if time.monotonic() - began > MAX_SECONDS:
                raise LoadFailed(f"only {ended} of {holds} holds have ended after {MAX_SECONDS:g} s")
        return time.monotonic() - began
    finally:
        expirer.close()
