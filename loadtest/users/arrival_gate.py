"""Lets the visits of one process in: as fast as users come free, or each at its planned instant, to a user of its kind.
Never lets a slow shop slow the plan down: an arrival that finds no free user waits there, and that is recorded.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import gevent
from gevent.event import AsyncResult

from loadtest.plan.population import SHOPPER, Visit
from loadtest.record.history import now_ns

if TYPE_CHECKING:
    from loadtest.users.crowd import Crowd

IDLE_SECONDS = 0.25
NS = 1_000_000_000


class Arrival(NamedTuple):
    """A visit and when it was to begin; 0: whenever a user is free."""

    visit: Visit
    planned_ns: int = 0


class ArrivalGate:
    """The way in. Without instants it is always open.

    An arrival goes to a free user of its own kind; when none is free, to any other: none waits while a user is idle.
    """

    def __init__(self, crowd: Crowd, *, instants_ns: Iterator[int] | None = None, begins_ns: int = 0) -> None:
        self._crowd = crowd
        self._instants_ns = instants_ns
        self._begins_ns = begins_ns
        # By kind: who waits at the gate, and which users are free.
        self._due: defaultdict[str, deque[Arrival]] = defaultdict(deque)
        self._free: defaultdict[str, deque[AsyncResult[Arrival]]] = defaultdict(deque)

    def open(self) -> None:
        """Release each visit at its instant, to the last one; with nothing planned there is nothing to do."""
        crowd = self._crowd
        for instant_ns in self._instants_ns or ():
            planned_ns = self._begins_ns + instant_ns
            # Also when it is late: the others of this process must have a turn.
            gevent.sleep(max(0.0, (planned_ns - now_ns()) / NS))
            visit = crowd.next_visit()
            if visit is None:
                return  # sent home
            crowd.busy_users += 1
            self._let_in(Arrival(visit, planned_ns))
        if self._instants_ns is not None:
            crowd.send_home()

    def enter(self, kind: str = SHOPPER) -> Arrival | None:
        """Return who comes next to a user of `kind`, when somebody does within a moment; `leave` must be called then.

        Without a plan that is the next visit of all, of whatever kind.
        """
        if self._instants_ns is None:
            visit = self._crowd.next_visit()
            if visit is not None:
                self._crowd.busy_users += 1
                return Arrival(visit)
            gevent.sleep(IDLE_SECONDS)
            return None
        waiting = [self._due[kind]] if self._due[kind] else [due for due in self._due.values() if due]
        if not waiting:
            return self._wait(kind)
        return min(waiting, key=lambda due: due[0].planned_ns).popleft()

    def _let_in(self, arrival: Arrival) -> None:
        """Hand an arrival to a free user, or let it wait at the gate."""
        free = [self._free[arrival.visit.kind], *self._free.values()]
        users = next((users for users in free if users), None)
        if users:
            users.popleft().set(arrival)
        else:
            self._due[arrival.visit.kind].append(arrival)

    def _wait(self, kind: str) -> Arrival | None:
        user: AsyncResult[Arrival] = AsyncResult()
        self._free[kind].append(user)
        try:
            user.wait(timeout=IDLE_SECONDS)
            arrival: Arrival | None = user.value
            return arrival
        except gevent.GreenletExit:
            if user.value is not None:
                self._let_in(user.value)
            raise
        finally:
            if user in self._free[kind]:
                self._free[kind].remove(user)

    def leave(self) -> None:
        """Somebody's visit is over."""
        self._crowd.busy_users -= 1

    def close(self) -> None:
        """Send away every arrival that still waits."""
        self._crowd.send_home()
        self._crowd.busy_users -= sum(map(len, self._due.values()))
        self._due.clear()
