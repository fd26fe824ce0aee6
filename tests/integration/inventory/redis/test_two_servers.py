"""The web process answers as the server of before did: granian, which serves the same application by ASGI alone.
Both get the same 10,000 requests, ordinary and odd, in odd pieces. What differs on purpose is listed below.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from inventory.records import request_id
from shop.buyers import issue_buyer
from shop.sales.catalogue import SaleCard
from tests.support.http_calls import Caller
from tests.support.odd_requests import Answer, Conversation, Request, conversations, hold_all
from tests.support.servers.shop_processes import running_process
from tests.support.shopkeeping import make_sale
from tests.support.shown_sales import wait_until_shown
from tests.support.waiting import wait_until
from workers.embedded.server import free_port

REQUESTS = int(os.environ.get("TWO_SERVERS_REQUESTS", "10000"))
TIMES_AGAIN = 3
SEED = int(os.environ.get("TWO_SERVERS_SEED", "20260101"))


@pytest.fixture(scope="module")
def old_web(shop_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """Run the application on granian, as it was run before."""
    caller = Caller(free_port())
    command = [sys.executable, "-m", "granian", "--interface", "asgi", "--loop", "uvloop", "--no-ws"]
    command += ["--port", str(caller.port), "shop.asgi:application"]

    def serves() -> bool:
        try:
            return caller.get("/healthz", timeout_seconds=1).status == 200
        except OSError:
            return False

    with running_process("old", command, environment=shop_environment, folder=tmp_path_factory.mktemp("old")):
        wait_until(serves, what="granian serves")
        yield caller


def words_of(card: SaleCard) -> Callable[[bytes, str], bytes]:
    """Return what puts a sale's slug and its buyers' request ids into a request."""

    def put(text: bytes, buyer: str) -> bytes:
        def name(found: re.Match[bytes]) -> bytes:
            key = found[1].decode()
            made = request_id(sale_id=card.sale_id, request_key=card.request_id_key(), buyer=buyer, idempotency_key=key)
            return made.encode()

        return re.sub(rb"\{id:([^}]*)\}", name, text.replace(b"{slug}", card.slug.encode()))

    return put


def test_both_servers_give_the_same_answers_in_the_same_order(
    web: Caller, old_web: Caller, shop_database: None, new_sku: Callable[[], str]
) -> None:
    found = conversations(REQUESTS, seed=SEED, buyers=[issue_buyer() for _ in range(REQUESTS)])

    def held(talks: list[Conversation]) -> list[list[list[Answer]]]:
        """Hold the conversations with both servers, in a sale of its own with each."""
        answers = []
        for caller in (old_web, web):
            card = make_sale(new_sku(), units=REQUESTS, limit=1000)
            wait_until_shown(web, card)
            wait_until_shown(old_web, card)
            answers.append(asyncio.run(hold_all(talks, port=caller.port, words=words_of(card))))
        return answers

    old, new = held(found)
    # A machine that stands still for a moment makes a 503 or a broken connection; what differs by the servers stays.
    for _ in range(TIMES_AGAIN):
        if not (again := [place for place in range(len(found)) if differ(found[place], old[place], new[place])]):
            break
        for place, first, second in zip(again, *held([found[place] for place in again]), strict=True):
            old[place], new[place] = first, second
    assert_alike(found, old, new)
    statuses = {answer.status for each in new for answer in each}
    # The control: the requests reach every part of the contract, not only its refusals.
    assert {200, 201, 202, 400, 401, 403, 404, 405, 422} <= statuses


def differ(talk: Conversation, old: list[Answer], new: list[Answer]) -> bool:
    try:
        assert_alike([talk], [old], [new], max_ended=1)
    except AssertionError:
        return True
    return False


def assert_alike(
    found: list[Conversation], old: list[list[Answer]], new: list[list[Answer]], *, max_ended: float = 0.05
) -> None:
    different, ended = [], 0
    for conversation, first, second in zip(found, old, new, strict=True):
        refused = False
        for request, before, now in zip(conversation.requests, first, second, strict=False):
            if before.status == 0 and (refused or refuses_unread(request, now)):
                ended += 1
                break
            refused = refuses_unread(request, before)
            if before != now and not (refused and without_end(before) == now):
                different.append((conversation.delivery, request.text, before, now))
    assert not different, f"{len(different)} differ, the first: {different[:3]}"
    assert [len(each) for each in new] == [each.wanted for each in found]
    assert ended <= len(found) * max_ended


def refuses_unread(request: Request, answer: Answer) -> bool:
    """Say whether the old server refused a message whose body it may not have read, and so may end the connection.

    The new one reads the body to its end, and goes on.
    """
    return answer.status >= 400 and (not request.text.endswith(b"\r\n\r\n") or b"chunked" in request.text.lower())


def without_end(answer: Answer) -> Answer:
    return replace(answer, headers={name: text for name, text in answer.headers.items() if name != "connection"})


def test_one_answer_that_differs_would_be_seen() -> None:
    """The control."""
    talk = [Conversation([Request("GET", b"GET / HTTP/1.1\r\n\r\n")] * 2, "glued", 1, "b")]
    first, second = Answer(200, {}, "a"), Answer(404, {}, "b")
    assert_alike(talk, [[first, second]], [[first, second]])
    for other in ([second, first], [first, first], [first]):
        with pytest.raises(AssertionError):
            assert_alike(talk, [[first, second]], [other])


HEAD = b"POST /api/v1/sales/x/requests HTTP/1.1\r\n"
HOST = b"Host: 127.0.0.1\r\n"
END = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
# What a message is, must be said in one way only: a proxy in front may read it in the other.
SMUGGLED = {
    "two lengths": HEAD + HOST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "the same length twice": HEAD + HOST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "lengths in a list": HEAD + HOST + b"Content-Length: 2, 2\r\n\r\n{}",
    "a length and chunks": HEAD + HOST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": HEAD + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
    "an encoding that is not chunked": HEAD + HOST + b"Transfer-Encoding: identity\r\n\r\n{}",
    "chunked, and then another": HEAD + HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a folded header": HEAD + HOST + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
    "a bare line feed": HEAD + HOST + b"X: a\nContent-Length: 2\r\n\r\n{}",
    "bare line feeds only": b"GET /healthz HTTP/1.1\nHost: 127.0.0.1\n\n",
    "a bare carriage return": HEAD + HOST + b"X: a\rContent-Length: 2\r\n\r\n{}",
    "a blank before the colon": HEAD + HOST + b"Content-Length : 2\r\n\r\n{}",
    "a length with a sign": HEAD + HOST + b"Content-Length: +2\r\n\r\n{}",
    "a length in hexadecimal": HEAD + HOST + b"Content-Length: 0x2\r\n\r\n{}",
    "a chunk size with a sign": HEAD + HOST + b"Transfer-Encoding: chunked\r\n\r\n+2\r\n{}\r\n0\r\n\r\n",
    "a chunk size with a bare line feed": HEAD + HOST + b"Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n",
    "a chunk longer than its size": HEAD + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
    "no host": HEAD + b"Content-Length: 2\r\n\r\n{}",
    "two hosts": HEAD + HOST + HOST + b"Content-Length: 2\r\n\r\n{}",
    "an upgrade with a body": HEAD + HOST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}",
    "another version": b"GET /healthz HTTP/2.0\r\nHost: 127.0.0.1\r\n\r\n",
    "NUL in a header": HEAD + HOST + b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}",
    "a blank in a header's name": HEAD + HOST + b"X Y: a\r\nContent-Length: 2\r\n\r\n{}",
}


def answers_to(port: int, text: bytes) -> list[int]:
    """Send `text` and an ordinary call after it; return the statuses until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(text + END)
        found = b""
        while part := connection.recv(65536):
            found += part
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", found)]


@pytest.mark.parametrize("what", SMUGGLED)
def test_what_can_be_read_in_two_ways_is_refused_and_ends_the_connection(web: Caller, what: str) -> None:
    assert answers_to(web.port, SMUGGLED[what]) == [400]


def test_the_same_without_the_fault_is_answered_and_so_is_what_follows(web: Caller) -> None:
    """The control."""
    assert answers_to(web.port, HEAD + HOST + b"Content-Length: 2\r\n\r\n{}") == [404, 200]
    assert answers_to(web.port, HEAD + HOST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n") == [404, 200]


# What the old server took and the new one refuses, or answers in another way, on purpose.
MEANT = {
    "the same length twice": [404, 200],
    "bare line feeds only": [200, 200],
    "no host": [400, 200],
    "two hosts": [404, 200],
}


@pytest.mark.parametrize("what", MEANT)
def test_what_differs_from_the_old_server_is_meant(old_web: Caller, web: Caller, what: str) -> None:
    assert answers_to(old_web.port, SMUGGLED[what]) == MEANT[what]
    assert answers_to(web.port, SMUGGLED[what]) == [400]
