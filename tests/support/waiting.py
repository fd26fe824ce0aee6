"""Waits for a condition instead of guessing how long something takes. Never sleeps longer than a few blinks.

Never asserts how fast the machine is: the bound is there for what would never happen, and far above what a slow machine
takes. A test of a promise about time counts calls, compares moments that the stores have kept, or takes the quickest of
several tries: what the shop waits for, it waits for in each of them, and a busy machine only adds to some.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from django.conf import settings

from inventory import postgres

Seen = TypeVar("Seen")
BLINK_SECONDS = 0.01
# What lasts is asked for less often: a look is a call of the shop or of its stores, and others need the cores.
PAUSE_GROWTH, MAX_PAUSE_SECONDS = 1.1, 0.04
PATIENCE_SECONDS = 120.0
TRIES = 20
# What a probe works for and rests for, again and again; and the share of a time that it may lose to others, so that the
# machine counts as free.
PROBE_SECONDS, REST_SECONDS, FREE_SHARE = 0.002, 0.02, 0.2


def lengthen_bounds(*, idle_seconds: float = 900) -> None:
    """Let PostgreSQL end what rests, or waits, in this process after minutes only: the machine may stand still.

    idle_seconds: how long a transaction may rest. Changes the settings, so it comes before the first connection.
    """
    settings.DATABASE_TIMEOUTS += (
        f" -c statement_timeout=900s -c lock_timeout=120s -c idle_in_transaction_session_timeout={idle_seconds:.0f}s"
    )
    postgres.MAX_TRANSACTION_SECONDS = 900
    settings.DATABASES["default"]["OPTIONS"].update(options=settings.DATABASE_TIMEOUTS, connect_timeout=60)


def wait_until(
    condition: Callable[[], Seen], *, timeout_seconds: float = PATIENCE_SECONDS, what: str | Callable[[], str] = ""
) -> Seen:
    """Return the first true value of `condition`; fail when none came within `timeout_seconds`, and say `what`."""
    deadline = time.monotonic() + timeout_seconds
    pause_seconds = BLINK_SECONDS
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() >= deadline:
            said = what() if callable(what) else what or str(condition)
            raise AssertionError(f"{said} did not come true within {timeout_seconds:g} s; last: {seen!r}")
        time.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * PAUSE_GROWTH, MAX_PAUSE_SECONDS)


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


@dataclass(frozen=True)
class Timed:
    """How long something took, and for how much of that time this machine kept a probe waiting."""

    seconds: float
    lost_seconds: float

    @property
    def was_free(self) -> bool:
        """Say whether the machine was free enough for the time to say something of the shop."""
        return self.lost_seconds <= FREE_SHARE * self.seconds


def timed(call: Callable[[], Seen]) -> tuple[Seen, Timed]:
    """Return what `call` returns and how long it took, with a probe alongside it."""
    over, lost = threading.Event(), [0.0]

    def probe() -> None:
        while not over.is_set():
            began, works_until = time.monotonic(), time.thread_time() + PROBE_SECONDS
            while time.thread_time() < works_until:
                pass
            over.wait(REST_SECONDS)
            lost.append(max(0.0, time.monotonic() - began - PROBE_SECONDS - REST_SECONDS))

    thread, began = threading.Thread(target=probe), time.monotonic()
    thread.start()
    try:
        found = call()
    finally:
        seconds = time.monotonic() - began
        over.set()
        thread.join()
    return found, Timed(seconds, sum(lost))


def assert_quickest_within(seconds: float, took: Sequence[Timed]) -> None:
    """Fail when all took `seconds`, and one of them met a free machine: what met none says nothing."""
    free = [each.seconds for each in took if each.was_free]
    quickest = min(each.seconds for each in took)
    print(f"{len(free)} of {len(took)} met a free machine; the quickest of all took {quickest:.2f} s")
    assert not free or quickest < seconds, took
