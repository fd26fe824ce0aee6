"""Waits for a condition instead of guessing how long something takes. Never sleeps longer than a blink.

Never asserts how fast the machine is: the bound is there for what would never happen, and far above what a slow machine
takes. A test of a promise about time counts calls, compares moments that the stores have kept, or takes the quickest of
several tries: what the shop waits for, it waits for in each of them, and a busy machine only adds to some.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")
BLINK_SECONDS = 0.01
PATIENCE_SECONDS = 120.0
TRIES = 20


def wait_until(
    condition: Callable[[], Seen], *, timeout_seconds: float = PATIENCE_SECONDS, what: str | Callable[[], str] = ""
) -> Seen:
    """Return the first true value of `condition`; fail when none came within `timeout_seconds`, and say `what`."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() >= deadline:
            said = what() if callable(what) else what or str(condition)
            raise AssertionError(f"{said} did not come true within {timeout_seconds:g} s; last: {seen!r}")
        time.sleep(BLINK_SECONDS)


def seconds_of(call: Callable[[], object]) -> float:
    """Return how long `call` took."""
    began = time.monotonic()
    call()
    return time.monotonic() - began


def assert_waits_at_most(seconds: float, measure: Callable[[], float]) -> None:
    """Fail unless `measure`, which returns how long something took, once returns less than `seconds`.

    The first that does ends it, so on a machine that is free it is called once.
    """
    took: list[float] = []
    while not took or took[-1] >= seconds:
        assert len(took) < TRIES, f"never less than {seconds:g} s: {took}"
        took.append(measure())
