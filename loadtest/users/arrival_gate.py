"""Lets the visits of one process in: as fast as users come free, or each at its planned instant.
Never lets a slow shop slow the plan down: who finds no free user waits at the door, and that wait is on record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import gevent
from gevent.queue import Empty, SimpleQueue

from loadtest.plan.population import Visit
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
    """The way in. Without instants it is always open."""

    def __init__(self, crowd: Crowd, *, instants_ns: Iterator[int] | None = None, begins_ns: int = 0) -> None:
        self._crowd = crowd
        self._instants_ns = instants_ns
        self._begins_ns = begins_ns
        self._due: SimpleQueue[Arrival] = SimpleQueue()

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
            crowd.counters.arrived += 1
            self._due.put(Arrival(visit, planned_ns))
        if self._instants_ns is not None:
            crowd.send_home()

    def enter(self) -> Arrival | None:
        """Return who comes next, when somebody does within a moment; what is returned must be told of by leave."""
        if self._instants_ns is None:
            visit = self._crowd.next_visit()
            if visit is not None:
                self._crowd.busy_users += 1
                return Arrival(visit)
            gevent.sleep(IDLE_SECONDS)
            return None
        try:
            arrival: Arrival = self._due.get(timeout=IDLE_SECONDS)
            return arrival
        except Empty:
            return None

    def leave(self) -> None:
        """Somebody's visit is over."""
        self._crowd.busy_users -= 1

    def close(self) -> None:
        """Send away who still waits at the door."""
        self._crowd.send_home()
        while not self._due.empty():
            self._due.get()
            self._crowd.busy_users -= 1
            self._crowd.counters.turned_away += 1
