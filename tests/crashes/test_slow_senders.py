"""Proves that people who send slowly, or not at all, take nothing from anybody else. Begins with the control:
the same senders, quick, are answered. Called by pytest.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shop.gate.http import BODY_SECONDS
from tests.http_calls import Caller
from tests.shop_processes import web_process
from tests.waiting import assert_waits_at_most, wait_until

HEAD = (
    "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    "Authorization: Bearer x\r\nContent-Length: {length}\r\n\r\n"
)
# More than Django has threads.
SENDERS = 12


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
