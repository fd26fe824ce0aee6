"""Renews every lock of this process at a third of its TTL from one thread, and tells a holder that lost one.
Never makes a lock anew, never dies of an error, never reaches into a forked child. Called by locks.py and redlock.py.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import structlog

from inventory.exceptions import RedisUnavailable
from inventory.lock_hold import Hold, State
from inventory.lock_statistics import STATISTICS
from inventory.redis import Argument, Client, run_script_each

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 2.0


class Watchdog:
    """One thread a process, started when the first lock is taken; holds lie in a heap by their next renewal (S10)."""

    def __init__(self) -> None:
        self._holds: dict[str, Hold] = {}
        self._heap: list[tuple[float, int, Hold]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_at = float("inf")
        self._flush_at = 0.0

    def add(self, hold: Hold) -> None:
        """Renew `hold` until it ends; starts the thread when none runs (also after a fork, L7)."""
        with self._changed:
            self._holds[hold.token] = hold
            self._push(hold)
            self._be_awake_by(hold.renew_at)

    def attend(self) -> None:
        """Something was counted and no lock is held: see to it that it is flushed."""
        with self._changed:
            self._be_awake_by(time.monotonic() + 2 * FLUSH_SECONDS)

    def _be_awake_by(self, moment: float) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="lock-watchdog", daemon=True)
            self._thread.start()
        elif moment < self._wakes_at:  # woken only when it would come too late: taking a lock stays cheap
            self._changed.notify()

    def remove(self, hold: Hold) -> None:
        """Stop renewing `hold`."""
        with self._changed:
            if self._holds.get(hold.token) is hold:
                del self._holds[hold.token]
            if len(self._heap) > 2 * len(self._holds) + 1000:
                self._heap = [entry for entry in self._heap if self._holds.get(entry[2].token) is entry[2]]
                heapq.heapify(self._heap)

    def newest_first(self) -> list[Hold]:
        """Return what this process holds, the latest first."""
        with self._changed:
            return list(reversed(self._holds.values()))

    def forget_all(self) -> None:
        """Start afresh in a forked child: what its parent holds is not the child's."""
        for hold in self._holds.values():
            hold.disown()
        self.__init__()  # type: ignore[misc]

    def renew(self, holds: Iterable[Hold]) -> None:
        """Renew `holds` now: those of one client in one round trip."""
        trips: defaultdict[Client, list[tuple[Hold, Sequence[str], Sequence[Argument]]]] = defaultdict(list)
        for hold in holds:
            if trouble := hold.trouble():
                hold.lose(reason=trouble)
            elif call := hold.lock.renewal_call():
                trips[call[0]].append((hold, call[1], call[2]))
            else:
                hold.lock.renew(hold)
        for client, calls in trips.items():
            self._renew_at_once(client, calls)

    def _renew_at_once(self, client: Client, calls: list[tuple[Hold, Sequence[str], Sequence[Argument]]]) -> None:
        since = time.monotonic()
        replies: list[Any]
        try:
            replies = run_script_each(client, "extend", [(keys, args) for _, keys, args in calls])
        except RedisUnavailable as error:
            replies = [error] * len(calls)
        for (hold, _, _), reply in zip(calls, replies, strict=True):
            if isinstance(reply, RedisUnavailable):
                self.put_off(hold, error=reply)
            elif reply:
                hold.renewed(since=since, life_ms=hold.ttl_ms)
            else:
                hold.lose(reason="another holds it, or nobody")

    @staticmethod
    def put_off(hold: Hold, *, error: RedisUnavailable) -> None:
        """A renewal had no answer: try again soon; past the deadline the lock counts as lost (L3)."""
        if hold.state is not State.HELD:
            return
        hold.lock.count_failed_renewal()
        log.warning("lock not renewed", action="renewal_failed", lock=hold.lock.name, error=repr(error.__cause__))
        hold.postpone()
        if trouble := hold.trouble():
            hold.lose(reason=trouble)

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
                if self._holds.get(hold.token) is hold and hold.state is State.HELD:
                    (due if min(hold.renew_at, hold.ends_by) <= now else later)[id(hold)] = hold
            for hold in later.values():
                self._push(hold)
            return list(due.values())

    def _work(self) -> None:
        due = self._take_due()
        try:
            self.renew(due)
        finally:
            with self._changed:
                for hold in due:
                    if self._holds.get(hold.token) is hold and hold.state is State.HELD:
                        self._push(hold)
        if time.monotonic() >= self._flush_at:
            self._flush_at = time.monotonic() + FLUSH_SECONDS
            STATISTICS.flush()

    def _run(self) -> None:
        while True:
            try:
                self._work()
            except Exception:  # a watchdog that dies silently is the one thing nobody would notice (S10)
                log.exception("watchdog stumbled", action="watchdog_error")
                time.sleep(0.05)
            with self._changed:
                now = time.monotonic()
                first = self._heap[0][0] if self._heap else float("inf")
                self._wakes_at = min(first, self._flush_at if self._holds or STATISTICS.dirty else first, now + 60)
                self._changed.wait(max(0.001, self._wakes_at - now))


WATCHDOG = Watchdog()
os.register_at_fork(after_in_child=WATCHDOG.forget_all)
os.register_at_fork(after_in_child=STATISTICS.forget_all)
