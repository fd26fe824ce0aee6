"""Loads a server as fast as it answers, or at an even pace: each connection asks again once it has its answer.
Never sends beyond its time; a slow server gets fewer.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from loadtest.bench.load.loop import LoadFailed, LoadLoop, Wire

# How long to wait for answers that are still under way when the time is up.
DRAIN_SECONDS = 5.0
MAX_HELD_BACK_SECONDS = 0.1
UNAVAILABLE = "503"


@dataclass(frozen=True, kw_only=True)
class LoadWindow:
    """How a load is measured: for so many seconds after a warm-up, over so many connections."""

    seconds: float
    warm_up_seconds: float = 0.0
    connections: int = 256

    @property
    def whole_seconds(self) -> float:
        """The seconds with the warm-up."""
        return self.seconds + self.warm_up_seconds


@dataclass(kw_only=True)
class Load:
    """What came back. began_at: when the measured window of `seconds` began (s since 1970); waits_ms: in it, sorted.

    statuses: of all answers, those of the warm-up too.
    """

    began_at: float
    seconds: float
    answered: int
    statuses: Counter[str]
    waits_ms: list[float] = field(repr=False)

    @property
    def per_second(self) -> float:
        """Answers a second in the window."""
        return self.answered / self.seconds

    @property
    def unavailable(self) -> float:
        """The share of all answers that were 503: a store was too slow for a moment."""
        return self.statuses[UNAVAILABLE] / sum(self.statuses.values())

    def must_be(self, status: str, *, of: str, also: Collection[str] = ()) -> None:
        """Raise LoadFailed unless every answer had `status`. of: who answered; also: others, which are counted."""
        if set(self.statuses) - set(also) != {status}:
            raise LoadFailed(f"{of} answered {dict(self.statuses)}; every answer must be {status}")


class Loader(LoadLoop):
    """One run's connections. may_send: asked before every request; while false, connections rest."""

    def __init__(self, port: int, window: LoadWindow, *, may_send: Callable[[float], bool] | None = None) -> None:
        super().__init__(port, connections=window.connections)
        self._window, self._may_send = window, may_send
        self._statuses: Counter[str] = Counter()
        self._arrivals: list[tuple[float, float]] = []  # when it came, how long it took; both in seconds

    def run(self, requests: Iterable[bytes]) -> Load:
        """Send `requests` in order for the warm-up and then the window. Raises LoadFailed, OSError."""
        seconds, waiting = self._window.seconds, iter(requests)
        began_at = time.time() + self._window.warm_up_seconds
        with self._running():
            now = time.monotonic()
            begins = now + self._window.warm_up_seconds
            while now < begins + seconds:
                while self._resting and (self._may_send is None or self._may_send(now)):
                    request = next(waiting, None)
                    if request is None:
                        raise LoadFailed("the server was faster than the requests prepared for it")
                    self._send(request, sent_at=now)
                now = self._read(wait_seconds=0.002 if self._resting else 0.1)
            while self._in_flight and now < begins + seconds + DRAIN_SECONDS:
                now = self._read(wait_seconds=0.1)
        if self._in_flight:
            raise LoadFailed(f"{self._in_flight} requests had no answer {DRAIN_SECONDS:g} s after the end")
        waits = sorted(wait * 1000 for at, wait in self._arrivals if begins <= at < begins + seconds)
        return Load(began_at=began_at, seconds=seconds, answered=len(waits), statuses=self._statuses, waits_ms=waits)

    def _note(self, connection: Wire, data: bytes, now: float) -> None:
        self._statuses[data[9:12].decode()] += 1
        self._arrivals.append((now, now - connection.sent_at))


class Pace:
    """Says whether one more may be sent: `per_second` of them, spread evenly."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1 / per_second
        self._next_at = 0.0

    def may_send(self, now: float) -> bool:
        """Say so, and count it as sent."""
        if now < self._next_at:
            return False
        # Of what a stall held back only the last moment's share goes out at once: a crowd does not save up its clicks.
        self._next_at = max((self._next_at or now) + self._gap, now - MAX_HELD_BACK_SECONDS)
        return True


def ask_evenly(port: int, requests: Iterable[bytes], *, per_second: float, window: LoadWindow) -> Load:
    """Send `requests` to `port` at that pace. Raises LoadFailed, OSError."""
    return Loader(port, window, may_send=Pace(per_second).may_send).run(requests)


def asks_needed(*, per_second: float, window: LoadWindow) -> int:
    """Return how many requests are enough for that pace, whatever it sends too early."""
    return int(per_second * window.whole_seconds * 1.2) + 100
