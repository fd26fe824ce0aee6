"""Proves that a crowd at the login, or at the pages, does not keep those waiting who pay, and a silent payment provider
not those who cancel. Real web process and stores.
The control is a web process with one pool for everything, which never notices that a caller has left. The seconds that
the shop promises are held by `make test-crowds`, with five times as many payments.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from urllib.parse import urlencode

import pytest

from loadtest.report.timeline import nearest_rank
from shop.gate import pages
from tests.crashes.conftest import READERS
from tests.support.desk import Desk, open_desk
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import running_process
from tests.support.servers.stripe_server import StripeServer, stripe_server
from tests.support.shown_sales import shown_sales
from tests.support.stripe_shop import stripe_environment
from tests.support.waiting import wait_until
from workers.embedded.server import free_port

LOGINS, PAYMENTS = 100, int(os.environ.get("CROWDED_PAYMENTS", "20"))
# More than any pool has threads; so many has the one of the control (tests/support/crashes/shared_pool.py).
AT_ONCE, SHARED_THREADS = 12, 8
# What is promised while a crowd asks, and how many times as long a machine that is busy with other things may take.
P99_SECONDS, READY_SECONDS = 1.0, 3.0
LENIENCE = float(os.environ.get("CROWDED_LENIENCE", "60"))
READY_AFTER = 5  # payments
TRIES, TIMES_AS_LONG = 3, 3.0
# Within that an answer that has come is read, and far less than the shop waits for its provider.
READ_SECONDS = 1.0
CSRF = "a" * 32
SECONDS_TO_END = 120.0


@contextmanager
def web_with(pools: str, environment: dict[str, str], *, folder: Path) -> Iterator[Caller]:
    """Run the web process with its own pools, or with one for everything."""
    caller = Caller(free_port())
    # Each is asked once, and no store is frozen: a machine that stands still for seconds takes none for away.
    environment = {**environment, "FAIRDROP_REDIS_TIMEOUT_SECONDS": "30"}
    command = [sys.executable, "-m", "tests.support.crashes.shared_pool", pools, str(caller.port)]
    with running_process("web", command, environment=environment, folder=folder):
        wait_until(lambda: serves(caller), what="the web process serves")
        yield caller


def serves(caller: Caller) -> bool:
    try:
        return caller.get("/readyz", timeout_seconds=5).status == 200
    except OSError:
        return False


@pytest.fixture
def open_web(
    many_files: None, process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path
) -> Iterator[Callable[[str], Desk]]:
    """Return a function that starts a web process and makes buyers with holds there."""
    with ExitStack() as running:

        def start(pools: str) -> Desk:
            web = running.enter_context(web_with(pools, process_environment, folder=tmp_path))
            return open_desk(web, shown_sales(web, new_sku), units=PAYMENTS, buyers=PAYMENTS)

        yield start


def connect(desk: Desk, number: int) -> socket.socket:
    """Connect from an address of this machine that few others of the crowd have."""
    source = (f"127.0.{1 + number // 200}.{1 + number % 200}", 0)
    return socket.create_connection(("127.0.0.1", desk.web.port), timeout=60, source_address=source)


@contextmanager
def hung_up_logins(desk: Desk) -> Iterator[None]:
    """Guess a password at so many accounts, from as many addresses, that no guess is locked out; then hang up."""
    with ExitStack() as running:
        for number in range(LOGINS):
            form = urlencode({"username": f"user-{number}", "password": "a guess", "csrfmiddlewaretoken": CSRF})
            head = (
                f"POST /admin/login/ HTTP/1.1\r\nHost: 127.0.0.1:{desk.web.port}\r\nCookie: csrftoken={CSRF}\r\n"
                f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(form)}\r\n\r\n"
            )
            running.enter_context(connect(desk, number)).sendall((head + form).encode())
        time.sleep(0.5)
    yield


@contextmanager
def readers(desk: Desk, *, cookie: str) -> Iterator[None]:
    """Ask for a sale's page and wait for nothing; afterwards read each answer."""
    head = f"GET /sales/{desk.card.slug}/ HTTP/1.1\r\nHost: 127.0.0.1:{desk.web.port}\r\nCookie: {cookie}\r\n\r\n"
    with ExitStack() as running:
        waiting = running.enter_context(selectors.DefaultSelector())
        for number in range(READERS):
            reader = running.enter_context(connect(desk, number))
            reader.sendall(head.encode())
            waiting.register(reader, selectors.EVENT_READ)
        yield
        statuses = list(read_all(waiting))
    assert len(statuses) == READERS
    assert "200" in statuses


def read_all(waiting: selectors.BaseSelector) -> Iterator[str]:
    """Read each answer, a page or 503 with the time to wait; give its status."""
    deadline = time.monotonic() + SECONDS_TO_END
    while waiting.get_map() and time.monotonic() < deadline:
        for key, _ in waiting.select(timeout=0.1):
            deadline = time.monotonic() + SECONDS_TO_END
            answer: bytes = key.fileobj.recv(65536)  # type: ignore[union-attr]
            assert b" 200 " in answer[:20] or (b" 503 " in answer[:20] and b"retry-after: " in answer), answer[:500]
            waiting.unregister(key.fileobj)
            yield answer[9:12].decode()


def seconds_to_pay(desk: Desk, crowd: AbstractContextManager[None]) -> tuple[list[float], list[float]]:
    """Return how long each payment took that began after the crowd had asked, and /readyz in between."""
    answers, ready = [], []
    with crowd:
        for number in range(PAYMENTS):
            if number % READY_AFTER == 0:
                ready.append(desk.web.get("/readyz"))
            answers.append(desk.call("payment", number, body={}))
    assert {answer.status for answer in answers} == {200}
    assert {answer.status for answer in ready} <= {200, 503}  # 503: a store is late, as on a busy machine
    return [answer.seconds for answer in answers], [answer.seconds for answer in ready]


@pytest.mark.parametrize("crowd", [hung_up_logins, partial(readers, cookie="ticket=x")], ids=["logins", "readers"])
def test_payments_do_not_wait_for_a_crowd(
    crowd: Callable[[Desk], AbstractContextManager[None]], open_web: Callable[[str], Desk]
) -> None:
    """The control, with one pool for all, is the measure too: the machine may be busy with other things."""
    desk, shared = open_web("own"), open_web("shared")
    paid, ready = zip(*(seconds_to_pay(desk, crowd(desk)) for _ in range(TRIES)), strict=True)
    p99, slowest_ready = nearest_rank(list(chain(*paid)), 0.99), max(chain(*ready))
    print(f"{TRIES * PAYMENTS} payments: p99 {p99:.2f} s, the slowest /readyz {slowest_ready:.2f} s")
    assert p99 <= P99_SECONDS * LENIENCE
    assert slowest_ready <= READY_SECONDS * LENIENCE
    most_seconds = max(P99_SECONDS, TIMES_AS_LONG * min(map(max, paid)))
    path, headers = f"/api/v1/requests/{shared.ids[0]}/payment", shared.buyers[0].headers
    with crowd(shared), pytest.raises(TimeoutError):
        shared.web.call("POST", path, headers=headers, timeout_seconds=most_seconds)


@contextmanager
def silent(provider: StripeServer) -> Iterator[threading.Semaphore]:
    """Let the provider take calls and answer none until the end of the block; lend what counts the calls."""
    calls, go_on = threading.Semaphore(0), threading.Event()
    provider.before_answer = lambda _: calls.release() or go_on.wait(SECONDS_TO_END)
    try:
        yield calls
    finally:
        go_on.set()
        provider.before_answer = lambda _: None


def is_cancelled_before_a_payment_ends(desk: Desk, provider: StripeServer, *, number: int, threads: int) -> bool:
    """Take all `threads` with payments that get no answer, then cancel the hold of buyer `number`: was that first?"""
    with ThreadPoolExecutor(AT_ONCE) as pool, silent(provider) as calls:
        paying = [pool.submit(desk.call, "payment", each, body={"page": True}) for each in range(AT_ONCE)]
        assert all(calls.acquire(timeout=SECONDS_TO_END) for _ in range(threads))
        cancelled = desk.call("cancel", number)
        # An answer that came before may not have been read yet.
        first = not wait(paying, timeout=READ_SECONDS, return_when=FIRST_COMPLETED).done
    assert (cancelled.status, cancelled.json()["state"]) == (200, "cancelled")
    assert {each.result().status for each in paying} <= {200, 503}
    return first


@pytest.mark.parametrize(("pools", "threads"), [("own", pages.SIZES[pages.PAYMENTS][0]), ("shared", SHARED_THREADS)])
def test_a_silent_provider_stops_no_cancel(
    pools: str, threads: int, process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path
) -> None:
    """The control: with one pool a cancel waits until a payment has given up, whatever the pace of the machine."""
    with stripe_server() as provider:
        environment = process_environment | stripe_environment(provider)
        with web_with(pools, environment, folder=tmp_path) as web:
            buyers = AT_ONCE + TRIES
            desk = open_desk(web, shown_sales(web, new_sku), units=buyers, buyers=buyers)
            first = [
                is_cancelled_before_a_payment_ends(desk, provider, number=AT_ONCE + each, threads=threads)
                for each in range(TRIES)
            ]
    assert any(first) is (pools == "own")
