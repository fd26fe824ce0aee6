"""Proves that people who send slowly, or not at all, take nothing from anybody else, and are ended. Begins with the
control: the same senders, quick, are answered. `make test-slow-senders` sends ten times as many.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shop.gate.http import BODY_SECONDS
from shop.gate.limits import HEAD_SECONDS
from tests.crashes.conftest import CROWD
from tests.http_calls import Caller
from tests.shop_processes import web_process
from tests.waiting import assert_waits_at_most, wait_until

HEAD = (
    "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    "Authorization: Bearer x\r\nContent-Length: {length}\r\n\r\n"
)
# More than Django has threads.
SENDERS = 12
SECONDS_TO_END = 60.0


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
            pages = [web.get("/"), web.get("/readyz")]
            assert [page.status for page in pages] == [200, 200]
            return sum(page.seconds for page in pages)

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
    with ExitStack() as running:
        web = running.enter_context(web_process(process_environment, folder=tmp_path))
        open_ones = running.enter_context(selectors.DefaultSelector())
        opened, served = [], 0
        for number in range(CROWD):
            sender = running.enter_context(socket.create_connection(("127.0.0.1", web.port), timeout=60))
            sender.sendall(BEGINNINGS[number % len(BEGINNINGS)])
            open_ones.register(sender, selectors.EVENT_READ, time.monotonic())
            if number % (CROWD // 10) == 0:
                served += web.call("POST", "/api/v1/buyers", timeout_seconds=10).status == 201
        deadline = time.monotonic() + SECONDS_TO_END
        while open_ones.get_map() and time.monotonic() < deadline:
            for key, _ in open_ones.select(timeout=0.1):
                if not _read(key.fileobj):
                    opened.append(time.monotonic() - key.data)
                    open_ones.unregister(key.fileobj)
            served += web.get("/api/v1/sales", timeout_seconds=10).status == 200
    assert len(opened) == CROWD
    assert min(opened) >= HEAD_SECONDS - 2  # the control: none was ended because it was one of many
    assert served > 10


def _read(sender: socket.socket) -> bytes:
    try:
        return sender.recv(4096)
    except ConnectionError:
        return b""
