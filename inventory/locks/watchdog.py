"""Renews every lock of this process at a third of its TTL, a thread a server, and tells a holder that lost one.
Never creates a lock that is gone, never dies of an error, never reaches into a forked child.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import structlog

from inventory.exceptions import RedisUnavailable
from inventory.locks.lease import Hold, HoldState
from inventory.locks.statistics import FLUSH_SECONDS, STATISTICS
from inventory.redis import Argument, Client, run_script_each

log = structlog.get_logger(__name__)

# A thread that had nothing to renew for so long ends; the next lock starts another.
IDLE_SECONDS = 60.0


class Watchdog:
    """Every hold of a process. Each server has a thread of its own: one that is silent delays no other's renewals."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._lanes: WeakKeyDictionary[Any, _Lane] = WeakKeyDictionary()

    def add(self, hold: Hold) -> None:
        """Renew `hold` until it ends; starts a thread when none runs (also after a fork, L7)."""
        self._lane(hold.lock.renewed_with).add(hold)

    def attend(self, server: object) -> None:
        """Something was counted and no lock is held: see to it that it is flushed."""
        self._lane(server).be_awake_by(time.monotonic() + 2 * FLUSH_SECONDS)

    def remove(self, hold: Hold) -> None:
        """Stop renewing `hold`."""
        self._lane(hold.lock.renewed_with).remove(hold)

    def newest_first(self) -> list[Hold]:
        """Return what this process holds, the latest first."""
        holds = [hold for lane in self._all() for hold in lane.holds()]
        return sorted(holds, key=lambda hold: hold.since, reverse=True)

    def forget_all(self) -> None:
        """Start afresh in a forked child: what its parent holds is not the child's. Waits for no mutex."""
        for lane in list(self._lanes.values()):
            lane.disown()
        self.__init__()  # type: ignore[misc]

    def _lane(self, server: object) -> _Lane:
        lane = self._lanes.get(server)
        if lane is None:
            with self._mutex:
                lane = self._lanes.setdefault(server, _Lane(self.renew))
        return lane

    def _all(self) -> list[_Lane]:
        with self._mutex:
            return list(self._lanes.values())

    @classmethod
    def renew(cls, holds: Iterable[Hold]) -> None:
        """Renew `holds` now: those of one client in one round trip."""
        trips: defaultdict[Client, list[tuple[Hold, Sequence[str], Sequence[Argument]]]] = defaultdict(list)
        for hold in holds:
            if not hold.lose_if_over() and (call := hold.lock.renewal_call(hold)):
                trips[call[0]].append((hold, call[1], call[2]))
        for client, calls in trips.items():
            cls._renew_at_once(client, calls)

    @classmethod
    def _renew_at_once(cls, client: Client, calls: list[tuple[Hold, Sequence[str], Sequence[Argument]]]) -> None:
        since = time.monotonic()
        replies: list[Any]
        try:
            replies = run_script_each(client, "extend", [(keys, args) for _, keys, args in calls])
        except RedisUnavailable as error:
            replies = [error] * len(calls)
        for (hold, _, _), reply in zip(calls, replies, strict=True):
            if isinstance(reply, RedisUnavailable):
                cls.put_off(hold, error=reply)
            elif reply:
                hold.renewed(since=since, life_ms=int(reply))
            else:
                hold.lose(reason="another holds it, or nobody")

    @staticmethod
    def put_off(hold: Hold, *, error: RedisUnavailable) -> None:
        """A renewal had no answer: try again soon; past the deadline the lock counts as lost (L3)."""
        if hold.state is not HoldState.HELD:
            return
        hold.lock.count_failed_renewal()
        log.warning("lock not renewed", action="renewal_failed", lock=hold.lock.name, error=repr(error.__cause__))
        hold.postpone()
        hold.lose_if_over()


class _Lane:
    """One thread, started when the first lock of a server is taken; holds lie in a heap by their next renewal (S10)."""

    def __init__(self, renew: Callable[[list[Hold]], None]) -> None:
        self._renew = renew
        self._holds: dict[str, Hold] = {}
        self._heap: list[tuple[float, int, Hold]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_at = float("inf")

    def add(self, hold: Hold) -> None:
        """Renew `hold` until it ends."""
        with self._changed:
            self._holds[hold.token] = hold
            self._push(hold)
            self.be_awake_by(hold.renew_at)

    def remove(self, hold: Hold) -> None:
        """Stop renewing `hold`."""
        with self._changed:
            if self._holds.get(hold.token) is hold:
                del self._holds[hold.token]
            if len(self._heap) > 2 * len(self._holds) + 1000:
                self._heap = [entry for entry in self._heap if self._holds.get(entry[2].token) is entry[2]]
                heapq.heapify(self._heap)

    def holds(self) -> list[Hold]:
        """Return what is renewed here."""
        with self._changed:
            return list(self._holds.values())

    def disown(self) -> None:
        """In a forked child: nothing here is ours."""
        for hold in self._holds.values():
            hold.disown()

    def be_awake_by(self, moment: float) -> None:
        """See to it that the thread runs and looks up at `moment`, in monotonic seconds, at the latest."""
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="lock-watchdog", daemon=True)
                self._thread.start()
            elif moment < self._wakes_at:  # woken only when it would come too late: taking a lock stays cheap
                self._changed.notify()

    def _push(self, hold: Hold) -> None:
        # Woken no later than the cap of the hold, so that its holder hears of it in time.
        heapq.heappush(self._heap, (min(hold.renew_at, hold.ends_by), next(self._numbers), hold))

    def _take_due(self) -> list[Hold]:
        with self._changed:
            now = time.monotonic()
            due: dict[int, Hold] = {}
            later: dict[int, Hold] = {}
            while self._heap and self._heap[0][0] <= now:
                hold = heapq.heappop(self._heap)[2]
                if self._holds.get(hold.token) is hold and hold.state is HoldState.HELD:
                    (due if min(hold.renew_at, hold.ends_by) <= now else later)[id(hold)] = hold
            for hold in later.values():
                self._push(hold)
            return list(due.values())

    def _work(self) -> None:
        due = self._take_due()
        try:
            self._renew(due)
        finally:
            with self._changed:
                for hold in due:
                    if self._holds.get(hold.token) is hold and hold.state is HoldState.HELD:
                        self._push(hold)
        STATISTICS.flush_when_due()

    def _run(self) -> None:
        while True:
            try:
                self._work()
            except Exception:  # a watchdog that dies silently is the one thing nobody would notice (S10)
                log.exception("watchdog error", action="watchdog_error")
                time.sleep(0.05)
            if not self._sleep():
                return

    def _sleep(self) -> bool:
        """Sleep until something is due; False when the thread may end: nothing was, for long."""
        with self._changed:
            if not self._holds:
                self._heap.clear()  # ended holds would keep their client alive
            now = time.monotonic()
            first = self._heap[0][0] if self._heap else float("inf")
            flush_at = STATISTICS.flush_at if self._holds or STATISTICS.dirty else first
            self._wakes_at = min(first, flush_at, now + IDLE_SECONDS)
            idle = self._wakes_at == now + IDLE_SECONDS and not self._holds
            if self._changed.wait(max(0.001, self._wakes_at - now)) or not idle or self._holds or STATISTICS.dirty:
                return True
            self._thread = None
            return False


WATCHDOG = Watchdog()
os.register_at_fork(after_in_child=WATCHDOG.forget_all)
os.register_at_fork(after_in_child=STATISTICS.forget_all)
