"""Proves that people who send slowly, or not at all, take nothing from anybody else, and are ended. Begins with the
control: the same senders, quick, are answered. `make test-slow-senders` sends ten times as many, and holds the shop to
the 15 seconds that it promises, and to 50 MiB. As many are open at once as the limit on open files allows.
"""

from __future__ import annotations

import math
import os
import resource
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from shop.gate.server.limits import HEAD_SECONDS
from shop.http import BODY_SECONDS
from tests.crashes.conftest import CROWD, SPARE_FILES
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import program_with, web_process
from tests.support.waiting import assert_waits_at_most, wait_until

HEAD = (
    "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    "Authorization: Bearer x\r\nContent-Length: {length}\r\n\r\n"
)
# More than Django has threads.
SENDERS = 12
SECONDS_TO_END = 120.0
ATTACKER = "127.0.0.2"
LARGE_HEADS, LARGE_BYTES = 300, 400_000
# So that a crowd is there at once also where it comes slowly; without it a silent one is ended after five seconds.
# Nor is there a deadline that would close them later, in place of the one that is tested.
LONGER = """
from shop.gate.server import protocol, silent
protocol.DEADLINES = silent.DEADLINES = (20, 20, *protocol.DEADLINES[2:4], 1 << 30, *protocol.DEADLINES[5:])
"""
# Five times what the shop waits here, for a machine that is busy; nobody else would ever close them.
SECONDS_TO_CLOSE = float(os.environ.get("SLOW_SENDERS_SECONDS", "100"))
MORE_BYTES = 50 * 1024 * 1024
# Files that a web process has open besides the crowd's connections.
SPARE_CONNECTIONS = 200
# The crowd is looked at, and the buyer calls, each time so many more have come.
LOOKS, READ_AFTER = 10, 50
LOOK_AFTER = CROWD // LOOKS


@pytest.fixture
def web(process_environment: dict[str, str], tmp_path: Path) -> Iterator[Caller]:
    with web_process(process_environment, folder=tmp_path) as caller:
        yield caller


def send(running: ExitStack, web: Caller, *, path: str, length: int, body: str) -> socket.socket:
    """Begin a POST of `length` bytes of which only `body` comes."""
    sender = running.enter_context(socket.create_connection(("127.0.0.1", web.port), timeout=60))
    sender.sendall((HEAD.format(path=path, port=web.port, length=length) + body).encode())
    return sender


@pytest.mark.parametrize("path", ["/admin/login/", "/api/v1/sales/nothing/requests"])
def test_quick_senders_are_answered(web: Caller, path: str) -> None:
    with ExitStack() as running:
        senders = [send(running, web, path=path, length=2, body="{}") for _ in range(SENDERS)]
        assert {sender.recv(9) for sender in senders} == {b"HTTP/1.1 "}


@pytest.mark.parametrize("path", ["/admin/login/", "/sales/nothing/"])
def test_slow_senders_stop_no_page(web: Caller, path: str) -> None:
    def seconds() -> float:
        with ExitStack() as running:
            for _ in range(SENDERS):
                send(running, web, path=path, length=500, body="{")
            page, ready = web.get("/"), web.get("/readyz")
        assert page.status == 200
        assert ready.status in (200, 503)
        # A busy machine may keep a store from answering in time: that counts as no answer.
        return page.seconds + ready.seconds if ready.status == 200 else math.inf

    # Less than the shop waits for a body: not only after the slow ones were given up.
    assert_waits_at_most(BODY_SECONDS - 1, seconds)


def test_a_body_that_never_ends_is_given_up(web: Caller) -> None:
    with ExitStack() as running:
        sender = send(running, web, path="/admin/login/", length=500, body="{")
        answer: list[bytes] = []
        wait_until(lambda: answer.append(sender.recv(12)) or bool(answer[0]))
        assert answer[0] == b"HTTP/1.1 400"


BEGINNINGS = (
    b"",
    b"POST /api/v1/sales/x/requests HTTP/1.1\r\nHost: a\r\nX-Slow: ",
    b"POST /api/v1/sales/x/requests HTTP/1.1\r\nHost: a\r\nContent-Length: 400\r\n\r\n{",
    b"POST /admin/login/ HTTP/1.1\r\nHost: a\r\nContent-Length: 400\r\n\r\n{",
)


def test_a_crowd_of_slow_senders_is_ended_while_a_buyer_is_served(
    many_files: None, process_environment: dict[str, str], tmp_path: Path
) -> None:
    """They come from so many addresses that the limit of one has no part in it."""
    with ExitStack() as running:
        web = running.enter_context(web_process(process_environment, folder=tmp_path))
        crowd = Crowd(web, running)
        for number in range(CROWD):
            crowd.come(BEGINNINGS[number % len(BEGINNINGS)], address=f"127.1.{number // 200}.{1 + number % 200}")
        crowd.wait_until_ended()
    assert len(crowd.lives) == CROWD
    # The control: none was ended because it was one of many. A tenth may be younger: as many may come between two looks
    # at a shop that stands still, and those are let in by a clock that has not gone on yet.
    assert sorted(crowd.lives)[CROWD // LOOKS] >= HEAD_SECONDS - 2
    assert crowd.served_in_crowd > 0


@pytest.mark.parametrize("limit", [CROWD // 4, 0])
def test_one_address_takes_nothing_from_another(
    limit: int, many_files: None, process_environment: dict[str, str], tmp_path: Path
) -> None:
    """The control is no limit: then all of them have a connection at once."""
    environment = {**process_environment, "FAIRDROP_GATE_MAX_CONNECTIONS_PER_ADDRESS": str(limit)}
    with ExitStack() as running:
        program = ("manage.py",) if "SLOW_SENDERS" in os.environ else program_with(LONGER)
        web = running.enter_context(web_process(environment, folder=tmp_path, program=program))
        crowd = Crowd(web, running)
        for _ in range(CROWD):
            crowd.come(b"", address=ATTACKER)
        for _ in range(LARGE_HEADS):
            crowd.come(b"GET / HTTP/1.1\r\nHost: a\r\nX-Large: " + b"a" * LARGE_BYTES, address=ATTACKER)
        seconds = crowd.wait_until_ended()
    assert len(crowd.lives) == CROWD + LARGE_HEADS
    assert crowd.served_in_crowd > 0
    print(f"limit {limit}: {crowd.said}; all ended {seconds:.1f} s after the last came")
    assert seconds <= SECONDS_TO_CLOSE
    assert crowd.more_bytes <= MORE_BYTES
    refused = crowd.refused[b"HTTP/1.1 503"]
    if limit:
        assert crowd.max_connections <= limit + SPARE_CONNECTIONS
        assert refused > 0
    else:
        assert (crowd.max_connections > CROWD // 4 + SPARE_CONNECTIONS, refused) == (True, 0)


class Crowd:
    """Connections that are watched until the shop ends them, while a buyer of another address goes on.

    lives: how long each was open, in seconds; served: how often the buyer was; served_in_crowd: how often with
    at least a tenth of the crowd still open when the answer had come; refused: beginnings of answers.
    """

    def __init__(self, web: Caller, running: ExitStack) -> None:
        self._web, self._running = web, running
        self._open = running.enter_context(selectors.DefaultSelector())
        self._process = next(each for each in psutil.Process().children(recursive=True) if listens(each, web.port))
        assert web.get("/api/v1/sales").status == 200
        self._bytes = self._process.memory_info().rss
        self.more_bytes = self.max_connections = self.served = self.served_in_crowd = self._came = 0
        self._most_open = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES
        self.lives: list[float] = []
        self.refused: Counter[bytes] = Counter()

    def come(self, beginning: bytes, *, address: str) -> None:
        """Open one connection more, as soon as there may be one, and send what a request begins with."""
        while len(self._open.get_map()) >= self._most_open:
            self._read(timeout_seconds=0.1)
        began = time.monotonic()
        sender = self._running.enter_context(
            socket.create_connection(("127.0.0.1", self._web.port), timeout=60, source_address=(address, 0))
        )
        with suppress(ConnectionError):  # it may be refused already
            sender.sendall(beginning)
        self._open.register(sender, selectors.EVENT_READ, began)
        self._came += 1
        if self._came % READ_AFTER == 0:
            self._read()
        if self._came % LOOK_AFTER == 0:
            self._look()

    def wait_until_ended(self) -> float:
        """Wait until the shop has ended them all; return how many seconds that took."""
        began = time.monotonic()
        while self._open.get_map() and time.monotonic() < began + SECONDS_TO_END:
            self._read(timeout_seconds=0.1)
            self._look()
        return time.monotonic() - began

    def _read(self, *, timeout_seconds: float = 0.0) -> None:
        for key, _ in self._open.select(timeout=timeout_seconds):
            try:
                answer = key.fileobj.recv(4096)  # type: ignore[union-attr]
            except ConnectionError:
                answer = b""
            self.refused[answer[:12]] += bool(answer)
            if not answer:
                self.lives.append(time.monotonic() - key.data)
                self._open.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]

    @property
    def said(self) -> str:
        """What was seen, in one line."""
        return (
            f"{len(self.lives):,} ended, {dict(+self.refused)}, {self.max_connections:,} open at most, "
            f"{self.more_bytes / 2**20:.1f} MiB more, a buyer served {self.served} times"
        )

    def _look(self) -> None:
        assert self._web.call("POST", "/api/v1/buyers", timeout_seconds=60).status == 201
        self._read()
        self.served += 1
        self.served_in_crowd += len(self._open.get_map()) >= CROWD // 10
        self.more_bytes = max(self.more_bytes, self._process.memory_info().rss - self._bytes)
        self.max_connections = max(self.max_connections, self._process.num_fds())


def listens(process: psutil.Process, port: int) -> bool:
    """Say whether `process` listens on `port`."""
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in process.net_connections("tcp"))
