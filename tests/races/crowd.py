"""Lets many threads begin in the same instant, and two settlers work beside a test. Decides nothing.
Called by the races.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Event
from typing import TypeVar

from inventory import line, redis
from shop.catalogue import SaleCard
from tests.road import settler

Result = TypeVar("Result")
START_SECONDS = 30


def at_once(action: Callable[[int], Result], count: int) -> list[Result]:
    """Call `action` with 0 … count - 1, each in a thread of its own that waits until all are there."""
    barrier = Barrier(count)

    def begin(number: int) -> Result:
        barrier.wait(timeout=START_SECONDS)
        return action(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


@contextmanager
def two_settlers(*, batch: int, lock_ttl_ms: int = 5000) -> Iterator[None]:
    """Let two real settlers go round, each in a thread of its own, for the length of a block."""
    stop = Event()

    def work() -> None:
        with settler(batch=batch, lock_ttl_ms=lock_ttl_ms, stopping=stop.is_set) as worker:
            while not stop.is_set():
                if worker.work_once() == 0:
                    stop.wait(0.005)

    with ThreadPoolExecutor(2) as hands:
        working = [hands.submit(work) for _ in range(2)]
        try:
            yield
        finally:
            stop.set()
            for each in working:
                each.result(timeout=START_SECONDS)


def line_is_empty(card: SaleCard) -> bool:
    """Tell whether every admitted request of a sale's SKU has been answered."""
    look = line.check(redis.connect(), card.sku)
    return look.waiting == look.flying == 0
