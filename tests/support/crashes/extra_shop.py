"""Gives a crash test stores of its own that it may kill, freeze and start again where they were.
Never harms the servers that the other tests share, never leaves one running.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol
from urllib.parse import urlsplit

import psutil

from loadtest.record.files import own_mark
from tests.support.servers.shop_processes import migrate
from tests.support.servers.stores import PREFIX, folder_for_servers
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess
from workers.embedded.places import PASS, PROGRAM
from workers.embedded.postgres import start_postgres
from workers.embedded.server import Server, free_port, kept_password
from workers.embedded.valkey import start_valkey

END_SECONDS = 120.0
# What `migrate` makes when it is told nothing.
ALL_TABLES: Sequence[Sequence[str]] = ((),)


class StartServer(Protocol):
    """What starts a server with its data in a folder, on a port."""

    def __call__(self, data_dir: Path, *, port: int) -> Server: ...


class OwnStore:
    """One server of one test, always at the same address with the same data."""

    def __init__(self, start: StartServer, folder: Path) -> None:
        self._start, self._folder, self._port = start, folder, free_port()
        self._server = start(folder, port=self._port)
        self.url = self._server.url

    @property
    def child(self) -> ChildProcess:
        """The server's process."""
        assert self._server.child is not None
        return self._server.child

    @property
    def superuser_password(self) -> str:
        """The password of PostgreSQL's superuser."""
        return kept_password(self._folder / "postgres-superuser.password")

    def kill(self) -> None:
        """End it as a power cut does: SIGKILL to all of it; return when it has ended."""
        self.child.kill_group()
        assert self.child.wait(timeout_seconds=END_SECONDS)

    def stop_at_once(self) -> None:
        """End PostgreSQL without a farewell to its clients (its immediate shutdown)."""
        os.kill(self.child.pid, signal.SIGQUIT)
        assert self.child.wait(timeout_seconds=END_SECONDS)
        self.child.kill_group()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Make it a black hole for the length of a block: it takes connections and never says a word."""
        family = [psutil.Process(self.child.pid)]
        family[0].suspend()
        try:
            wait_until(lambda: family[0].status() == psutil.STATUS_STOPPED, what="it starts no process more")
            # PostgreSQL answers by a process for each connection.
            family += family[0].children(recursive=True)
            for process in family[1:]:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
            yield
        finally:
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def stop(self) -> None:
        """End it in order, however long that takes."""
        self.child.stop(timeout_seconds=END_SECONDS)

    def start_again(self) -> None:
        """Start it where it was: same port, same data."""
        self._server = self._start(self._folder, port=self._port)
        assert self._server.url == self.url


@contextmanager
def own_store(start: StartServer, folder: Path, *, has_data: bool = False) -> Iterator[OwnStore]:
    """Run a server of this test's own for the length of a block. has_data: the folder is there, with what it begins
    with.
    """
    folder.mkdir(exist_ok=has_data)
    store = OwnStore(start, folder)
    try:
        yield store
    finally:
        store.stop()  # in order: what it still wrote would be in the way of who removes its folder


@contextmanager
def own_valkey(folder: Path) -> Iterator[OwnStore]:
    """Run a Valkey of this test's own, every write on disk before its answer."""
    with own_store(start_valkey, folder / "own-valkey") as store:
        yield store


@contextmanager
def own_postgres(
    *, environment: Mapping[str, str], targets: Sequence[Sequence[str]] = ALL_TABLES
) -> Iterator[OwnStore]:
    """Run a PostgreSQL of this test's own, with its tables made.

    targets: up to which migration, as `migrate` takes it; by default all of them.
    environment: of `migrate`, when it stops before the last.
    """
    with _open_folder() as home:
        folder = Path(home) / "own-postgres"
        if targets == ALL_TABLES:
            # With its owner and rights: to make a cluster and its tables takes seconds, and gives the same each time.
            subprocess.run(["cp", "-a", _migrated(), folder], check=True, timeout=END_SECONDS)
        with own_store(start_postgres, folder, has_data=targets == ALL_TABLES) as store:
            for target in () if targets == ALL_TABLES else targets:
                migrate(*target, environment={**environment, "DATABASE_URL": store.url})
            yield store


@cache
def _migrated() -> Path:
    """Make a cluster with all tables and stop it; return its folder, which is there as long as this process."""
    home = _open_folder()
    atexit.register(home.cleanup)
    folder = Path(home.name) / "migrated"
    with own_store(start_postgres, folder) as store:
        migrate(environment={**os.environ, "DATABASE_URL": store.url})
    shutil.rmtree(folder / PROGRAM, ignore_errors=True)  # where others have no way in, each start copies it
    return folder


def _open_folder() -> TemporaryDirectory[str]:
    """Return a folder for servers that other accounts may walk through: PostgreSQL runs as one.

    Not one of pytest's: each run of pytest closes those.
    """
    home = TemporaryDirectory(prefix=PREFIX + own_mark(), dir=folder_for_servers())
    Path(home.name).chmod(PASS)
    return home


def port_of(url: str) -> int:
    """Return the port in a server's address."""
    port = urlsplit(url).port
    assert port is not None
    return port
