"""Runs the gate's HTTP server in a thread with an application of a few lines, and speaks bytes to it.
Never leaves the thread behind. Needs neither Redis nor PostgreSQL.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shop.gate.server.server import Server, server_of
from shop.gate.server.silent import SilentConnection
from shop.replies import OK, Head, Reply
from tests.support.waiting import wait_until

# For what would never happen.
SECONDS = 120.0
TEXT = Head(200, [(b"content-type", b"text/plain")])


class Application:
    """Answers a hot call at /hot or /large at once, one at /held when it is told to, and everything else by ASGI."""

    def __init__(self) -> None:
        self.held: list[tuple[Reply, bytes]] = []
        self.release = threading.Event()
        self.disconnected: list[str] = []
        self.served: list[str] = []
        self.loop: asyncio.AbstractEventLoop | None = None

    def hot_call(self, method: bytes, target: bytes, headers: Any, _connection: str) -> Any:
        path, _, name = target.partition(b"?")
        if path == b"/hot":
            return self._echo, name
        if path == b"/large":
            return self._send_large, name
        if path == b"/held":
            return self._hold, name
        return None

    def _echo(self, reply: Reply, name: bytes, headers: Any, body: bytes) -> None:
        self.served.append(f"hot {name.decode()}")
        reply.send(TEXT, b"hot %b %b" % (name, body))

    def _send_large(self, reply: Reply, name: bytes, headers: Any, body: bytes) -> None:
        self.served.append(f"large {name.decode()}")
        reply.send(TEXT, b"x" * int(name))

    def _hold(self, reply: Reply, name: bytes, headers: Any, body: bytes) -> None:
        self.held.append((reply, b"held %b %b" % (name, body)))

    def answer_held(self) -> None:
        """Answer every held call."""
        assert self.loop is not None
        held, self.held = self.held, []
        for reply, text in held:
            self.loop.call_soon_threadsafe(reply.send, OK, text)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            self.loop = asyncio.get_running_loop()
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            return await send({"type": "lifespan.shutdown.complete"})
        path, name = scope["path"], scope["query_string"]
        if path == "/stream":
            return await self._stream(receive, send)
        body, message = b"", {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                return self.disconnected.append(path)
            body += message.get("body", b"")
        while path == "/slow" and not self.release.is_set():
            await asyncio.sleep(0.01)
        text = b"x" * int(name) if path in ("/long", "/large") else b"%b %b %b" % (path[1:].encode(), name, body)
        self.served.append(f"{path[1:]} {name.decode()}")
        length = (b"content-length", b"%d" % len(text))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        return await send({"type": "http.response.body", "body": text})

    async def _stream(self, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"event\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.disconnected.append("/stream")


class Running:
    """A running server and its application."""

    def __init__(self, server: Server, application: Application, port: int) -> None:
        self.server = server
        self.application = application
        self.port = port

    @property
    def connections(self) -> int:
        """How many connections the server has."""
        return len(self.server.server_state.connections)

    def between_turns(self, look: Callable[[], Any]) -> Any:
        """Return what `look` finds in the server's event loop, between two turns of it."""

        async def found() -> Any:
            return look()

        assert self.application.loop is not None
        return asyncio.run_coroutine_threadsafe(found(), self.application.loop).result(SECONDS)

    def connect(self, *, source: str = "127.0.0.1") -> socket.socket:
        """Open a connection from an address of this machine."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS, source_address=(source, 0))

    def talk(self, *parts: bytes, pause_seconds: float = 0.0, ends: bool = True) -> bytes:
        """Send parts one after the other; return all that is answered. ends: say that nothing more will come."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause_seconds)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            return read_to_end(connection)


def read_until(connection: socket.socket, text: bytes) -> None:
    """Read until `text` has come."""
    found = b""
    while text not in found:
        part = connection.recv(1000)
        assert part, found
        found += part


def read_to_end(connection: socket.socket) -> bytes:
    """Return everything until the other side ends."""
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


def bodies(answers: bytes) -> list[bytes]:
    """Return the bodies of answers that each say their length."""
    found = []
    while answers:
        head, _, answers = answers.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        found.append(answers[:length])
        answers = answers[length:]
    return found


def statuses(answers: bytes) -> list[int]:
    """Return the statuses of answers, as long as no body looks like one."""
    return [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]


@contextmanager
def running_server(application: Application | None = None) -> Iterator[Running]:
    """Run the server until the end of the block."""
    application = application or Application()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        server = server_of(application, host="127.0.0.1", port=port)
        server.config.timeout_graceful_shutdown = int(SECONDS)  # no test ends by it, and the machine may stand still
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            wait_until(lambda: server.started, what="the server starts")
            yield Running(server, application, port)
        finally:
            server.should_exit = True
            application.release.set()
            if application.loop is not None and not application.loop.is_closed():
                application.answer_held()
            thread.join(SECONDS)
            SilentConnection.let_in.clear()
            assert not thread.is_alive()


def wait_for(check: Callable[[], bool], what: str) -> None:
    """Wait until `check` is true."""
    wait_until(check, what=what)
