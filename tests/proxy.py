"""A TCP proxy in a thread of its own: it can drop replies after a command ran, delay, reset or swallow everything.
Never changes a byte that it lets through. Called by the tests of lost replies.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from workers.server import free_port

CHUNK_BYTES = 65536


@dataclass(slots=True)
class Rule:
    """Drop the replies to the next `times` client messages that contain `word`, and cut the connection there.

    word: what the message must contain, b'' for any; dropped: how many replies were dropped so far.
    """

    word: bytes
    times: int = 1
    dropped: int = 0


@dataclass
class Proxy:
    """Between one client and one server; everything may be switched while it runs."""

    target_port: int
    port: int = field(default_factory=free_port)
    delay_seconds: float = 0.0
    black_hole: bool = False
    forwarded: int = 0
    _rule: Rule | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def drop_replies(self, word: bytes, *, times: int = 1) -> Rule:
        """Let the server run the next messages with `word`, and lose its replies; return what counts them."""
        self._rule = Rule(word, times)
        return self._rule

    def reset_all(self) -> None:
        """Reset every connection now."""
        asyncio.run_coroutine_threadsafe(self._reset_all(), self._loop).result(timeout=5)

    async def _reset_all(self) -> None:
        for writer in list(self._writers):
            reset(writer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        upstream, upstream_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        self._writers |= {writer, upstream_writer}
        link = _Link(self, writer, upstream_writer)
        try:
            await asyncio.gather(link.requests(reader), link.replies(upstream))
        finally:
            self._writers -= {writer, upstream_writer}
            for each in (writer, upstream_writer):
                each.close()

    async def _close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass
class _Link:
    """One connection through the proxy."""

    proxy: Proxy
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    losing: Rule | None = None

    async def requests(self, reader: asyncio.StreamReader) -> None:
        """Carry what the client says to the server, and remember when its reply is to be lost."""
        with suppress(ConnectionError):
            while chunk := await reader.read(CHUNK_BYTES):
                rule = self.proxy._rule
                if rule is not None and rule.dropped < rule.times and rule.word in chunk:
                    self.losing = rule
                self.proxy.forwarded += 1
                await self._pause()
                self.server.write(chunk)
                await self.server.drain()
        self.server.close()

    async def replies(self, reader: asyncio.StreamReader) -> None:
        """Carry what the server says to the client, unless it is to be lost: then the connection is reset."""
        with suppress(ConnectionError):
            while chunk := await reader.read(CHUNK_BYTES):
                if self.losing is not None:
                    self.losing.dropped += 1
                    self.losing = None
                    reset(self.client)
                    break
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
    assert ready.wait(timeout=5)
    try:
        yield proxy
    finally:
        proxy._loop.call_soon_threadsafe(proxy._loop.stop)
        thread.join(timeout=5)
        assert not thread.is_alive()


def _run(proxy: Proxy, ready: threading.Event) -> None:
    loop = proxy._loop
    asyncio.set_event_loop(loop)
    server = loop.run_until_complete(asyncio.start_server(proxy._accept, "127.0.0.1", proxy.port))
    ready.set()
    loop.run_forever()
    server.close()
    loop.run_until_complete(proxy._close())
    loop.run_until_complete(server.wait_closed())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
