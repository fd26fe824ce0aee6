"""A pool of threads takes so many calls and no more, and does not begin one whose caller has left. Needs no server."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from inventory.exceptions import Unavailable
from shop.gate import pages
from shop.gate.pages import Pages
from shop.gate.server import threads
from shop.gate.server.threads import ThreadPool
from shop.http import send_answer
from shop.replies import problem_answer
from tests.support.servers.http_server import Application, read_to_end, read_until, running_server, statuses
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
LOGIN = b"POST /admin/login/ HTTP/1.1\r\nHost: shop\r\nContent-Length: 1\r\n\r\n%d"


def test_a_full_pool_refuses_at_once() -> None:
    async def fill() -> None:
        go_on = threading.Event()
        pool = ThreadPool("test", threads=1, max_waiting=2)
        taken = [asyncio.ensure_future(pool.run(go_on.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        assert pool.is_full
        with pytest.raises(Unavailable):
            await pool.run(go_on.wait)
        go_on.set()
        assert await asyncio.gather(*taken) == [True, True]
        assert await pool.run(lambda: "free again") == "free again"

    asyncio.run(fill())


@pytest.mark.parametrize("leaves", [True, False])
def test_a_call_whose_caller_left_is_not_begun(leaves: bool) -> None:
    """The control is a caller who stays."""

    async def leave() -> list[str]:
        begun: list[str] = []
        go_on = threading.Event()
        pool = ThreadPool("test", threads=1, max_waiting=3)
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        first = asyncio.ensure_future(pool.run(go_on.wait, left=left))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(pool.run(partial(begun.append, "second"), left=left))
        third = asyncio.ensure_future(pool.run(partial(begun.append, "third")))
        await asyncio.sleep(0)
        if leaves:
            left.set_result(None)
            with pytest.raises(Unavailable):
                await second
        go_on.set()
        assert await first  # what has begun goes on
        await asyncio.gather(third, *([] if leaves else [second]))
        return begun

    assert asyncio.run(leave()) == (["third"] if leaves else ["second", "third"])


class SlowStaff:
    """A WSGI application that keeps each caller until it is told to go on. begun: the bodies it has read."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.go_on = threading.Event()

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        self.begun.append(environ["wsgi.input"].read())
        self.go_on.wait(60)
        start_response("200 OK", [("Content-Length", "4")])
        return [b"done"]


class Behind(Application):
    """Gives what is below /admin/ to pages, as the gate does."""

    def __init__(self, staff: SlowStaff) -> None:
        super().__init__()
        self._pages = Pages(staff)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await super().__call__(scope, receive, send)
        try:
            return await self._pages(scope, receive, send)
        except Unavailable as error:
            return await send_answer(send, *problem_answer(error))


@pytest.fixture
def staff(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowStaff]:
    monkeypatch.setitem(pages.SIZES, pages.STAFF, (1, 3))
    staff = SlowStaff()
    yield staff
    staff.go_on.set()


def test_who_hung_up_makes_room_and_costs_no_thread(staff: SlowStaff) -> None:
    with running_server(Behind(staff)) as web, web.connect() as first:
        first.sendall(LOGIN % 1)
        wait_until(lambda: staff.begun == [b"1"])
        for number in (2, 3):
            with web.connect() as connection:
                connection.sendall(LOGIN % number)
                wait_until(lambda: web.connections == 2)
            wait_until(lambda: web.connections == 1, what="it is gone")
        with web.connect() as stays, web.connect() as stays_too:
            stays.sendall(LOGIN % 4)
            stays_too.sendall(LOGIN % 5)
            assert statuses(web.talk(LOGIN % 6)) == [503]  # full
            staff.go_on.set()
            for each in (first, stays, stays_too):
                read_until(each, b"done")
    assert staff.begun == [b"1", b"4", b"5"]


def test_who_waits_and_has_only_stopped_sending_is_told(staff: SlowStaff) -> None:
    """It cannot be told from one who left; the control is one that has a thread already."""
    with running_server(Behind(staff)) as web, web.connect() as first:
        first.sendall(LOGIN % 1)
        wait_until(lambda: staff.begun == [b"1"])
        first.shutdown(socket.SHUT_WR)
        assert statuses(web.talk(LOGIN % 2)) == [503]
        staff.go_on.set()
        assert statuses(read_to_end(first)) == [200]


@pytest.mark.parametrize(
    ("method", "path", "pool"),
    [
        ("GET", "/sales/a/", pages.PAGES),
        ("POST", "/sales/a/", pages.PAGES),
        ("GET", "/requests/1-a/", pages.PAGES),
        ("GET", "/static/shop/press.js", pages.FILES),
        ("GET", "/pictures/a.webp", pages.FILES),
        ("POST", "/requests/1-a/payment/", pages.PAYMENTS),
        ("POST", "/api/v1/requests/1-a/payment", pages.PAYMENTS),
        ("POST", "/requests/1-a/cancel/", pages.CHANGES),
        ("POST", "/api/v1/requests/1-a/cancel", pages.CHANGES),
        ("POST", "/api/v1/tickets/restore", pages.CHANGES),
        ("GET", "/sandbox/pay/a/", pages.PAYMENTS),
        ("POST", "/admin/login/", pages.STAFF),
        ("GET", "/api/v1/sales/a/audit", pages.STAFF),
        # The proxy does not take these for what staff need.
        ("GET", "/admin/../a/", pages.PAGES),
        ("GET", "/api/../a/audit", pages.PAGES),
    ],
)
def test_each_call_has_its_pool(method: str, path: str, pool: str) -> None:
    assert pages.pool_of({"method": method, "path": path}) == pool


@pytest.mark.parametrize("turns_later", range(6))
def test_who_is_cancelled_as_their_turn_comes_leaves_it_to_the_next(turns_later: int) -> None:
    """Whichever turn of the event loop it is: the next call is run, and the pool has its one thread again."""

    async def scene() -> str:
        pool, go_on = ThreadPool("test", threads=1, max_waiting=9), threading.Event()
        first = asyncio.ensure_future(pool.run(go_on.wait))
        await asyncio.sleep(0.01)
        second = asyncio.ensure_future(pool.run(lambda: "second"))
        await asyncio.sleep(0)
        go_on.set()
        await first
        for _ in range(turns_later):
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        return await asyncio.wait_for(pool.run(lambda: "third"), timeout=60)

    assert asyncio.run(scene()) == "third"


def test_once_the_pools_are_closed_none_of_them_begins_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control is what is under way: it goes on."""
    monkeypatch.setattr(threads, "_POOLS", WeakSet())

    async def close() -> list[str]:
        begun: list[str] = []
        began, go_on = threading.Semaphore(0), threading.Event()

        def hold() -> bool:
            began.release()
            return go_on.wait(60)

        pools = [ThreadPool("test", threads=1, max_waiting=2) for _ in range(2)]
        under_way = [asyncio.ensure_future(pool.run(hold)) for pool in pools]
        waiting = [asyncio.ensure_future(pool.run(partial(begun.append, "begun"))) for pool in pools]
        for _ in pools:
            await asyncio.to_thread(began.acquire)
        threads.close_pools()
        go_on.set()
        assert await asyncio.gather(*under_way) == [True, True]
        await asyncio.wait(waiting)
        assert all(isinstance(each.exception(), RuntimeError) for each in waiting)
        return begun

    assert asyncio.run(close()) == []


def test_the_text_says_how_many_connections_a_web_process_may_have() -> None:
    """One for each thread, but for those of passes, which ask no store."""
    texts = [path.read_text() for path in (ROOT / "shop" / "gate").rglob("*.py")]
    threads = [int(number) for text in texts for number in re.findall(r"ThreadPool\(.*threads=([0-9]+)", text)]
    pools = sum(text.count(" ThreadPool(") for text in texts)
    assert len(threads) == pools - len(["pages", "passes"])
    most = sum(threads) + sum(threads for name, (threads, _) in pages.SIZES.items() if name != pages.FILES)
    said = re.findall(r"uses the database, ([0-9]+) at most", (ROOT / "docs" / "operations.md").read_text())
    assert said == [str(most)]
