"""An answer of staff that streams is made a part at a time, as its reader takes it, and no thread waits for the reader.
Needs neither Redis nor PostgreSQL.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from shop.gate.pages import Pages
from tests.support.servers.http_server import Application, read_to_end, running_server
from tests.support.waiting import wait_until

PART = b"x" * 100_000
PARTS = 200
ASK = b"GET %b HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n"


class Table:
    """A WSGI application whose answer comes in parts. made: how many were; closed: how often the answer was ended."""

    def __init__(self, *, fails_at: int = PARTS) -> None:
        self.made = self.closed = 0
        self._fails_at = fails_at
        self.threads: set[str] = set()

    def __call__(self, environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", "text/csv")])
        return Answer(self)

    def parts(self) -> Iterator[bytes]:
        for number in range(PARTS):
            if number == self._fails_at:
                raise RuntimeError("the table ends here")
            self.threads.add(threading.current_thread().name)
            self.made += 1
            yield PART


class Answer:
    """As Django's streaming answer."""

    streaming = True

    def __init__(self, table: Table) -> None:
        self._table = table

    def __iter__(self) -> Iterator[bytes]:
        return self._table.parts()

    def close(self) -> None:
        self._table.closed += 1


class Behind(Application):
    """Gives everything to pages, as the gate does."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._pages = Pages(table)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await super().__call__(scope, receive, send)
        return await self._pages(scope, receive, send)


def test_a_table_comes_whole_and_is_closed() -> None:
    table = Table()
    with running_server(Behind(table)) as web:
        answer = web.talk(ASK % b"/admin/export/", ends=False)
        assert answer.count(b"x") >= PARTS * len(PART)
        assert answer.endswith(b"0\r\n\r\n")
        wait_until(lambda: table.closed == 1)
    assert all(name.startswith("staff") for name in table.threads)


def test_nothing_is_made_before_its_reader_takes_it_and_who_leaves_ends_it() -> None:
    table = Table()
    with running_server(Behind(table)) as web:
        with web.connect() as connection:
            connection.sendall(ASK % b"/admin/export/")
            wait_until(lambda: table.made > 0)
            made = -1
            while made != table.made:  # until it rests: the kernel takes some megabytes ahead
                made = table.made
                threading.Event().wait(0.5)
            assert table.made < PARTS
            assert web.talk(ASK % b"/admin/other/", ends=False).count(b"x") >= PARTS * len(
                PART
            )  # the thread is free meanwhile
        wait_until(lambda: table.closed == 2, what="who left ends it")


def test_what_fails_in_between_never_looks_whole() -> None:
    table = Table(fails_at=3)
    with running_server(Behind(table)) as web:
        answer = web.talk(ASK % b"/admin/export/", ends=False)
    assert answer.startswith(b"HTTP/1.1 200")
    assert not answer.endswith(b"0\r\n\r\n")
    assert table.closed == 1


def test_a_server_that_stops_never_makes_a_piece_look_whole() -> None:
    table = Table()
    with running_server(Behind(table)) as web, web.connect() as connection:
        connection.sendall(ASK % b"/admin/export/")
        wait_until(lambda: table.made > 0)
        connection.shutdown(socket.SHUT_WR)  # as at a stop, what is endless is ended
        answer = read_to_end(connection)
    assert answer.count(b"x") < PARTS * len(PART)
    assert not answer.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("path", [b"/sales/", b"/static/x"])
def test_the_control_elsewhere_an_answer_is_taken_at_once(path: bytes) -> None:
    table = Table()
    with running_server(Behind(table)) as web, web.connect() as connection:
        connection.sendall(ASK % path)
        wait_until(lambda: table.made == PARTS and table.closed == 1)
        read_to_end(connection)
