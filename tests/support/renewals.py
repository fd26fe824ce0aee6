"""Lets the watchdog renew a lock when a test wants it to. Never renews by itself: what it does is the watchdog's."""

from __future__ import annotations

import time
from collections.abc import Callable

from inventory.locks.base import AnyLock
from inventory.locks.watchdog import WATCHDOG
from tests.support.waiting import wait_until


def renew_now(lock: AnyLock) -> None:
    """Let the renewal of `lock` be due: by itself it is at a third of a life, and long lives outlast a standstill."""
    hold = lock.hold
    if hold is not None:
        hold.renew_at = time.monotonic()
        WATCHDOG.add(hold)


def renew_until(condition: Callable[[], object], *, lock: AnyLock, what: str) -> None:
    """Let `lock` be renewed until `condition` is true: a machine that stands still may keep one of them from it."""

    def look() -> object:
        seen = condition()
        if not seen:
            renew_now(lock)
        return seen

    wait_until(look, what=what)
