"""Measures one lock alone: how often it can be taken and given back, and how fast a thousand are renewed.
What it opens stays open until its process ends.
"""

from __future__ import annotations

import time
from functools import cache

from inventory.locks.watchdog import WATCHDOG
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.locks_queue.lock_sides import (
    FAIR,
    LIFE_SECONDS,
    UNFAIR,
    AnyLock,
    open_locks,
    raw_calls,
    sure,
)

WARM_UP_PAIRS = 100
PIPELINE_PAIRS = 100
CLOCK_EVERY_PAIRS = 10
# Longer than a round: no lock may be renewed by itself meanwhile.
RENEWED_LIFE_SECONDS = 60.0


@cache
def _warm_lock(side: str) -> AnyLock:
    (lock,) = open_locks(side, ["uncontended"])
    for _ in range(WARM_UP_PAIRS):
        lock.acquire()
        lock.release()
    return lock


def pairs_per_second(*, side: str, seconds: float) -> float:
    """Take and give back a lock that nobody else wants for `seconds`; return how often a second."""
    lock, pairs = _warm_lock(side), 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        for _ in range(CLOCK_EVERY_PAIRS):
            lock.acquire()
            lock.release()
        pairs += CLOCK_EVERY_PAIRS
    return pairs / took


def pipelined_pairs_per_second(*, seconds: float) -> float:
    """Send the raw calls a hundred pairs at a time: what the server could do if nobody waited for an answer."""
    client, take, give = raw_calls("uncontended", life_seconds=LIFE_SECONDS)
    pairs, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        pipeline = client.pipeline(transaction=False)
        for _ in range(PIPELINE_PAIRS):
            pipeline.execute_command(*take)
            pipeline.execute_command(*give)
        sure(all(pipeline.execute()))
        pairs += PIPELINE_PAIRS
    return pairs / took


def renewal_ms(*, side: str, locks: int, rounds: int) -> list[float]:
    """Hold `locks` locks and renew all of them `rounds` times; return how long each took.

    Ours as the watchdog does it, in one round trip; the others have no such call and are extended one by one.
    """
    held = open_locks(side, [f"renewed-{number}" for number in range(locks)], life_seconds=RENEWED_LIFE_SECONDS)
    for lock in held:
        lock.acquire()
    renew = _renew_ours if side in (FAIR, UNFAIR) else _renew_one_by_one
    found = [renew(held) for _ in range(rounds)]
    for lock in held:
        lock.release()
    return found


def _renew_ours(held: list[AnyLock]) -> float:
    holds = WATCHDOG.newest_first()
    before = [hold.deadline for hold in holds]
    began = time.perf_counter()
    WATCHDOG.renew(holds)
    took = time.perf_counter() - began
    if len(holds) != len(held) or any(hold.deadline <= old for hold, old in zip(holds, before, strict=True)):
        raise LoadFailed(f"{len(holds)} of {len(held)} locks were held, and not all of them were renewed")
    return took * 1000


def _renew_one_by_one(held: list[AnyLock]) -> float:
    extend = [lock.extend for lock in held if lock.extend is not None]
    if len(extend) != len(held):
        raise LoadFailed("a lock that does not renew was asked to")
    began = time.perf_counter()
    for each in extend:
        each()
    return (time.perf_counter() - began) * 1000
