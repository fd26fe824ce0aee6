"""Ends waits that last too long, for thousands of waiters at the price of one timer a second.
Never ends one early. Called by read_body: a timer a request cost the gate a seventh of its throughput.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

SWEEP_SECONDS = 1.0


class Deadlines:
    """seconds: how long a wait may last, and up to a sweep longer."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._sweeping = False

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Raise TimeoutError in the block when it lasts too long."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task")
        self._until[task] = time.monotonic() + self._seconds
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._late:
                raise  # somebody else's
            task.uncancel()
            raise TimeoutError from None
        finally:
            del self._until[task]
            self._late.discard(task)

    def _sweep(self) -> None:
        now = time.monotonic()
        for task, until in self._until.items():
            if now >= until and task not in self._late:
                self._late.add(task)
                task.cancel()
        self._sweeping = bool(self._until)
        if self._sweeping:
            asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)
