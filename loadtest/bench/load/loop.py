"""The one load loop: kept-alive connections with one ready-made request in flight on each, read as answers come.
Never parses more than it must, never leaves loopback.

A bare epoll loop: several times as fast as an asyncio client, and no program has to be installed for it.
"""

from __future__ import annotations

import gc
import select
import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

HOST = "127.0.0.1"
CONNECT_SECONDS = 5.0
# How long nothing may be answered before the run counts as broken.
STALL_SECONDS = 10.0
NEVER = float("inf")
_READ_BYTES = 16_384
_LENGTH = b"content-length: "


class LoadFailed(Exception):
    """The server went away, stalled, or there were too few requests for the time."""


@dataclass(slots=True)
class Wire:
    """One connection with at most one request on its way. socket: not blocking; sent_at: or when it was to be sent.

    number: of the buyer whose request it is, where that matters.
    """

    socket: socket.socket
    rest: bytes = b""  # the beginning of an answer that came in pieces
    request: bytes = b""
    sent_at: float = 0.0
    number: int = -1

    def read_answer(self) -> bytes | None:
        """Read what has come; return the answer when it is whole. Raises LoadFailed when the server hung up."""
        data = self.socket.recv(_READ_BYTES)
        if not data:
            raise LoadFailed("the server closed a connection")
        if self.rest:
            data = self.rest + data
        if not is_whole(data):
            self.rest = data
            return None
        self.rest = b""
        return data


def is_whole(data: bytes) -> bool:
    """Say whether `data` is a whole answer, by its content-length. Raises LoadFailed when it has none."""
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0:
        return False
    at = data.find(_LENGTH, 0, head_end)
    if at < 0:
        at = data.lower().find(_LENGTH, 0, head_end)  # some servers write it Content-Length
    if at < 0:
        raise LoadFailed("an answer without content-length")
    at += len(_LENGTH)
    return len(data) - head_end - 4 >= int(data[at : data.index(b"\r\n", at)])


class LoadLoop(ABC):
    """The connections of one run; a subclass decides what is sent when, and notes what came."""

    connect_seconds = CONNECT_SECONDS
    stall_seconds = STALL_SECONDS

    def __init__(self, port: int, *, connections: int) -> None:
        self._port, self._max_connections = port, connections
        self._poll = select.epoll()
        self._connections: dict[int, Wire] = {}
        self._resting: deque[Wire] = deque()
        self._in_flight = 0
        self._heard = 0.0

    @abstractmethod
    def _note(self, connection: Wire, data: bytes, now: float) -> None:
        """Note a whole answer; the connection rests again."""

    @contextmanager
    def _running(self, *, stays: bool = False) -> Iterator[None]:
        """Hold the connections open for the length of a `with` block, or until leave() when one `stays`."""
        with no_collection():
            try:
                if not self._connections:
                    self.connect()
                self._heard = time.monotonic()
                yield
            finally:
                if not stays:
                    self.leave()

    def connect(self, *, first_call: bytes = b"") -> None:
        """Open every connection, before the clock runs: each sends at once and never blocks.

        first_call: sent and answered on each, because a server soon ends a connection that has said nothing. Raises
        LoadFailed, OSError.
        """
        for _ in range(self._max_connections):
            opened = socket.create_connection((HOST, self._port), timeout=self.connect_seconds)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections[opened.fileno()] = connection = Wire(opened)
            if first_call:
                opened.sendall(first_call)
                while connection.read_answer() is None:
                    pass
            opened.setblocking(False)
            self._resting.append(connection)
            self._poll.register(opened, select.EPOLLIN)

    def leave(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.socket.close()
        self._poll.close()

    def _send(self, request: bytes, *, sent_at: float) -> Wire:
        # The one that rested longest: a server closes a connection that says nothing for half a minute.
        connection = self._resting.popleft()
        if connection.socket.send(request) != len(request):
            raise LoadFailed("a socket took only a part of a request")
        connection.sent_at = sent_at
        self._in_flight += 1
        return connection

    def _read(self, *, wait_seconds: float) -> float:
        """Note the answers that come within a time; return what time it is. Raises LoadFailed when nobody answers."""
        ready = self._poll.poll(wait_seconds)
        now = time.monotonic()
        for handle, _ in ready:
            connection = self._connections[handle]
            if (data := connection.read_answer()) is not None:
                self._in_flight -= 1
                self._resting.append(connection)
                self._note(connection, data, now)
        if ready or not self._in_flight:
            self._heard = now
        elif now - self._heard > self.stall_seconds:
            raise LoadFailed(f"no answer for {self.stall_seconds:g} s")
        return now


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python's garbage collector from walking through the requests in the middle of a measurement."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
