"""A reconciler that hears of a stop only when its round is over: `-m tests.support.crashes.deaf_reconciler`.
Never runs outside the control of what a stop in the middle of a round costs.
"""

from __future__ import annotations

from typing import Any

import django

django.setup()

from django.core.management import call_command  # noqa: E402 - needs Django set up, as what follows does

from inventory.redis import Client  # noqa: E402
from workers.reconciler.loop import Reconciler  # noqa: E402

listening = Reconciler.__init__


def deaf(self: Reconciler, client: Client, **named: Any) -> None:
    """As the reconciler's own, but never told to stop."""
    listening(self, client, **{**named, "stopping": lambda: False})


if __name__ == "__main__":
    Reconciler.__init__ = deaf  # type: ignore[method-assign]
    call_command("run_worker", "reconciler")
