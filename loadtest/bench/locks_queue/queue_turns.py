"""Measures one queue: how many tasks a second go in, and how many are taken, done and removed for good.
What it opens stays open until its process ends.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.locks_queue.queue_sides import BATCH, AnyQueue, open_queue


@dataclass
class Filled:
    """An open queue and how many tasks lie in it."""

    queue: AnyQueue
    depth: int = 0

    def enqueue(self) -> int:
        """Put a batch in."""
        self.queue.enqueue()
        self.depth += BATCH
        return BATCH

    def work(self) -> int:
        """Work a batch. Raises LoadFailed when it came back short: then something else was measured."""
        worked = self.queue.work()
        if worked != BATCH:
            raise LoadFailed(f"{worked} of {BATCH} tasks came back, with {self.depth} in the queue")
        self.depth -= worked
        return worked


@cache
def _filled(side: str) -> Filled:
    return Filled(open_queue(side))


def fill(*, side: str, depth: int) -> int:
    """Put tasks in until `depth` lie in the queue; return how many do."""
    filled = _filled(side)
    while filled.depth < depth:
        filled.enqueue()
    return filled.depth


def enqueued_per_second(*, side: str, seconds: float) -> float:
    """Enqueue batches for `seconds`; return how many tasks a second."""
    filled, tasks = _filled(side), 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        tasks += filled.enqueue()
    return tasks / took


def worked_per_second(*, side: str, seconds: float) -> float:
    """Take and settle batches for `seconds`, or until fewer than two are left; return how many tasks a second."""
    filled, tasks = _filled(side), 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < seconds and filled.depth >= 2 * BATCH:
        tasks += filled.work()
    return tasks / took
