"""A settler without one of its guards: `python -m tests.crashes.unguarded_settler GUARD`; '' leaves all of them on.
Never runs outside the controls, which need a process to kill and freeze. Called by fault_shop.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import django

django.setup()

from django.core.management import call_command  # noqa: E402 - needs Django set up, as what follows does

from inventory import ledger, redis  # noqa: E402
from shop import orders  # noqa: E402
from tests.crashes.other_scripts import run_instead, without  # noqa: E402
from workers import settler  # noqa: E402

FOUND = "request_id = ANY(%(request_ids)s::text[])"
IN_FLIGHT = "redis.call('ZADD', KEYS[3], unpack(moved))"


def forget_fence() -> None:
    """Let a holder write whatever the stock row has seen."""
    ledger.CLAIM = without(ledger.CLAIM, " AND fence <= %(fence)s")


def forget_outcomes() -> None:
    """Let settlement no longer find the requests that are decided already."""
    assert orders.DECIDED.count(FOUND) == 1
    orders.DECIDED = orders.DECIDED.replace(FOUND, f"{FOUND} AND false")


def lose_flights() -> None:
    """Let `take` hand requests out without writing down that they are in flight."""
    run_instead("take", without(redis.script_text("take"), IN_FLIGHT), patch=setattr)


def catch_nothing() -> None:
    """Let an unexpected error of one turn go through all of the settler."""
    settler.Exception = type("Never", (Exception,), {})  # type: ignore[attr-defined]


GUARDS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "fence": forget_fence,
    "unique id": forget_outcomes,
    "in-flight record": lose_flights,
    "catching": catch_nothing,
}

if __name__ == "__main__":
    GUARDS[sys.argv[1]]()
    call_command("run_worker", "settler")
