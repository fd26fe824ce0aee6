"""Ends waits that last too long, for thousands of waiters at the price of one timer a second.
Never ends one early. Called by read_body: a timer a request cost the gate a seventh of its throughput.
"""

from __future__ import annotations

import asyncio
import time
from typing import TypeAlias

SWEEP_SECONDS = 1.0
Waiter: TypeAlias = "asyncio.Task[object]"


class Kept:
    """One wait. A class, because a generator in its place costs three times as much."""

    __slots__ = ("_deadlines", "_task")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task")
        self._task = task
        self._deadlines.begin(task)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        was_late = self._deadlines.end(self._task)
        if was_late and kind is not None and issubclass(kind, asyncio.CancelledError):
            self._task.uncancel()
            raise TimeoutError from None


class Deadlines:
    """seconds: how long a wait may last, and up to a sweep longer."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[Waiter, float] = {}
        self._late: set[Waiter] = set()
        self._sweeping = False

    def kept(self) -> Kept:
        """Raise TimeoutError in the block when it lasts too long."""
        return Kept(self)

    def begin(self, task: Waiter) -> None:
        """Let the wait of `task` last this long from now on."""
        self._until[task] = time.monotonic() + self._seconds
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    def end(self, task: Waiter) -> bool:
        """Forget `task`; say whether its wait was ended."""
        del self._until[task]
        if task not in self._late:
            return False
        self._late.remove(task)
        return True

    def _sweep(self) -> None:
        now = time.monotonic()
        for task, until in self._until.items():
            if now >= until and task not in self._late:
                self._late.add(task)
                task.cancel()
        self._sweeping = bool(self._until)
        if self._sweeping:
            asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)
