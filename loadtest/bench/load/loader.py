"""Sends ready-made requests over many kept-alive connections, one in flight on each, and counts the answers by status.
Never parses more than it must, never sends beyond its time, never leaves loopback.

A bare epoll loop: several times as fast as an asyncio client, and no program has to be installed for it.
"""

from __future__ import annotations

import gc
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from loadtest.bench.load.wire import LoadFailed, Wire

HOST = "127.0.0.1"
CONNECT_SECONDS = 5.0
# How long an answer may take before the run counts as broken.
STALL_SECONDS = 10.0
# How long to wait for answers that are still under way when the time is up.
DRAIN_SECONDS = 5.0


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

    def wait_ms(self, share: float) -> float:
        """Return the wait in ms that `share` (0 to 1) of the answers did not pass."""
        return self.waits_ms[min(len(self.waits_ms) - 1, int(len(self.waits_ms) * share))] if self.waits_ms else 0.0


@dataclass(slots=True)
class _Connection(Wire):
    sent_at: float = 0.0


class Loader:
    """One run's connections. may_send: asked before every request; while false, connections rest."""

    def __init__(self, port: int, *, connections: int, may_send: Callable[[float], bool] | None = None) -> None:
        self._port = port
        self._most = connections
        self._may_send = may_send
        self._connections: dict[int, _Connection] = {}
        self._resting: deque[_Connection] = deque()
        self._statuses: Counter[str] = Counter()
        self._arrivals: list[tuple[float, float]] = []  # when it came, how long it took; both in seconds
        self._in_flight = 0

    def run(self, requests: Iterable[bytes], *, seconds: float, warm_up_seconds: float) -> Load:
        """Send `requests` in order for the warm-up and then `seconds`. Raises LoadFailed, OSError."""
        began_at = time.time() + warm_up_seconds
        with select.epoll() as poll, no_collection():
            try:
                self._connect(poll)
                begins = time.monotonic() + warm_up_seconds
                self._pump(poll, iter(requests), until=begins + seconds)
            finally:
                for connection in self._connections.values():
                    connection.socket.close()
        waits = sorted(wait * 1000 for at, wait in self._arrivals if begins <= at < begins + seconds)
        return Load(began_at=began_at, seconds=seconds, answered=len(waits), statuses=self._statuses, waits_ms=waits)

    def _connect(self, poll: select.epoll) -> None:
        for _ in range(self._most):
            opened = open_socket(self._port)
            connection = _Connection(opened)
            self._connections[opened.fileno()] = connection
            self._resting.append(connection)
            poll.register(opened, select.EPOLLIN)

    def _pump(self, poll: select.epoll, requests: Iterator[bytes], *, until: float) -> None:
        """Send and read until the time is up, then read what is still under way."""
        heard = now = time.monotonic()
        while now < until:
            self._send_resting(requests, now)
            ready = poll.poll(0.002 if self._resting else 0.1)
            now = time.monotonic()
            if ready or not self._in_flight:
                heard = now
            elif now - heard > STALL_SECONDS:
                raise LoadFailed(f"no answer for {STALL_SECONDS:g} s")
            for handle, _ in ready:
                self._read(self._connections[handle], now)
        while self._in_flight and now < until + DRAIN_SECONDS:
            for handle, _ in poll.poll(0.1):
                self._read(self._connections[handle], now)
            now = time.monotonic()
        if self._in_flight:
            raise LoadFailed(f"{self._in_flight} requests had no answer {DRAIN_SECONDS:g} s after the end")

    def _send_resting(self, requests: Iterator[bytes], now: float) -> None:
        while self._resting and (self._may_send is None or self._may_send(now)):
            request = next(requests, None)
            if request is None:
                raise LoadFailed("the server was faster than the requests prepared for it")
            # The one that rested longest: a server closes a connection that says nothing for half a minute.
            connection = self._resting.popleft()
            connection.send_whole(request)
            connection.sent_at = now
            self._in_flight += 1

    def _read(self, connection: _Connection, now: float) -> None:
        data = connection.read_answer()
        if data is None:
            return
        self._statuses[data[9:12].decode()] += 1
        self._arrivals.append((now, now - connection.sent_at))
        self._in_flight -= 1
        self._resting.append(connection)


def open_socket(port: int, *, timeout_seconds: float = CONNECT_SECONDS) -> socket.socket:
    """Return a connection to `port` that sends at once and never blocks. Raises OSError."""
    opened = socket.create_connection((HOST, port), timeout=timeout_seconds)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setblocking(False)
    return opened


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python's garbage collector from walking through the requests in the middle of a measurement."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
