"""Starts the servers that are measured, with the same flags and a port each, and waits for their 202.
Never leaves one behind: each is stopped with its `with` block.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings

from loadtest.bench.harness.machine import POSTGRES, REDIS, SETTLER, WEB, Crew
from loadtest.bench.load.loop import HOST, LoadFailed
from loadtest.bench.load.payloads import BODY
from shop.buyers import issue_buyer
from workers.embedded.child_process import ChildProcess
from workers.embedded.server import Server, ServerFailed, free_port
from workers.embedded.stores import Servers

Value = TypeVar("Value")
READY_SECONDS = 40.0
PROBE_SECONDS = 5.0
# A page may take so long: some list or count very much.
READ_SECONDS = 120.0
# Backpressure: open connections of a worker; those beyond it would wait without an answer.
GRANIAN = ["-m", "granian", "--host", HOST, "--backlog", "8192", "--backpressure", "20000", "--no-ws"]
# The fastest of 1, 2, 4, 8 and 32 threads: while one waits for Redis to reach the disk, another one works.
WSGI = ["--interface", "wsgi", "--blocking-threads", "4"]
NOOP = [*GRANIAN, "--interface", "asgi", "--loop", "uvloop", "loadtest.bench.gate.noop_app:application"]
BARE = ["-m", "loadtest.bench.gate.bare_server"]
GATE = ["manage.py", "run_web"]  # as the demo starts it
UNMARKED = ["-m", "loadtest.bench.gate.unmarked_server", "run_web"]
# What a web process gets that counts no calls by address.
NO_RATES = {"FAIRDROP_RATE_OF_BUYERS": "0", "FAIRDROP_RATE_OF_ASKS": "0", "FAIRDROP_RATE_OF_STREAMS": "0"}
PLAIN = [*GRANIAN, *WSGI, "shop.wsgi:application"]  # with settings of its own


@dataclass(frozen=True, kw_only=True)
class WebServer:
    """One running server under test."""

    port: int
    child: ChildProcess


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where children run: the checkout, their environment, the folder of their logs and data."""

    checkout: Path
    environment: Mapping[str, str]
    folder: Path

    def child(self, name: str, arguments: list[str], *, redis_url: str = "") -> ChildProcess:
        """Return a Python child that is not started yet. redis_url: of its Redis, the settings' own when it is ''."""
        url = redis_url or settings.REDIS_URL
        cache = url if url.startswith("redis://") else self.environment["CACHE_URL"]  # the cache knows no Cluster
        return ChildProcess(
            name=name,
            arguments=[sys.executable, *arguments],
            environment={**self.environment, "REDIS_URL": url, "CACHE_URL": cache},
            folder=self.checkout,
            log_path=self.folder / f"{name.replace(' ', '-')}.log",
        )

    @contextmanager
    def worker(self, name: str, *, of: str = "", redis_url: str = "") -> Iterator[ChildProcess]:
        """Run one of the shop's workers for the length of a `with` block. of: what tells it from others of its name."""
        child = self.child(f"{name} {of}".strip(), ["manage.py", "run_worker", name], redis_url=redis_url)
        try:
            yield child.start()
        finally:
            child.stop()


@contextmanager
def serving(
    name: str, application: list[str], *, place: Workspace, slug: str, redis_url: str = "", workers: int = 1
) -> Iterator[WebServer]:
    """Run the server `application` for the length of a `with` block; it has answered a purchase of `slug` once."""
    port = free_port()
    command = [*application, "--workers", str(workers), "--port", str(port)]
    child = place.child(name, command, redis_url=redis_url)
    try:
        child.start()
        wait_until_ready(child, partial(probe, port, slug=slug), wanted="202")
        yield WebServer(port=port, child=child)
    finally:
        child.stop()


@dataclass(frozen=True, kw_only=True)
class RunningShop:
    """A running web process; crew: its processes, its settlers and both stores, whose CPU time is counted."""

    web: WebServer
    crew: Crew


@contextmanager
def running_shop(
    slug: str, *, place: Workspace, stores: Servers, settlers: int = 1, workers: int = 1
) -> Iterator[RunningShop]:
    """Run the shop on `stores` for the length of a `with` block. workers: web processes; slug: a sale for the probe."""
    with ExitStack() as stack:
        hands = [stack.enter_context(place.worker("settler", of=str(number))) for number in range(settlers)]
        web = stack.enter_context(serving("web", GATE, place=place, slug=slug, workers=workers))
        crew = Crew(children={WEB: [web.child], SETTLER: hands, **children_of(stores)})
        yield RunningShop(web=web, crew=crew)


def children_of(stores: Servers) -> dict[str, list[ChildProcess]]:
    """Return the processes of both stores by their part."""
    servers: dict[str, Server] = {REDIS: stores.valkey, POSTGRES: stores.postgres}
    return {part: [server.child] if server.child else [] for part, server in servers.items()}


def wait_until_ready(child: ChildProcess, look: Callable[[], Value], *, wanted: Value) -> None:
    """Return when `look` returns what is wanted. Raises ServerFailed when the child died or took too long."""
    deadline = time.monotonic() + READY_SECONDS
    while (found := look()) != wanted:
        if not child.running or time.monotonic() >= deadline:
            raise ServerFailed(f"{child.name}: {found} instead of {wanted}; its log ends with:\n{child.log_end()}")
        time.sleep(0.1)


def probe(port: int, *, slug: str) -> str:
    """Ask for one unit with a new buyer; return the status, or what went wrong."""
    return status_of(port, f"/api/v1/sales/{slug}/requests", token=issue_buyer()[1])


def status_of(port: int, path: str, *, token: str = "") -> str:
    """Ask for one unit over a connection of its own; return the status, or what went wrong."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        with closing(HTTPConnection(HOST, port, timeout=PROBE_SECONDS)) as connection:
            connection.request("POST", path, body=BODY, headers=headers)
            answer = connection.getresponse()
            answer.read()
            return str(answer.status)
    except (OSError, HTTPException) as error:
        return repr(error)


def kept_connection(port: int) -> closing[HTTPConnection]:
    """Give a connection for the length of a `with` block: all calls go over it, one after the other."""
    return closing(HTTPConnection(HOST, port, timeout=READ_SECONDS))


def open_page(connection: HTTPConnection, path: str, *, headers: Mapping[str, str]) -> HTTPResponse:
    """Ask for a page; its body is still to read. Raises LoadFailed unless it is answered 200."""
    connection.request("GET", path, headers=dict(headers))
    answer = connection.getresponse()
    if answer.status != 200:
        raise LoadFailed(f"{path} was answered {answer.status}: {answer.read()[:200]!r}")
    return answer


def read_page(connection: HTTPConnection, path: str, *, headers: Mapping[str, str]) -> tuple[bytes, float]:
    """Return the body of a page, and how many ms it took to its end. Raises LoadFailed unless it is answered 200."""
    began = time.perf_counter()
    body = open_page(connection, path, headers=headers).read()
    return body, (time.perf_counter() - began) * 1000


def post_json(
    connection: HTTPConnection, path: str, *, headers: Mapping[str, str], body: Mapping[str, Any]
) -> tuple[int, Any]:
    """Send `body`; return the status and what was told."""
    connection.request("POST", path, body=json.dumps(body), headers={"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())
