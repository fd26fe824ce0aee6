"""A TCP proxy in a thread of its own: it can lose or hold replies after a command ran, hold or refuse requests before,
delay, reset or swallow everything. Never changes a byte that it lets through.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from workers.embedded.server import free_port

CHUNK_BYTES = 65536
HELD_LOOK_SECONDS = 0.002


@dataclass(slots=True)
class Rule:
    """What happens to the next `times` client messages that contain `word`, or to their replies.

    drop: the server runs it, its reply is lost and the connection cut; refuse: cut before the server sees it;
    hold_request, hold_reply: kept until let_go. word: b'' for any; met: how many messages it was applied to so far;
    dropped: how many replies were lost so far.
    """

    word: bytes
    action: Literal["drop", "refuse", "hold_request", "hold_reply"] = "drop"
    times: int = 1
    met: int = 0
    dropped: int = 0
    _held: bool = True

    def let_go(self) -> None:
        """Let what was held go on its way, and hold nothing any more."""
        self.times = 0
        self._held = False

    async def until_let_go(self) -> None:
        """Return when nothing is held any more."""
        while self._held:
            await asyncio.sleep(HELD_LOOK_SECONDS)


@dataclass
class Proxy:
    """Between one client and one server; everything may be switched while it runs."""

    target_port: int
    port: int = field(default_factory=free_port)
    delay_seconds: float = 0.0
    black_hole: bool = False
    forwarded: int = 0
    accepted: int = 0
    _rules: list[Rule] = field(default_factory=list)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def drop_replies(self, word: bytes, *, times: int = 1) -> Rule:
        """Let the server run the next messages with `word`, and lose its replies; return what counts them."""
        return self._add(Rule(word, "drop", times))

    def refuse_requests(self, word: bytes, *, times: int = 1000) -> Rule:
        """Cut the connection instead of handing messages with `word` to the server."""
        return self._add(Rule(word, "refuse", times))

    def hold_requests(self, word: bytes, *, times: int = 1) -> Rule:
        """Keep messages with `word` from the server until let_go, also when their client has gone."""
        return self._add(Rule(word, "hold_request", times))

    def hold_replies(self, word: bytes, *, times: int = 1) -> Rule:
        """Let the server run messages with `word`, and keep its replies until let_go."""
        return self._add(Rule(word, "hold_reply", times))

    def calm_down(self) -> None:
        """Let everything through from now on, also what is held."""
        self.black_hole, self.delay_seconds = False, 0.0
        for rule in self._rules:
            rule.let_go()

    def rule_for(self, message: bytes) -> Rule | None:
        """Return what is to happen to a client's message, and count it."""
        for rule in self._rules:
            if rule.met < rule.times and rule.word in message:
                rule.met += 1
                return rule
        return None

    def _add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    def reset_all(self) -> None:
        """Reset every connection now."""
        asyncio.run_coroutine_threadsafe(self._reset_all(), self._loop).result(timeout=120)

    async def _reset_all(self) -> None:
        for writer in list(self._writers):
            reset(writer)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine: one that is cancelled before its first step would never close what it was given.
        self.accepted += 1
        self._writers.add(writer)
        task = self._loop.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            upstream, upstream_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            ends.append(upstream_writer)
            self._writers.add(upstream_writer)
            link = _Link(self, writer, upstream_writer)
            await asyncio.gather(link.requests(reader), link.replies(upstream))
        finally:
            # They stay in the list: one that still has something to send is not closed by this, but at the end.
            for each in ends:
                each.close()

    async def _close(self, server: asyncio.Server) -> None:
        """End every connection, also one that was accepted at this very moment."""
        for listener in server.sockets:
            self._loop.remove_reader(listener.fileno())
        # A connection that was accepted and has no transport yet would never be closed by a server that is closed.
        await asyncio.sleep(0)
        server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=5)
        for writer in self._writers:
            writer.transport.abort()
        for _ in range(3):  # a transport ends in the next turns of the loop
            await asyncio.sleep(0)


@dataclass
class _Link:
    """One connection through the proxy."""

    proxy: Proxy
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    for_reply: Rule | None = None

    async def requests(self, reader: asyncio.StreamReader) -> None:
        """Carry what the client says to the server, and remember what is to happen to its reply."""
        with suppress(ConnectionError):
            while chunk := await reader.read(CHUNK_BYTES):
                rule = self.proxy.rule_for(chunk)
                if rule is not None and rule.action == "refuse":
                    reset(self.client)
                    break
                if rule is not None and rule.action == "hold_request":
                    await rule.until_let_go()
                elif rule is not None:
                    self.for_reply = rule
                self.proxy.forwarded += 1
                await self._pause()
                self.server.write(chunk)
                await self.server.drain()
        self.server.close()

    async def replies(self, reader: asyncio.StreamReader) -> None:
        """Carry what the server says to the client, unless it is to be lost: then the connection is reset."""
        with suppress(ConnectionError):
            while chunk := await reader.read(CHUNK_BYTES):
                rule, self.for_reply = self.for_reply, None
                if rule is not None and rule.action == "drop":
                    rule.dropped += 1
                    reset(self.client)
                    break
                if rule is not None:
                    await rule.until_let_go()
                await self._pause()
                self.client.write(chunk)
                await self.client.drain()
        self.client.close()

    async def _pause(self) -> None:
        await asyncio.sleep(self.proxy.delay_seconds)
        while self.proxy.black_hole:
            await asyncio.sleep(0.01)


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection by a reset, not by a farewell."""
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    writer.transport.abort()


@contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """Run a proxy in front of the server on `port` for the length of a block."""
    proxy, ready = Proxy(port), threading.Event()
    thread = threading.Thread(target=_run, args=(proxy, ready), name="proxy")
    thread.start()
    assert ready.wait(timeout=120)
    try:
        yield proxy
    finally:
        proxy._loop.call_soon_threadsafe(proxy._loop.stop)
        thread.join(timeout=120)
        assert not thread.is_alive()


def _run(proxy: Proxy, ready: threading.Event) -> None:
    loop = proxy._loop
    asyncio.set_event_loop(loop)
    server = loop.run_until_complete(asyncio.start_server(proxy._accept, "127.0.0.1", proxy.port))
    ready.set()
    loop.run_forever()
    loop.run_until_complete(proxy._close(server))
    loop.run_until_complete(server.wait_closed())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
