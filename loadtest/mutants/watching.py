"""Waits for a condition, with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable

BLINK_SECONDS = 0.02


class RunSpoiled(Exception):
    """This run says nothing: it could not be made as it was meant."""


def seen_within(seconds: float, condition: Callable[[], object]) -> bool:
    """Wait until `condition` is true; return whether it was within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(BLINK_SECONDS)
    return True
