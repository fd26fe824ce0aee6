"""Waits for a condition instead of guessing how long something takes. Never sleeps longer than a blink.
Called by every test that watches another process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")
BLINK_SECONDS = 0.01


def wait_until(condition: Callable[[], Seen], *, timeout_seconds: float, what: str = "") -> Seen:
    """Return the first true value of `condition`; fail when none came within `timeout_seconds`."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what or condition} did not come true within {timeout_seconds:g} s; last: {seen!r}")
        time.sleep(BLINK_SECONDS)
