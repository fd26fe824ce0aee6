"""Measures a lock that others want too: how long a hand-over takes, and whether sixteen processes get their share.
Never believes a lock: two holders at once fail the run.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection

from loadtest.bench.harness.report import ratio
from loadtest.bench.load.subprocesses import run_crew
from loadtest.bench.locks_queue.lock_sides import AnyLock, open_locks

# The crew must be forked and connected by then.
START_SECONDS = 0.5
WARM_UP_SECONDS = 0.3
# The waiter waits for sure by then; the rest is drawn, so that no rival's polls fall in step with the releases.
MIN_HOLD_SECONDS = 0.02
DRAWN_HOLD_SECONDS = 0.1

# Asked for, entered and left, by the one monotonic clock of the machine.
Visit = tuple[float, float, float]


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
