"""A web process whose pages, payments and staff share one pool: `-m tests.support.crashes.shared_pool shared PORT`.
With `own` instead of `shared` each has its own, as in the shop. Never runs outside the control.
"""

from __future__ import annotations

import sys

import django

django.setup()

from django.core.management import call_command  # noqa: E402 - needs Django set up, as what follows does

from shop.gate import pages  # noqa: E402
from shop.gate.server.protocol import GateProtocol  # noqa: E402
from shop.stripe import calls  # noqa: E402


def share_one_pool() -> None:
    """Let everything wait in one pool without a bound, and begin it although its caller has hung up."""
    pages.SIZES[pages.PAGES] = (8, 1_000_000)
    pages.pool_of = lambda _scope: pages.PAGES
    GateProtocol._signal_hung_up = lambda _connection: None  # type: ignore[method-assign]


if __name__ == "__main__":
    if sys.argv[1] == "shared":
        share_one_pool()
    else:
        calls.ANSWER_SECONDS = 30  # no payment gives up before its provider goes on, on a machine that is slow
    call_command("run_web", port=int(sys.argv[2]))
