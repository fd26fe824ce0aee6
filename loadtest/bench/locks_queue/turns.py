"""What the process of one library measures: a lock alone, a lock that others want, a queue.
What it opens stays open until it ends. Never believes a lock: two holders at once fail the run.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from multiprocessing.connection import Connection

from inventory.locks.watchdog import WATCHDOG
from loadtest.bench.harness.report import ratio
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.subprocesses import run_crew
from loadtest.bench.locks_queue.lock_sides import FAIR, LIFE_SECONDS, UNFAIR, AnyLock, open_locks, raw_calls, sure
from loadtest.bench.locks_queue.queue_sides import BATCH, open_queue

WARM_UP_PAIRS = 100
PIPELINE_PAIRS = 100
CLOCK_EVERY_PAIRS = 10
# Longer than a round: no lock may be renewed by itself meanwhile.
RENEWED_LIFE_SECONDS = 60.0
# The crew must be forked and connected by then.
START_SECONDS = 0.5
WARM_UP_SECONDS = 0.3
# The waiter waits for sure by then; the rest is drawn, so that no rival's polls fall in step with the releases.
MIN_HOLD_SECONDS = 0.02
DRAWN_HOLD_SECONDS = 0.1

# Asked for, entered and left, by the one monotonic clock of the machine.
Visit = tuple[float, float, float]


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


@dataclass(frozen=True, kw_only=True)
class LockCrowd:
    """What a crowd at one lock came to. counts: acquisitions of each process in the window; waits in ms."""

    per_second: float
    counts: list[int]
    mean_wait_ms: float
    worst_wait_ms: float
    overlaps: int

    @property
    def worst_to_mean(self) -> float:
        """The worst wait over the mean wait."""
        return ratio(self.worst_wait_ms, self.mean_wait_ms)

    @property
    def unevenness(self) -> float:
        """How far the process furthest from its fair share is from it, in per cent of that share."""
        share = statistics.fmean(self.counts)
        return 100 * ratio(max(abs(count - share) for count in self.counts), share)


def hand_overs_ms(*, side: str, name: str, count: int) -> list[float]:
    """Hand a lock from one process to one waiter `count` times; return how long from the release to the new holder."""
    ours, theirs = multiprocessing.Pipe()
    pauses = [MIN_HOLD_SECONDS + random.random() * DRAWN_HOLD_SECONDS for _ in range(count)]
    members = [
        {"side": side, "name": name, "pipe": ours, "pauses": pauses},
        {"side": side, "name": name, "pipe": theirs, "pauses": None},
    ]
    gaps, _ = run_crew(_one_of_two, members, side=side)
    return [1000 * gap for gap in gaps]


def _one_of_two(*, side: str, name: str, pipe: Connection, pauses: list[float] | None) -> list[float]:
    (lock,) = open_locks(side, [name])
    if pauses is not None:
        gaps = [_hand_over(lock, pipe, pause=pause) for pause in pauses]
        pipe.send(False)
        return gaps
    while pipe.recv():
        lock.acquire()
        entered = time.monotonic()
        lock.release()
        pipe.send(entered)
    return []


def _hand_over(lock: AnyLock, pipe: Connection, *, pause: float) -> float:
    lock.acquire()
    pipe.send(True)
    time.sleep(pause)
    released = time.monotonic()
    lock.release()
    return float(pipe.recv()) - released


def crowd_at(*, side: str, name: str, processes: int, hold_seconds: float, seconds: float) -> LockCrowd:
    """Let `processes` processes take a lock again and again, `hold_seconds` each, for `seconds`; return what came."""
    begin_at = time.monotonic() + START_SECONDS
    end_at = begin_at + WARM_UP_SECONDS + seconds
    member = {"side": side, "name": name, "begin_at": begin_at, "end_at": end_at, "hold_seconds": hold_seconds}
    visits = run_crew(_one_of_many, [member] * processes, side=side)
    return judge(visits, window=(begin_at + WARM_UP_SECONDS, end_at))


def _one_of_many(*, side: str, name: str, begin_at: float, end_at: float, hold_seconds: float) -> list[Visit]:
    (lock,) = open_locks(side, [name])
    time.sleep(max(0.0, begin_at - time.monotonic()))
    visits: list[Visit] = []
    # A wait that began in time is waited to its end, however long: who starves is counted too.
    while (asked := time.monotonic()) < end_at:
        lock.acquire()
        entered = time.monotonic()
        time.sleep(hold_seconds)
        left = time.monotonic()
        lock.release()
        visits.append((asked, entered, left))
    return visits


def judge(visits: Sequence[Sequence[Visit]], *, window: tuple[float, float]) -> LockCrowd:
    """Count acquisitions within the window, and every wait that ended after its beginning.

    Shares are counted over whole turns: the last of the window, fewer than there are processes, belong to none.
    """
    begin, end = window
    entries = sorted((entered, own) for own, seen in enumerate(visits) for _, entered, _ in seen)
    inside = [own for entered, own in entries if begin <= entered < end]
    shared = Counter(inside[: len(inside) - len(inside) % len(visits)])
    waits = [entered - asked for seen in visits for asked, entered, _ in seen if entered >= begin]
    stays = sorted((entered, left) for seen in visits for _, entered, left in seen)
    return LockCrowd(
        per_second=len(inside) / (end - begin),
        counts=[shared[own] for own in range(len(visits))],
        mean_wait_ms=1000 * statistics.fmean(waits),
        worst_wait_ms=1000 * max(waits),
        overlaps=sum(entered < left for (_, left), (entered, _) in pairwise(stays)),
    )


_opened = cache(open_queue)


def fill(*, side: str, depth: int) -> int:
    """Put tasks in until `depth` lie in the queue; return how many do."""
    queue = _opened(side)
    while queue.depth < depth:
        queue.enqueue()
    return queue.depth


def enqueued_per_second(*, side: str, seconds: float) -> float:
    """Enqueue batches for `seconds`; return how many tasks a second."""
    queue = _opened(side)
    before, began = queue.depth, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        queue.enqueue()
    return (queue.depth - before) / took


def worked_per_second(*, side: str, seconds: float) -> float:
    """Take and settle batches for `seconds`, or until fewer than two are left; return how many tasks a second.

    Raises LoadFailed when one came back short: then something else was measured.
    """
    queue = _opened(side)
    before, began = queue.depth, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds and queue.depth >= 2 * BATCH:
        if (worked := queue.work()) != BATCH:
            raise LoadFailed(f"{worked} of {BATCH} tasks came back, with {queue.depth} in the queue")
        queue.depth -= BATCH
    return (before - queue.depth) / took
