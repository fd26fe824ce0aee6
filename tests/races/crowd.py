"""Lets many threads begin in the same instant, and two settlers work alongside a test. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, BrokenBarrierError, Event
from typing import TypeVar

from inventory import redis
from inventory.audit import line
from shop.sales.catalogue import SaleCard
from tests.support.road import settler

Result = TypeVar("Result")
# Long enough for a machine on which everything else runs as well.
START_SECONDS = 120


def at_once(action: Callable[[int], Result], count: int) -> list[Result]:
    """Call `action` with 0 … count - 1, each in a thread of its own that waits until all are there.

    Raises what went wrong first; not that others then waited in vain for the one that failed.
    """
    barrier = Barrier(count)

    def begin(number: int) -> Result:
        barrier.wait(timeout=START_SECONDS)
        return action(number)

    with ThreadPoolExecutor(count) as pool:
        begun = [pool.submit(begin, number) for number in range(count)]
    failed = [error for each in begun if (error := each.exception())]
    for error in sorted(failed, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error
    return [each.result() for each in begun]


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
    look = line.look(redis.connect(), card.sku)
    return look.waiting == look.in_flight == 0
