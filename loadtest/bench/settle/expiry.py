"""Measures how long an expirer takes for many holds that are due at once: they are made by the real settler.
Never moves a hold's end by hand: it waits until it is over.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial

from inventory.redis import connect
from loadtest.bench.gate.settlement import BATCH, empty_line, fill_line, warm_settler
from loadtest.bench.harness.fixtures import Fixture
from loadtest.bench.harness.machine import one_row
from loadtest.bench.harness.timing import wait_for
from workers.expirer import Expirer

# Long enough to settle all of them before the first is due.
HOLD_SECONDS = 4
MAX_SECONDS = 60.0
LEFT = (
    "SELECT count(*), max(hold_expires_at) <= clock_timestamp() FROM shop_order WHERE sale_id = %s AND state = 'held'"
)


def make_due(fixture: Fixture, *, holds: int) -> None:
    """Let the settler give `holds` holds of `fixture` (hold_seconds: HOLD_SECONDS), and wait until all are over."""
    client = connect()
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
    """Run an expirer that has not looked yet until `holds` holds have ended; return the seconds."""
    with closing(Expirer(stopping=lambda: False)) as expirer:
        return empty_line(expirer, count=holds)
