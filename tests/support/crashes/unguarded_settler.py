"""A settler without one of its guards: `-m tests.support.crashes.unguarded_settler GUARD`; '' leaves all of them on.
Never runs outside the controls, which need a process to kill and freeze.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import django

django.setup()

from django.conf import settings  # noqa: E402 - needs Django set up, as what follows does
from django.core.management import call_command  # noqa: E402

from inventory import postgres  # noqa: E402
from loadtest.mutants.guards import FENCE_OF_CLAIM, SEARCH_FOR_ORDERS  # noqa: E402
from loadtest.mutants.layers import Script  # noqa: E402
from workers import settler  # noqa: E402

IN_FLIGHT = Script(
    says="the record of what is handed out", script="take", part="redis.call('ZADD', KEYS[3], unpack(moved))"
)


def catch_nothing() -> None:
    """Let an unexpected error of one turn go through all of the settler."""
    settler.Exception = type("Never", (Exception,), {})  # type: ignore[attr-defined]


def rest_in_transactions() -> None:
    """Let a transaction stand still for as long as it likes."""
    settings.DATABASE_TIMEOUTS += " -c idle_in_transaction_session_timeout=0"
    postgres.MAX_TRANSACTION_SECONDS = 0


GUARDS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "fence": lambda: FENCE_OF_CLAIM.take_away(setattr),
    "unique id": lambda: SEARCH_FOR_ORDERS.take_away(setattr),
    "in-flight record": lambda: IN_FLIGHT.take_away(setattr),
    "catching": catch_nothing,
    "idle timeout": rest_in_transactions,
}

if __name__ == "__main__":
    GUARDS[sys.argv[1]]()
    call_command("run_worker", "settler")
