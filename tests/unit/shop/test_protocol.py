"""One connection of the web process: answers keep their order, however requests come, and nothing is waited for
without an end. Needs neither Redis nor PostgreSQL.
"""

from __future__ import annotations

import gc
import socket
import struct
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from shop.gate.server import protocol, silent
from shop.gate.server.limits import PORTION_BYTES, AddressLimit
from shop.gate.server.protocol import GateProtocol
from shop.gate.server.write_queue import ANSWERS_AT_ONCE
from tests.support.servers.http_server import (
    SECONDS,
    Running,
    bodies,
    read_to_end,
    read_until,
    running_server,
    statuses,
)
from tests.support.waiting import wait_until

HOST = b"Host: shop\r\n"
# With more attributes, an instance has a dictionary of its own, with their names.
MAX_SHARED_NAMES = 30
READ_BYTES = 64 * 1024  # what the kernel hands over at a time
WRITE_BUFFER_BYTES = 64 * 1024  # what the transport keeps of answers before it asks for a pause


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with running_server() as web:
        yield web


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Run a server that ends nothing by a deadline: the machine may stand still."""
    for module in (protocol, silent):
        monkeypatch.setattr(module, "DEADLINES", (1 << 30,) * 6)
    with running_server() as web:
        yield web


def get(path: str, *, more: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\n%b%b\r\n" % (path.encode(), HOST, more)


def post(path: str, body: bytes, *, more: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n%b\r\n%b" % (path.encode(), HOST, len(body), more, body)


def chunked(path: str, *parts: bytes, trailer: bytes = b"") -> bytes:
    text = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    head = b"POST %b HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n" % (path.encode(), HOST)
    return head + text + b"0\r\n" + trailer + b"\r\n"


def wait_for_connections(web: Running, count: int) -> list[GateProtocol]:
    """Return the server's connections on which something came, as soon as there are `count`."""

    def found() -> list[GateProtocol]:
        return [each for each in list(web.server.server_state.connections) if isinstance(each, GateProtocol)]

    wait_until(lambda: len(found()) == count)
    return found()


def connections_of(web: Running, callers: list[socket.socket]) -> list[GateProtocol]:
    """Return the server's connections to `callers`, each after its first answer."""
    for caller in callers:
        caller.sendall(get("/hot?0"))
        read_until(caller, b"hot 0 ")
    return wait_for_connections(web, len(callers))


class AnswersPerTurn:
    """Counts the hot calls that are answered in one turn of the server's event loop. most: in any turn so far."""

    def __init__(self, web: Running) -> None:
        self.most = self._now = 0
        self._application, self._answer = web.application, web.application._echo
        web.application._echo = self._count  # type: ignore[method-assign]

    def _count(self, *arguments: Any) -> None:
        if not self._now:
            assert self._application.loop is not None
            self._application.loop.call_soon(self._begin_turn)
        self._now += 1
        self.most = max(self.most, self._now)
        self._answer(*arguments)

    def _begin_turn(self) -> None:
        self._now = 0


# Order.


@pytest.mark.parametrize("first", ["/held?1", "/slow?1"])
def test_answers_keep_their_order_under_pipelining(web: Running, first: str) -> None:
    with web.connect() as connection:
        connection.sendall(get(first) + get("/hot?2") + post("/x?3", b"abc") + get("/hot?4"))
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)  # the first is unanswered, and so is everything after it
        connection.settimeout(SECONDS)
        web.application.release.set()
        wait_until(lambda: first == "/slow?1" or len(web.application.held) == 1, what="it is held")
        web.application.answer_held()
        connection.shutdown(socket.SHUT_WR)
        found = [each.split()[1] for each in bodies(read_to_end(connection))]
    assert found == [b"1", b"2", b"3", b"4"]


def test_a_thousand_glued_requests_are_answered_in_order(shared: Running) -> None:
    requests = [get(f"/hot?{n}") if n % 3 else post(f"/y?{n}", b"b" * n) for n in range(1000)]
    found = bodies(shared.talk(b"".join(requests)))
    assert [int(each.split()[1]) for each in found] == list(range(1000))


def test_what_is_split_at_every_byte_is_the_same(shared: Running) -> None:
    request = post("/hot?a", b"body") + chunked("/x?b", b"ab", b"cd") + get("/hot?c", more=b"Connection: close\r\n")
    parts = [request[n : n + 1] for n in range(len(request))]
    assert bodies(shared.talk(*parts)) == [b"hot a body", b"x b abcd", b"hot c "]


@pytest.mark.parametrize("count", [3, ANSWERS_AT_ONCE + 3])
def test_answers_from_memory_are_written_after_they_are_made(web: Running, count: int) -> None:
    with ExitStack() as stack:
        callers = [stack.enter_context(web.connect()) for _ in range(count)]
        connections = connections_of(web, callers)

        def ask_all() -> int:
            for connection in connections:
                connection.data_received(get("/hot?1"))
            return sum(bool(connection.unwritten) for connection in connections)

        waiting = web.between_turns(ask_all)
        for caller in callers:
            read_until(caller, b"hot 1 ")
    assert waiting == count % ANSWERS_AT_ONCE  # as many as are too few for a group


def end_of_stream(connection: GateProtocol) -> None:
    if not connection.eof_received():
        connection.transport.close()


@pytest.mark.parametrize(
    "end",
    [end_of_stream, GateProtocol.shutdown, GateProtocol._leave, lambda each: each.check_deadline(each.since + 2**31)],
)
def test_an_end_in_the_same_turn_comes_after_the_answer(web: Running, end: Callable[[GateProtocol], None]) -> None:
    with web.connect() as caller:
        (connection,) = connections_of(web, [caller])

        def ask_and_end() -> None:
            connection.data_received(get("/hot?1"))
            assert connection.unwritten
            end(connection)

        web.between_turns(ask_and_end)
        assert read_to_end(caller).endswith(b"hot 1 ")


def test_one_answer_of_a_connection_waits_at_most(web: Running) -> None:
    with web.connect() as caller:
        (connection,) = connections_of(web, [caller])

        def ask() -> bytes:
            connection.data_received(b"".join(get(f"/hot?{number}") for number in (1, 2, 3)))
            waiting = connection.unwritten
            connection.data_received(b"nonsense\r\n\r\n")
            return waiting

        assert web.between_turns(ask).count(b"HTTP/1.1 ") == 1
        found = read_to_end(caller)
    places = [found.index(text) for text in (b"hot 1 ", b"hot 2 ", b"hot 3 ", b"HTTP/1.1 400 ")]
    assert places == sorted(places)


def test_an_ordinary_answer_comes_after_one_that_waits(web: Running) -> None:
    with web.connect() as caller:
        (connection,) = connections_of(web, [caller])

        def ask() -> bytes:
            connection.data_received(get("/hot?1") + post("/x?2", b"a"))
            return connection.unwritten

        assert web.between_turns(ask).endswith(b"hot 1 ")
        caller.shutdown(socket.SHUT_WR)
        assert bodies(read_to_end(caller)) == [b"hot 1 ", b"x 2 a"]


class Broken:
    def write_out(self) -> None:
        raise RuntimeError


def test_one_connection_that_cannot_write_keeps_no_other_from_it(web: Running) -> None:
    with web.connect() as caller:
        (connection,) = connections_of(web, [caller])

        def ask() -> None:
            connection.writes.add(Broken())
            connection.data_received(get("/hot?1"))

        web.between_turns(ask)
        assert web.between_turns(lambda: connection.unwritten) == b""
        read_until(caller, b"hot 1 ")


def test_a_loop_that_has_ended_is_not_kept() -> None:
    with running_server() as web:
        assert bodies(web.talk(get("/hot?1"))) == [b"hot 1 "]
        assert web.application.loop is not None
        loop = weakref.ref(web.application.loop)
    del web
    gc.collect()
    assert loop() is None


@pytest.mark.parametrize("first", ["/held?1", "/slow?1"])
def test_reading_stops_while_an_answer_is_owed(web: Running, first: str) -> None:
    with web.connect() as connection:
        connection.sendall(get(first))
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.sendall(get("/hot?2") * 1_500_000)  # far more than the kernel keeps
        assert web.application.served == []
        (held,) = wait_for_connections(web, 1)
        assert web.between_turns(lambda: len(held.rest)) <= READ_BYTES
        web.application.release.set()
        web.application.answer_held()
        wait_until(lambda: len(web.application.served) > 1, what="it goes on")


def test_a_reader_who_does_not_read_is_not_read_from(web: Running) -> None:
    with web.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.sendall((get("/long?60000") + get("/hot?1")) * 1_000_000)  # far more than the kernel keeps
        (held,) = wait_for_connections(web, 1)
        assert web.between_turns(lambda: len(held.rest)) <= READ_BYTES
        # The sender may have given up while the machine stood still, before the server had filled its buffers.
        wait_until(lambda: web.between_turns(lambda: held.flow.write_paused), what="the server waits for the reader")
        served = len(web.application.served)
        time.sleep(0.3)
        assert len(web.application.served) == served
    wait_until(lambda: web.connections == 0)


@pytest.mark.parametrize("reads", [False, True])
def test_what_is_answered_to_one_read_waits_for_the_reader(web: Running, reads: bool) -> None:
    """The control reads: it gets every answer, in order."""
    sizes = [60_000 + n for n in range(100)]
    with web.connect() as connection:
        if not reads:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"".join(get(f"/large?{size}") for size in sizes))
        if reads:
            connection.shutdown(socket.SHUT_WR)
            assert [len(body) for body in bodies(read_to_end(connection))] == sizes
            return
        (held,) = wait_for_connections(web, 1)
        wait_until(lambda: held.flow.write_paused)
        assert web.between_turns(held.transport.get_write_buffer_size) < WRITE_BUFFER_BYTES + 2 * 61_000


@pytest.mark.parametrize("portion_bytes", [PORTION_BYTES, 1 << 20])
def test_others_have_their_turn_between_portions_of_one_sender(
    web: Running, monkeypatch: pytest.MonkeyPatch, portion_bytes: int
) -> None:
    """The control is a portion so large that all of it is answered in one turn of the event loop."""
    monkeypatch.setattr(protocol, "PORTION_BYTES", portion_bytes)
    turns = AnswersPerTurn(web)
    request = get("/hot?1")
    assert len(bodies(web.talk(request * 3000))) == 3000
    # In one turn at most: a portion that was planned, and one that was read then.
    assert (turns.most <= 2 * (PORTION_BYTES // len(request) + 1)) == (portion_bytes == PORTION_BYTES)


# What is kept of a connection.


def test_of_a_silent_connection_little_is_kept(web: Running) -> None:
    with web.connect() as connection:
        wait_until(lambda: web.connections == 1)
        (kept,) = web.server.server_state.connections
        assert isinstance(kept, silent.SilentConnection)
        assert not hasattr(kept, "__dict__")
        connection.sendall(b"G")
        (begun,) = wait_for_connections(web, 1)
        assert len(begun.__dict__) <= MAX_SHARED_NAMES
        assert (web.connections, silent.SilentConnection.let_in) == (1, {})


@pytest.mark.parametrize("text", [b"G", get("/hot?1"), get("/slow?1"), get("/slow?1", more=b"Connection: close\r\n")])
def test_nothing_is_kept_of_a_connection_that_ended(web: Running, text: bytes) -> None:
    gc.disable()  # it would free what only a circle keeps
    try:
        with web.connect() as connection:
            connection.sendall(text)
            gone = [weakref.ref(each) for each in wait_for_connections(web, 1)]
        web.application.release.set()
        wait_until(lambda: gone[0]() is None)
    finally:
        gc.enable()


# Ways to begin and to end.


def test_connection_close_ends_after_its_answer_and_drops_what_follows(shared: Running) -> None:
    answers = shared.talk(get("/hot?1", more=b"Connection: close\r\n") + get("/hot?2"), ends=False)
    assert bodies(answers) == [b"hot 1 "]
    assert b"connection: close\r\n" in answers


@pytest.mark.parametrize("path", ["/hot?1", "/x?1"])
def test_http_1_0_ends_after_its_answer(shared: Running, path: str) -> None:
    answers = shared.talk(f"GET {path} HTTP/1.0\r\n\r\n".encode(), ends=False)
    assert statuses(answers) == [200]
    assert b"connection: close" in answers


def test_keep_alive_is_kept(shared: Running) -> None:
    with shared.connect() as connection:
        for number in (b"1", b"2"):
            connection.sendall(get(f"/hot?{number.decode()}", more=b"Connection: keep-alive\r\n"))
            answer = connection.recv(1000)
            assert answer.endswith(b"hot %b " % number)
            assert b"connection:" not in answer


def test_head_has_no_body(shared: Running) -> None:
    answers = shared.talk(b"HEAD /x?1 HTTP/1.1\r\n" + HOST + b"\r\n" + get("/hot?2"))
    assert b"content-length: 4\r\n" in answers
    assert answers.count(b"x 1") == 0
    assert answers.endswith(b"hot 2 ")


@pytest.mark.parametrize("path", ["/hot?1", "/x?1"])
def test_who_expects_it_is_told_to_continue(shared: Running, path: str) -> None:
    head, body = post(path, b"abc", more=b"Expect: 100-continue\r\nConnection: close\r\n").split(b"abc")[0], b"abc"
    with shared.connect() as connection:
        connection.sendall(head)
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert read_to_end(connection).endswith(b"1 abc")


@pytest.mark.parametrize("path", ["/held?1", "/slow?1"])
def test_who_only_stops_sending_still_gets_the_answer(web: Running, path: str) -> None:
    with web.connect() as connection:
        connection.sendall(get(path) + get("/hot?2"))
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.2)
        web.application.release.set()
        wait_until(lambda: path == "/slow?1" or len(web.application.held) == 1, what="it is held")
        web.application.answer_held()
        assert [each.split()[1] for each in bodies(read_to_end(connection))] == [b"1", b"2"]


def test_what_was_sent_before_the_end_is_answered_though_it_waited(web: Running) -> None:
    with web.connect() as connection:
        connection.sendall(get("/held?0"))
        wait_until(lambda: len(web.application.held) == 1)
        connection.sendall(b"".join(get(f"/hot?{n}") for n in range(1, 50)))
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.2)
        web.application.answer_held()
        found = [int(each.split()[1]) for each in bodies(read_to_end(connection))]
    assert found == list(range(50))


def test_who_hangs_up_changes_nothing_for_the_others(web: Running) -> None:
    with web.connect() as gone, web.connect() as stays:
        for connection in (gone, stays):
            connection.sendall(get("/held?1"))
        wait_until(lambda: len(web.application.held) == 2)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # an end at once, not a half one
        gone.close()
        wait_until(lambda: web.connections == 1)
        assert len(web.application.held) == 2  # what was handed over is decided without its caller
        web.application.answer_held()
        assert stays.recv(1000).endswith(b"held 1 ")


def test_a_stream_ends_when_its_reader_leaves(web: Running) -> None:
    with web.connect() as connection:
        connection.sendall(get("/stream"))
        read_until(connection, b"event\n\r\n")
    wait_until(lambda: web.application.disconnected == ["/stream"])
    wait_until(lambda: web.connections == 0)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("more", [get("/hot?1"), b"G" * 100_000, b""])
def test_a_stream_ends_when_its_reader_sends_more(web: Running, more: bytes, together: bool) -> None:
    """The control sends nothing more: its stream stays."""
    with web.connect() as connection:
        connection.sendall(get("/stream") + (more if together else b""))
        read_until(connection, b"event\n\r\n")
        if not together:
            connection.sendall(more)
        connection.settimeout(2.5 if not more else SECONDS)
        if more:
            with suppress(ConnectionResetError):  # what the server has not read resets the connection
                assert read_to_end(connection) == b"0\r\n\r\n"
            wait_until(lambda: web.application.disconnected == ["/stream"] and web.connections == 0)
        else:
            with pytest.raises(TimeoutError):
                connection.recv(1)


def test_a_trailer_is_no_header(shared: Running) -> None:
    answers = shared.talk(chunked("/x?1", b"ab", trailer=b"X-Late: 1\r\n") + get("/hot?2"))
    assert bodies(answers) == [b"x 1 ab", b"hot 2 "]


def test_an_upgrade_is_not_taken_up_and_what_follows_is_not_http(shared: Running) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    assert bodies(shared.talk(get("/x?1", more=upgrade) + get("/hot?2"), ends=False)) == [b"x 1 "]
    assert statuses(shared.talk(post("/x?1", get("/hot?2"), more=upgrade), ends=False)) == [400]


# What is too much.


def test_a_head_that_is_too_large_is_refused(shared: Running) -> None:
    fits = get("/hot?1", more=b"X: " + b"a" * 15_000 + b"\r\n")
    assert statuses(shared.talk(fits)) == [200]
    answers = shared.talk(b"GET /hot HTTP/1.1\r\nX: " + b"a" * 400_000, ends=False)
    assert statuses(answers) == [431]
    many = get("/x?1", more=b"".join(b"X-%d: 1\r\n" % n for n in range(150)))
    assert statuses(shared.talk(many, ends=False)) == [431]


def test_a_message_that_never_ends_is_refused_however_it_goes_on(shared: Running) -> None:
    assert statuses(shared.talk(chunked("/x?1", b"ab", trailer=b"X: " + b"a" * 900_000), ends=False)) == [413]
    ones = chunked("/x?1", *[b"a"] * 60_000)  # 360 KB on the wire
    assert bodies(shared.talk(ones)) == [b"x 1 " + b"a" * 60_000]


@pytest.mark.parametrize("target", [b"*", b"shop:443", b"no-slash", b"/%ff\xff"])
def test_a_target_that_is_no_path_is_refused(shared: Running, target: bytes) -> None:
    assert statuses(shared.talk(b"OPTIONS %b HTTP/1.1\r\n%b\r\n" % (target, HOST), ends=False)) == [400]


@pytest.mark.parametrize(("target", "body"), [(b"", b"  "), (b"?n=1", b" n=1 "), (b"/x?http://b", b"x http://b ")])
def test_an_absolute_target_without_a_path_is_the_root(
    shared: Running, target: bytes, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = shared.talk(b"GET http://shop:80%b HTTP/1.1\r\n%b\r\n" % (target, HOST))
    assert (statuses(answer), bodies(answer)) == ([200], [body])
    assert [line for line in caplog.records if line.exc_info] == []


def test_a_refusal_comes_after_what_is_owed(web: Running) -> None:
    with web.connect() as connection:
        connection.sendall(get("/held?1") + get("/slow?2") + b"NOT HTTP\r\n\r\n")
        wait_until(lambda: len(web.application.held) == 1)
        web.application.release.set()
        web.application.answer_held()
        assert statuses(read_to_end(connection)) == [200, 200, 400]


def test_one_bad_chunk_ends_its_own_message_only(web: Running) -> None:
    head = b"POST /x?2 HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    with web.connect() as connection:
        connection.sendall(get("/held?1") + head)
        wait_until(lambda: len(web.application.held) == 1)
        web.application.answer_held()
        assert statuses(read_to_end(connection)) == [200, 400]


def test_too_many_connections_make_room_by_ending_silent_ones(web: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent, "MAX_CONNECTIONS", 10)
    with ExitStack() as stack:
        buyer = stack.enter_context(web.connect())
        buyer.sendall(get("/hot?1"))
        assert buyer.recv(1000)
        others = [stack.enter_context(web.connect()) for _ in range(30)]
        assert others[0].recv(1) == b""
        buyer.sendall(get("/hot?2"))
        assert buyer.recv(1000).endswith(b"hot 2 ")
        late = stack.enter_context(web.connect())
        late.sendall(get("/hot?3"))
        assert late.recv(1000).endswith(b"hot 3 ")


@pytest.mark.parametrize("most", [3, 0])
def test_one_address_has_so_many_connections_and_another_has_its_own(web: Running, most: int) -> None:
    """The control is no limit."""
    protocol.GateProtocol.addresses = AddressLimit(most)
    with ExitStack() as stack:
        greedy = [stack.enter_context(web.connect(source="127.0.0.2")) for _ in range(4)]
        greedy[3].sendall(get("/hot?1"))
        if most:
            assert statuses(read_to_end(greedy[3])) == [503]
        else:
            assert greedy[3].recv(1000).endswith(b"hot 1 ")
        other = stack.enter_context(web.connect())
        other.sendall(get("/hot?2"))
        assert other.recv(1000).endswith(b"hot 2 ")
        greedy[0].close()
        wait_until(lambda: web.connections == 4 - bool(most))
        again = stack.enter_context(web.connect(source="127.0.0.2"))
        again.sendall(get("/hot?3"))
        assert again.recv(1000).endswith(b"hot 3 ")


# Deadlines.


@pytest.fixture
def short_deadlines(web: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """End each phase after a second, but for the first: a test may be late with its first byte."""
    for module in (protocol, silent):
        monkeypatch.setattr(module, "DEADLINES", (1 << 30, 1, 1, 1 << 30, 1, 1))


SLOW = {
    "silent": (b"", b""),
    "half a head": (b"GET /hot HT", b""),
    "half a body of a hot call": (post("/hot?1", b"abc")[:-1], b"did not arrive"),
    "half a body": (post("/x?1", b"abc")[:-1], b"did not arrive"),
    "half a chunk": (chunked("/x?1", b"abc")[:-8], b"did not arrive"),
    "idle": (get("/hot?1"), b"hot 1"),
}


@pytest.mark.parametrize("what", SLOW)
@pytest.mark.usefixtures("short_deadlines")
def test_who_is_too_slow_is_ended(web: Running, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    text, answer = SLOW[what]
    for module in (protocol, silent) if what == "silent" else ():
        monkeypatch.setattr(module, "DEADLINES", (1,) * 6)
    found = web.talk(text, ends=False)
    assert answer in found
    assert statuses(found) == ([] if not answer else [200] if what == "idle" else [400])
    wait_until(lambda: web.connections == 0)


@pytest.mark.usefixtures("short_deadlines")
def test_a_head_that_trickles_is_ended_however_often_a_byte_comes(web: Running) -> None:
    began = time.monotonic()
    with web.connect() as connection, suppress(OSError):  # reset, or a broken pipe
        for byte in b"GET /hot HTTP/1.1\r\nX-Long: " + b"a" * 1000:
            connection.sendall(bytes([byte]))
            time.sleep(0.1)
    assert time.monotonic() - began < SECONDS  # the whole takes five times as long


@pytest.mark.usefixtures("short_deadlines")
def test_who_waits_for_us_is_never_too_late(web: Running) -> None:
    with web.connect() as connection:
        connection.sendall(get("/held?1") + b"GET /hot?2 HT")
        time.sleep(3.5)
        connection.sendall(b"TP/1.1\r\n" + HOST + b"\r\n")
        web.application.answer_held()
        connection.shutdown(socket.SHUT_WR)
        assert bodies(read_to_end(connection)) == [b"held 1 ", b"hot 2 "]


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
def test_who_reads_slowly_gets_the_whole_answer(web: Running, more: bytes) -> None:
    with web.connect() as connection:
        connection.sendall(get("/long?24000000", more=more))
        found = 0
        while found < 24_000_000:
            part = connection.recv(500_000)
            assert part, found
            found += len(part)
            time.sleep(0.15 if found < 12_000_000 else 0)


@pytest.mark.usefixtures("short_deadlines")
def test_who_does_not_read_an_answer_is_ended(web: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "STALLED_SECONDS", 1)
    with web.connect() as connection:
        connection.sendall(get("/long?9000000"))
        wait_until(lambda: web.connections == 1)
        wait_until(lambda: web.connections == 0, what="it is ended")


# The end of the process.


def test_a_stop_answers_what_was_begun_and_says_that_it_ends(web: Running) -> None:
    with ExitStack() as stack:
        held, idle, half, stream = (stack.enter_context(web.connect()) for _ in range(4))
        held.sendall(get("/held?1"))
        idle.sendall(get("/hot?1"))
        assert idle.recv(1000)
        half.sendall(post("/hot?2", b"abc")[:-1])
        stream.sendall(get("/stream"))
        read_until(stream, b"event\n\r\n")
        wait_until(lambda: len(web.application.held) == 1 and web.connections == 4)
        web.server.should_exit = True
        assert read_to_end(idle) == b""
        assert read_to_end(stream) == b"0\r\n\r\n"
        half.sendall(b"c")
        for connection, body in ((half, b"hot 2 abc"), (held, b"held 1 ")):
            web.application.answer_held()
            answer = read_to_end(connection)
            assert bodies(answer) == [body]
            assert b"connection: close" in answer
