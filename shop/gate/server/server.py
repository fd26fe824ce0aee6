"""The HTTP server of the web process: uvicorn with the gate's protocol, deadlines for connections, an orderly end."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from collections.abc import Callable
from typing import Any

import structlog
import uvicorn
from django.conf import settings

from shop.gate.server.draining import ACCEPT_SECONDS, FIRST_BYTE_SECONDS, LEAVING, refuse_new_connections
from shop.gate.server.limits import MAX_CONNECTIONS, RECEIVE_BUFFER_BYTES, SILENT, AddressLimit
from shop.gate.server.protocol import GateProtocol
from shop.gate.server.silent import SilentConnection

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 1.0
LOOK_SECONDS = 0.05
BACKLOG = 8192
STOP_SECONDS = 10
MAX_OPEN_FILES = 65_536


class Server(uvicorn.Server):
    """Serves connections, ends those that are too late, and leaves in order.

    drain_seconds: how long it serves on after it was asked to stop, while it says that it leaves; 0: not at all.
    """

    def __init__(self, config: uvicorn.Config, *, drain_seconds: float = 0.0) -> None:
        super().__init__(config)
        self._drain_seconds = drain_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        self._look_at_the_clock()
        await super().startup(sockets)
        for listener in self._listeners():
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)  # connections inherit it

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, after draining."""
        if self._drain_seconds:
            await self._drain()
        await super().shutdown(sockets)

    async def _drain(self) -> None:
        """Serve on, each connection once; then take no new ones, and wait for the first byte of those there are."""
        log.warning("web process leaves", action="web_leaves", seconds=self._drain_seconds)
        self.lifespan.state[LEAVING] = True
        for connection in self._connections():
            connection.stopping = True
        await self._wait(self._drain_seconds)
        try:
            for listener in self._listeners():
                refuse_new_connections(listener)
        except OSError as error:  # no Linux, or a sandbox without socket filters: those that begin now may be reset
            log.warning("new connections not held off", action="filter_refused", error=str(error))
        await asyncio.sleep(ACCEPT_SECONDS)
        for server in self.servers:
            server.close()
        await self._wait(FIRST_BYTE_SECONDS, until=self._nobody_is_silent)

    async def _wait(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Wait so long, until the condition is true, or until somebody wants the end at once."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while loop.time() < ends and not until() and not self.force_exit:
            await asyncio.sleep(LOOK_SECONDS)

    def _nobody_is_silent(self) -> bool:
        return all(connection.phase != SILENT for connection in self._connections())

    def _connections(self) -> list[GateProtocol | SilentConnection]:
        return list(self.server_state.connections)  # type: ignore[arg-type]

    def _listeners(self) -> list[socket.socket]:
        return [each for server in self.servers for each in server.sockets]

    def _look_at_the_clock(self) -> None:
        clock = GateProtocol.clock
        clock.tick()
        for connection in self._connections():
            connection.check_deadline(clock.now)
        asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._look_at_the_clock)


def serve(application: Any, *, host: str, port: int, shared: bool, drain_seconds: float) -> None:
    """Serve an ASGI application with hot calls until a signal ends it. shared: other processes listen there too.

    drain_seconds: see Server.

    Raises SystemExit when the port cannot be had or the application does not start.
    """
    # uvicorn raises the signal again when it has stopped; an orderly end is no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    if (limit := raise_open_files()) < MAX_CONNECTIONS:
        log.warning("few open files", action="few_open_files", limit=limit, connections=MAX_CONNECTIONS)
    server = server_of(application, host=host, port=port, drain_seconds=drain_seconds)
    server.run([_shared_socket(host, port)] if shared else None)


def raise_open_files() -> int:
    """Let this process open as many files as its hard limit allows, and return how many: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def server_of(application: Any, *, host: str, port: int, drain_seconds: float = 0.0) -> Server:
    """Return a server that does not listen yet."""
    # Behind a proxy of ours all connections come from its address; it limits them itself (docker/nginx.conf).
    limit = 0 if settings.TRUSTED_PROXIES else settings.GATE_MAX_CONNECTIONS_PER_ADDRESS
    GateProtocol.addresses = AddressLimit(limit)
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        http=SilentConnection,
        loop="uvloop",
        interface="asgi3",
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return Server(config, drain_seconds=drain_seconds)


def _shared_socket(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(address)
    return listener
