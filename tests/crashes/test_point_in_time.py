"""Runs the commands of docs/restoring.md on a real PostgreSQL: base backup, WAL archive, recovery to a moment.
The control: without the archive, the base backup alone lacks what came after it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.support.crashes.extra_shop import OwnStore, own_store
from tests.support.waiting import wait_until
from workers.embedded.binaries import postgres_folder
from workers.embedded.places import PASS
from workers.embedded.postgres import start_postgres

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "restoring.md").read_text()


def block(language: str, *, holding: str) -> list[str]:
    """Return the lines of the document's block that has a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)
    (found,) = [each for each in blocks if holding in each]
    return str(found).splitlines()


class Rehearsal:
    """A PostgreSQL with its archive, both in one folder that its account may read."""

    def __init__(self, store: OwnStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        address = urlsplit(store.url)
        self.superuser = f"postgresql://postgres:{store.superuser_password}@127.0.0.1:{address.port}/postgres"
        self.data = Path(str(self.ask("SHOW data_directory")))
        self.owner = self.data.stat()
        self.backup = folder / "backup"
        (self.backup / "wal").mkdir(parents=True)
        self.own(folder / "backup")

    def own(self, path: Path) -> None:
        """Give a folder to the account of the server."""
        for each in (path, *path.rglob("*")):
            os.chown(each, self.owner.st_uid, self.owner.st_gid)

    def told(self, line: str) -> str:
        """Return a line of the document with the places of this machine."""
        return line.replace("/srv/backup", str(self.backup)).replace("/var/lib/postgresql/15/main", str(self.data))

    def run(self, line: str) -> None:
        """Run a command of the document with the server's programs."""
        path = f"{postgres_folder()}:{os.environ['PATH']}"
        server = {"PGHOST": "127.0.0.1", "PGPORT": str(urlsplit(self.superuser).port), "PGUSER": "postgres"}
        environment = {**os.environ, **server, "PGPASSWORD": self.store.superuser_password, "PATH": path}
        subprocess.run(["sh", "-c", self.told(line)], env=environment, check=True, capture_output=True, timeout=60)

    def ask(self, statement: str) -> object:
        """Run a statement as the superuser; return its first value, if it has one."""
        with psycopg.connect(self.superuser, autocommit=True, connect_timeout=3) as connection:
            cursor = connection.execute(statement)
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None

    def restart(self) -> None:
        self.store.close()
        self.store.start_again()

    def lose(self, *, moment: str) -> None:
        """Lose the data folder, and restore it up to a moment."""
        self.store.kill()
        self.data.rename(self.folder / "lost")
        for line in block("sh", holding="recovery.signal"):
            self.run(line)
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            for line in block("ini", holding="restore_command"):
                settings.write(self.told(re.sub(r"'2026[^']*'", f"'{moment}'", line)) + "\n")
        self.own(self.data)
        self.store.start_again()
        wait_until(lambda: self.ask("SELECT pg_is_in_recovery()") is False, what="the server is promoted")


@pytest.fixture
def rehearsal() -> Iterator[Rehearsal]:
    folder = Path("/tmp") / f"fairdrop-rehearsal-{os.getpid()}"  # noqa: S108 - the server's account must reach it
    folder.mkdir(mode=PASS)
    with own_store(start_postgres, folder / "own") as store:
        yield Rehearsal(store, folder)
    shutil.rmtree(folder)


def back_up(rehearsal: Rehearsal) -> str:
    """Follow the document, write a row before and after a moment; return the moment."""
    for line in block("sql", holding="archive_command"):
        rehearsal.ask(rehearsal.told(line))
    rehearsal.restart()
    rehearsal.ask("CREATE TABLE told (at text)")
    for line in block("sh", holding="pg_verifybackup"):
        # The wheel's own pg_verifybackup dies of a segmentation fault, whatever it is given.
        if not line.startswith("pg_verifybackup"):
            rehearsal.run(line)
    rehearsal.ask("INSERT INTO told VALUES ('after the base backup')")
    moment = str(rehearsal.ask("SELECT clock_timestamp()"))
    rehearsal.ask("INSERT INTO told VALUES ('after the moment')")
    last = rehearsal.ask("SELECT pg_walfile_name(pg_switch_wal())")
    wait_until(lambda: (rehearsal.backup / "wal" / str(last)).exists(), what="the last segment is archived")
    return moment


def rows(rehearsal: Rehearsal) -> object:
    return rehearsal.ask("SELECT string_agg(at, ', ') FROM told")


def test_the_database_comes_back_as_of_a_moment(rehearsal: Rehearsal) -> None:
    moment = back_up(rehearsal)
    rehearsal.lose(moment=moment)
    assert rows(rehearsal) == "after the base backup"
    rehearsal.ask("INSERT INTO told VALUES ('since')")  # it takes writes again


def test_without_the_archive_what_came_after_the_base_backup_is_lost(rehearsal: Rehearsal) -> None:
    """The control."""
    back_up(rehearsal)
    rehearsal.store.kill()
    rehearsal.data.rename(rehearsal.folder / "lost")
    rehearsal.run("cp -a /srv/backup/base /var/lib/postgresql/15/main")
    rehearsal.own(rehearsal.data)
    rehearsal.store.start_again()
    assert rows(rehearsal) is None
