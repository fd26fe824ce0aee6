"""The HTTP server of the web process: uvicorn with the gate's protocol, deadlines for connections, an orderly end."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from typing import Any

import structlog
import uvicorn
from django.conf import settings

from shop.gate.server.limits import MAX_CONNECTIONS, RECEIVE_BUFFER_BYTES, AddressLimit
from shop.gate.server.protocol import GateProtocol

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 1.0
BACKLOG = 8192
STOP_SECONDS = 10
MAX_OPEN_FILES = 65_536


class Server(uvicorn.Server):
    """Serves connections, and ends those that are too late."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        self._look_at_the_clock()
        await super().startup(sockets)
        for listener in (each for server in self.servers for each in server.sockets):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)  # connections inherit it

    def _look_at_the_clock(self) -> None:
        clock = GateProtocol.clock
        clock.tick()
        for connection in list(self.server_state.connections):
            connection.check_deadline(clock.now)  # type: ignore[union-attr]
        asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._look_at_the_clock)


def serve(application: Any, *, host: str, port: int, shared: bool) -> None:
    """Serve an ASGI application with hot calls until a signal ends it. shared: other processes listen there too.

    Raises SystemExit when the port cannot be had or the application does not start.
    """
    # uvicorn raises the signal again when it has stopped; an orderly end is no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    if (most := raise_open_files()) < MAX_CONNECTIONS:
        log.warning("few open files", action="few_open_files", most=most, connections=MAX_CONNECTIONS)
    server = server_of(application, host=host, port=port)
    server.run([_shared_socket(host, port)] if shared else None)


def raise_open_files() -> int:
    """Let this process open as many files as its hard limit allows, and return how many: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def server_of(application: Any, *, host: str, port: int) -> Server:
    """Return a server that does not listen yet."""
    # Behind a proxy of ours all connections come from its address; it limits them itself (docker/nginx.conf).
    most = 0 if settings.TRUSTED_PROXIES else settings.GATE_MAX_CONNECTIONS_PER_ADDRESS
    GateProtocol.addresses = AddressLimit(most)
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        http=GateProtocol,
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
    return Server(config)


def _shared_socket(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(address)
    return listener
