"""Gives the tests their own PostgreSQL and Valkey on free ports, started only when a collected test needs them.
Never uses the servers of a running demo, never skips a test for a missing server: the run fails with one sentence.
The addresses must be published before the settings read the environment.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path

import psutil

from loadtest.record.files import own_mark, remove_left_behind
from workers.embedded.postgres import DATABASE, ROLE, start_postgres
from workers.embedded.server import kept_password, reserve_port
from workers.embedded.valkey import start_valkey

ROOT = Path(__file__).resolve().parents[3]
# These folders need nothing but Python; every other test gets real servers.
SERVERLESS = (ROOT / "tests" / "unit", ROOT / "tests" / "rules")

PREFIX = "fairdrop-tests-"
# Where Linux keeps files in memory. Killed processes lose nothing there, which is all that a test can do to them; and
# no test waits for a disk that others use.
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
MEMORY_NEEDED_BYTES = 4 * 1024**3


class OwnServers:
    """The addresses are fixed at once, because settings are read once; the processes come when they are needed."""

    def __init__(self) -> None:
        remove_leftovers()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX + own_mark(), dir=folder_for_servers()))
        self.processes = ExitStack()
        # Holding the sockets keeps the ports ours until the servers take them over.
        self.reserved: dict[str, socket.socket] = {}
        self.own_postgres_url = ""
        self.started = False

    def publish(self) -> None:
        """Put the addresses into the environment, except those that name a server already."""
        atexit.register(self.stop)
        os.environ["FAIRDROP_STATE_DIR"] = str(self.folder)
        if not os.environ.get("DATABASE_URL"):
            password = kept_password(self.folder / "postgres-role.password")
            self.own_postgres_url = f"postgresql://{ROLE}:{password}@127.0.0.1:{self._reserve('pg')}/{DATABASE}"
            os.environ["DATABASE_URL"] = self.own_postgres_url
        if not os.environ.get("REDIS_URL"):
            password = kept_password(self.folder / "valkey.password")
            os.environ["REDIS_URL"] = f"redis://:{password}@127.0.0.1:{self._reserve('valkey')}/0"

    def withdraw(self) -> None:
        """Take the addresses that we made up out of the environment again."""
        for name, variable in (("pg", "DATABASE_URL"), ("valkey", "REDIS_URL")):
            if name in self.reserved:
                del os.environ[variable]

    def start(self) -> None:
        """Start the servers whose addresses we made up; a second call does nothing."""
        if self.started:
            return
        self.started = True
        for name, start in (("pg", start_postgres), ("valkey", start_valkey)):
            if name in self.reserved:
                port = self._release(name)
                self.processes.enter_context(start(self.folder, port=port))

    @property
    def own_postgres(self) -> bool:
        """Tell whether PostgreSQL is ours and goes away with the run."""
        return self.own_postgres_url == os.environ["DATABASE_URL"]

    def stop(self) -> None:
        """Stop what was started and remove its data."""
        self.processes.close()
        for reservation in self.reserved.values():
            reservation.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _reserve(self, name: str) -> int:
        self.reserved[name] = reserve_port()
        return self.reserved[name].getsockname()[1]

    def _release(self, name: str) -> int:
        reservation = self.reserved.pop(name)
        with reservation:
            return reservation.getsockname()[1]


def folder_for_servers() -> Path:
    """Return where the servers' data goes: into memory where there is plenty, else where temporary files go."""
    roomy = psutil.virtual_memory().available > 2 * MEMORY_NEEDED_BYTES
    if roomy and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_NEEDED_BYTES:
        return MEMORY
    return Path(tempfile.gettempdir())


def needs_servers(path: Path) -> bool:
    """Tell whether the tests in the file `path` speak to PostgreSQL or Redis."""
    return not any(path.is_relative_to(folder) for folder in SERVERLESS)


def remove_leftovers() -> None:
    """Remove the data of earlier runs that were killed; their servers ended with them."""
    for place in {MEMORY, Path(tempfile.gettempdir())}:
        remove_left_behind(place, prefix=PREFIX)
