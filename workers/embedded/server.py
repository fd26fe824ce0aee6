"""A running server with its address, and what starting one needs: a free port, kept passwords, a wait for readiness.
Never starts a process by itself, never prints a password.
"""

from __future__ import annotations

import random
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from inventory.exceptions import FairdropError
from workers.embedded.child_process import ChildProcess
from workers.embedded.private_files import write_private

READY_TIMEOUT_SECONDS = 180.0
# The system gives none of these to a connection that goes out, so one that was free a moment ago still is; browsers
# refuse some that are lower.
QUIET_PORTS = range(10_240, 32_000)
PORT_TRIES = 20
# This process gives none of these twice: what it has promised somebody may not be bound yet.
_given: set[int] = set()
_POLL_SECONDS = 0.05


class ServerMissing(FairdropError):
    """A server this shop needs is not installed."""


class ServerFailed(FairdropError):
    """A server this shop needs did not start."""


@dataclass(kw_only=True)
class Server:
    """A server's address and, when it is ours, its process; leaving the `with` block stops it."""

    url: str
    child: ChildProcess | None = None

    def stop(self) -> None:
        """End the process if it is ours; a server somebody else runs is left alone."""
        if self.child is not None:
            self.child.stop()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def reserve_port() -> socket.socket:
    """Return a bound loopback socket: nobody else is given its port until it is closed. Raises ServerFailed."""
    drawn = random.SystemRandom().sample(QUIET_PORTS, PORT_TRIES)
    for port in (*(port for port in drawn if port not in _given), 0):
        reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            reservation.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
        else:
            _given.add(port)
            return reservation
    raise ServerFailed("No port of the loopback is free.")


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with reserve_port() as reservation:
        return int(reservation.getsockname()[1])


def kept_password(path: Path) -> str:
    """Return the random password kept in `path`, making it (readable by the owner only) the first time."""
    if not path.exists():
        write_private(path, text=secrets.token_urlsafe(24))
    return path.read_text()


def wait_until_ready(child: ChildProcess, *, answers: Callable[[], bool]) -> None:
    """Return when `answers` is true; raise ServerFailed with the end of the log when the child dies or is too slow."""
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while not answers():
        if not child.running or time.monotonic() >= deadline:
            child.stop()
            raise ServerFailed(f"{child.name} did not start; its log {child.log_path} ends with:\n{child.log_end()}")
        time.sleep(_POLL_SECONDS)
