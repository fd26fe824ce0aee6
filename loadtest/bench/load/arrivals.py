"""Sends each request at its own moment, whatever became of those before it, and counts every wait from that moment.
Never sends late ones for ever: who waited longer than its patience gives up.
"""

from __future__ import annotations

import resource
import time
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from loadtest.bench.load.loop import NEVER, LoadFailed, LoadLoop, Wire

# So many are sent before answers are read again: a sender that only sends would add its own time to every wait.
BURST = 64
LOOK_SECONDS = 0.001
AWAKE_SECONDS = 0.1  # before the first moment
DRAIN_SECONDS = 15.0
SHED = 503
FIRST_CALL = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@dataclass(kw_only=True)
class Answers:
    """A line for each answer: its intended moment and when it came (s since the beginning), and its status.

    shed: sent again later, so they have no line; given_up: the moments of those never sent; silent: sent and
    not answered by the end.
    """

    intended: array[float] = field(default_factory=lambda: array("d"), repr=False)
    came: array[float] = field(default_factory=lambda: array("d"), repr=False)
    status: array[int] = field(default_factory=lambda: array("H"), repr=False)
    shed: int = 0
    given_up: array[float] = field(default_factory=lambda: array("d"), repr=False)
    silent: int = 0

    def waits_ms(self, status: int, *, begin: float = 0.0, end: float = NEVER) -> list[float]:
        """Return the waits of one status, in ms from the intended moment; those intended from `begin` to `end`."""
        return [
            (came - intended) * 1000
            for intended, came, found in zip(self.intended, self.came, self.status, strict=True)
            if found == status and begin <= intended < end
        ]

    def waits_by_second(self, status: int) -> dict[int, list[float]]:
        """Return the waits of one status in ms, by the second they were intended in."""
        found: dict[int, list[float]] = defaultdict(list)
        for intended, came, each in zip(self.intended, self.came, self.status, strict=True):
            if each == status:
                found[int(intended)].append((came - intended) * 1000)
        return found

    def statuses(self) -> dict[int, int]:
        """Return how many answers had each status."""
        return {status: self.status.count(status) for status in sorted(set(self.status))}

    def add(self, other: Answers) -> None:
        """Take over the answers of another process that began at the same moment."""
        self.intended += other.intended
        self.came += other.came
        self.status += other.status
        self.shed += other.shed
        self.given_up += other.given_up
        self.silent += other.silent


class ArrivalRun(LoadLoop):
    """One run's connections. patience_seconds: who could not be sent that long gives up.

    retry_seconds: how long after a 503 the same request is sent again; None: it is not, and 503 is its answer.
    """

    connect_seconds = 20.0

    def __init__(
        self, port: int, *, connections: int, patience_seconds: float = NEVER, retry_seconds: float | None = None
    ) -> None:
        super().__init__(port, connections=connections)
        self._patience, self._retry = patience_seconds, retry_seconds
        self._again: deque[tuple[float, bytes, float]] = deque()  # when, what, and its intended moment
        self._answers = Answers()
        self._begins = 0.0

    def run(
        self,
        requests: Iterable[bytes],
        moments: Iterable[float],
        *,
        begins_at: float | None = None,
        stays: bool = False,
    ) -> Answers:
        """Send each request at its moment (s, rising) after `begins_at` (s since 1970; default: now, when connected).

        stays: the connections stay open until leave(). Raises LoadFailed, OSError.
        """
        with self._running(stays=stays):
            self._begins = time.monotonic() + (0.0 if begins_at is None else begins_at - time.time())
            if begins_at is not None and self._begins < time.monotonic():
                raise LoadFailed(f"{self._max_connections:,} connections were not open in time")
            # Asleep, not looking: what nobody has asked for yet must not cost anything.
            time.sleep(max(0.0, self._begins - time.monotonic() - AWAKE_SECONDS))
            self._heard = self._begins
            self._pump(iter(requests), iter(moments))
        self._answers.silent = self._in_flight
        return self._answers

    def _pump(self, requests: Iterator[bytes], moments: Iterator[float]) -> None:
        due, ends = next(moments, NEVER), NEVER
        while due < NEVER or self._again or self._in_flight:
            now = time.monotonic() - self._begins
            due = self._send_due(requests, moments, due=due, now=now)
            if due == NEVER and ends == NEVER:
                ends = now + DRAIN_SECONDS
            waits = due > now and not (self._again and self._again[0][0] <= now)
            now = self._read(wait_seconds=LOOK_SECONDS if waits or not self._resting else 0) - self._begins
            if now > ends:
                return

    def _send_due(self, requests: Iterator[bytes], moments: Iterator[float], *, due: float, now: float) -> float:
        """Send what is due, a burst at most; return the moment of the next one."""
        for _ in range(min(BURST, len(self._resting))):
            if self._again and self._again[0][0] <= now:
                _, request, intended = self._again.popleft()
            else:
                while due < now - self._patience:
                    self._answers.given_up.append(due)
                    due = next(moments, NEVER)
                if due > now:
                    break
                found = next(requests, None)
                if found is None:
                    raise LoadFailed("there were more moments than requests prepared for them")
                request, intended = found, due
                due = next(moments, NEVER)
            self._send(request, sent_at=intended).request = request
        return due

    def _note(self, connection: Wire, data: bytes, now: float) -> None:
        status, came = int(data[9:12]), now - self._begins
        if status == SHED and self._retry is not None:
            self._answers.shed += 1
            self._again.append((came + self._retry, connection.request, connection.sent_at))
            return
        self._answers.intended.append(connection.sent_at)
        self._answers.came.append(came)
        self._answers.status.append(status)


def evenly(*phases: tuple[float, float]) -> Iterator[float]:
    """Yield the moments of arrivals; phases: each a rate a second and how many seconds, one after the other."""
    began = 0.0
    for per_second, seconds in phases:
        for number in range(int(per_second * seconds)):
            yield began + number / per_second
        began += seconds


def allow_connections(*, wanted: int = 0, side: str = "") -> None:
    """Let this process hold as many connections as the system allows. side: its name among the crowds.

    Raises LoadFailed when these are fewer than `wanted`.
    """
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard_limit != resource.RLIM_INFINITY and hard_limit < wanted:
        raise LoadFailed(f"{wanted} open files are needed and the hard limit is {hard_limit}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def ask_in_turn(
    *, port: int, connections: int, requests: list[bytes], moments: list[float], begins_at: float
) -> Answers:
    """Send each request at its moment after `begins_at` (s since 1970). Raises LoadFailed, OSError."""
    crowd = ArrivalRun(port, connections=connections)
    crowd.connect(first_call=FIRST_CALL)
    return crowd.run(requests, moments, begins_at=begins_at)


CROWDS: list[ArrivalRun] = []  # of this process


def stand_ready(*, port: int, buyers: int, retry_seconds: float) -> None:
    """Open a connection for each buyer of this process's crowd, and read a page on it. Raises LoadFailed, OSError."""
    CROWDS.append(ArrivalRun(port, connections=buyers, retry_seconds=retry_seconds))
    CROWDS[-1].connect(first_call=FIRST_CALL)


def ask_together(*, requests: list[bytes], begins_at: float) -> Answers:
    """Send all requests of the crowd that stands ready at `begins_at` (s since 1970). Raises LoadFailed."""
    return CROWDS[-1].run(requests, [0.0] * len(requests), begins_at=begins_at, stays=True)


def go_home() -> None:
    """Close the connections of the crowd that has asked; it is this process's no more."""
    CROWDS.pop().leave()
