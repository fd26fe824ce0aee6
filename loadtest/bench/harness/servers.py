"""Starts the servers that are compared, with the same server, the same flags and a port each, and waits for their 202.
Never leaves one behind: each is stopped with its `with` block.
"""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtest.bench.load.payloads import BODY
from shop.buyers import issue_buyer
from workers.embedded.child_process import ChildProcess
from workers.embedded.server import ServerFailed, free_port

READY_SECONDS = 40.0
PROBE_SECONDS = 5.0
# Backpressure: open connections of a worker; those beyond it would wait without an answer.
GRANIAN = ["-m", "granian", "--host", "127.0.0.1", "--backlog", "8192", "--backpressure", "20000", "--no-ws"]
# The fastest of 1, 2, 4, 8 and 32 threads: while one waits for Redis to reach the disk, another one works.
WSGI = ["--interface", "wsgi", "--blocking-threads", "4"]
NOOP = [*GRANIAN, "--interface", "asgi", "--loop", "uvloop", "loadtest.bench.gate.noop_app:application"]
BARE = ["-m", "loadtest.bench.gate.bare_server"]
GATE = ["manage.py", "run_web"]  # as the demo starts it
PLAIN = [*GRANIAN, *WSGI, "loadtest.bench.gate.plain_wsgi:application"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One running server under test."""

    name: str
    port: int
    child: ChildProcess


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where children run: the checkout, their environment, the folder of their logs and data."""

    checkout: Path
    environment: Mapping[str, str]
    folder: Path

    def child(self, name: str, arguments: list[str], *, redis_url: str) -> ChildProcess:
        """Return a Python child that is not started yet."""
        return ChildProcess(
            name=name,
            arguments=[sys.executable, *arguments],
            environment={**self.environment, "REDIS_URL": redis_url, "CACHE_URL": redis_url},
            folder=self.checkout,
            log_path=self.folder / f"{name.replace(' ', '-')}.log",
        )


@contextmanager
def serving(
    name: str, application: list[str], *, place: Workspace, redis_url: str, slug: str, workers: int = 1
) -> Iterator[Side]:
    """Run the server `application` for the length of a `with` block; it has answered a purchase of `slug` once."""
    port = free_port()
    command = [*application, "--workers", str(workers), "--port", str(port)]
    child = place.child(name, command, redis_url=redis_url)
    try:
        child.start()
        wait_for_admission(child, port=port, slug=slug)
        yield Side(name=name, port=port, child=child)
    finally:
        child.stop()


def wait_for_admission(child: ChildProcess, *, port: int, slug: str) -> None:
    """Return when a purchase was answered 202. Raises ServerFailed when the child died or took too long."""
    deadline = time.monotonic() + READY_SECONDS
    while (answer := probe(port, slug=slug)) != "202":
        if not child.running or time.monotonic() >= deadline:
            raise ServerFailed(f"{child.name} answers {answer}; its log ends with:\n{child.log_end()}")
        time.sleep(0.1)


def probe(port: int, *, slug: str) -> str:
    """Ask for one unit with a new buyer; return the status, or what went wrong."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PROBE_SECONDS)
    headers = {"Authorization": f"Bearer {issue_buyer()[1]}", "Content-Type": "application/json"}
    try:
        connection.request("POST", f"/api/v1/sales/{slug}/requests", body=BODY, headers=headers)
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        connection.close()
