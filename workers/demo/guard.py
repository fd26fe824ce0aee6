"""Makes sure a demo may start: alone in this checkout, and on a free port. Never ends another process."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inventory.exceptions import FairdropError


class DemoRefused(FairdropError):
    """The demo cannot start."""


@contextmanager
def only_one(lock_path: Path) -> Iterator[None]:
    """Hold the demo's lock for the length of a `with` block; the kernel drops it when the process dies.

    Raises DemoRefused when another demo has it.
    """
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    with lock_path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise DemoRefused(
                f"Another demo is already running in this checkout (process {file.read().strip() or 'unknown'}): "
                "end it with Ctrl-C, then start this one again."
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
        file.truncate(0)


def refuse_busy_port(port: int) -> None:
    """Raise DemoRefused when somebody listens on `port` of the loopback, or it is none that this user may have."""
    if not 1 <= port <= 65535:
        raise DemoRefused(f"PORT must be from 1 to 65535, and is {port}.")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError as error:
            raise DemoRefused(f"Only root may use port {port}: choose one with `make demo PORT=8000`.") from error
        except OSError as error:
            raise DemoRefused(
                f"Port {port} is busy: choose another one with `make demo PORT={port + 1 if port < 65535 else 8000}`."
            ) from error
