"""Reads the commands of docs/restoring.md and runs them on servers of a test's own, with the places of this machine.
Never runs systemctl or pg_ctlcluster, which a machine may not have: their lines are done by the test.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.support.crashes.extra_shop import OwnStore, own_store
from tests.support.waiting import wait_until
from workers.embedded.binaries import postgres_folder
from workers.embedded.places import PASS
from workers.embedded.postgres import start_postgres

# Without what is told to containers.
DOCUMENT = re.sub(
    r"\n## With Compose\n.*?(?=\n## )", "", (Path(__file__).resolve().parents[3] / "docs" / "restoring.md").read_text(),
    flags=re.DOTALL,
)  # fmt: skip
PLAYED = ("systemctl ", "pg_ctlcluster ")


def block(language: str, *, holding: str) -> list[str]:
    """Return the lines of the document's block that has a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)
    (found,) = [each for each in blocks if holding in each]
    return str(found).splitlines()


def commands_of_the_walk() -> list[str]:
    """Return the commands of manage.py in the numbered steps that bring a shop back, without their redirections."""
    (section,) = re.findall(r"\n## A database lost in mid-sale\n(.*?)\n## ", DOCUMENT, re.DOTALL)
    steps = "\n".join(re.findall(r"^\d+\. .*", section, re.MULTILINE))
    return [found.partition(" > ")[0] for found in re.findall(r"`python manage\.py ([^`]+)`", steps)]


class Postgres:
    """A PostgreSQL of a test's own, and its superuser."""

    def __init__(self, store: OwnStore) -> None:
        self.store = store
        self._port = urlsplit(store.url).port
        self._url = f"postgresql://postgres:{store.superuser_password}@127.0.0.1:{self._port}/postgres"
        self.data = Path(str(self.ask("SHOW data_directory")))
        self._owner = self.data.stat()

    def own(self, path: Path) -> None:
        """Give a folder to the account of the server."""
        for each in (path, *path.rglob("*")):
            os.chown(each, self._owner.st_uid, self._owner.st_gid)

    def wait_until_promoted(self) -> None:
        """Return when it takes writes."""
        wait_until(lambda: self.ask("SELECT pg_is_in_recovery()") is False, what="the server is promoted")

    def ask(self, statement: str) -> object:
        """Run a statement as the superuser; return its first value, if it has one."""
        with psycopg.connect(self._url, autocommit=True, connect_timeout=60) as connection:
            cursor = connection.execute(statement)
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None


class Rehearsal(Postgres):
    """A PostgreSQL with its archive, both in one folder that its account may read."""

    def __init__(self, store: OwnStore, folder: Path) -> None:
        super().__init__(store)
        self.folder = folder
        self.backup = folder / "backup"
        (make,) = block("sh", holding="install -d")
        self.run(make.replace("-o postgres -g postgres", f"-o {self._owner.st_uid} -g {self._owner.st_gid}"))

    def told(self, line: str, *, data: Path | None = None) -> str:
        """Return a line of the document with the places of this machine; data: of another server than this one."""
        if "base-2026" in line:
            line = re.sub(r"base-2026[-\d]*", self.bases[-1].name, line)
        line = line.replace("/srv/backup", str(self.backup)).replace("host=primary", "host=127.0.0.1")
        return line.replace("/var/lib/postgresql/15/main", str(data or self.data))

    def run(self, line: str, *, data: Path | None = None) -> None:
        """Run a command of the document with the server's programs; data: as of told."""
        assert not line.startswith(PLAYED)
        path = f"{postgres_folder()}:{os.environ['PATH']}"
        server = {"PGHOST": "127.0.0.1", "PGPORT": str(self._port), "PGUSER": "postgres"}
        environment = {**os.environ, **server, "PGPASSWORD": self.store.superuser_password, "PATH": path}
        command = ["sh", "-c", self.told(line, data=data)]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=600)

    def keep_archive(self) -> None:
        """Let the server archive its log from now on."""
        for line in block("sql", holding="archive_command"):
            self.ask(self.told(line))
        self.store.stop()
        self.store.start_again()

    def back_up(self) -> None:
        """Make a base backup, and delete what is too old, by the document's one script."""
        script = block("sh", holding="pg_verifybackup")
        # The wheel's own pg_verifybackup dies of a segmentation fault, whatever it is given.
        self.run("\n".join(line for line in script if "/pg_verifybackup " not in line))

    @property
    def bases(self) -> list[Path]:
        """The base backups, the oldest first."""
        return sorted(self.backup.glob("base-*"))

    def archive(self) -> None:
        """Return when what was written until now is in the archive."""
        last = self.ask("SELECT pg_walfile_name(pg_switch_wal())")
        wait_until(lambda: (self.backup / "wal" / str(last)).exists(), what="the last segment is archived")

    def clear_first_try(self) -> None:
        """Stop the server, and move what it archived since it was restored out of the archive."""
        self.archive()
        self.store.stop()
        self.run("\n".join(block("sh", holding="first-try")))

    def restore(self, *, moment: str = "") -> None:
        """Lose the data folder of a killed server, and restore it up to a moment, or as far as the archive goes."""
        self.data.rename(self.folder / f"lost-{len(list(self.folder.glob('lost-*')))}")
        for line in block("sh", holding="recovery.signal"):
            self.run(line)
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            for line in block("ini", holding="restore_command"):
                settings.write(self.told(re.sub(r"'2026[^']*'", f"'{moment}'", line)) + "\n")
        self.own(self.data)
        self.store.start_again()
        self.wait_until_promoted()


@contextmanager
def rehearsing() -> Iterator[Rehearsal]:
    """Run a PostgreSQL for the length of a block."""
    folder = Path("/tmp") / f"fairdrop-rehearsal-{os.getpid()}"  # noqa: S108 - the server's account must reach it
    folder.mkdir(mode=PASS)
    try:
        with own_store(start_postgres, folder / "own") as store:
            yield Rehearsal(store, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a process of a killed server may still write


@contextmanager
def running_standby(primary: Rehearsal) -> Iterator[Postgres]:
    """Make a standby by the document's commands, and run it for the length of a block."""
    for line in block("sql", holding="CREATE ROLE replicator"):
        primary.ask(line)
    folder = primary.folder / "standby"
    home = folder / "postgres"
    home.mkdir(parents=True, mode=PASS)
    (home / "made").touch()  # what initdb would have made comes from the primary
    for password in (primary.folder / "own").glob("*.password"):
        shutil.copy2(password, folder)
    backup, start = block("sh", holding="--write-recovery-conf")
    primary.run(backup, data=home / "data")
    primary.own(home)
    assert start == "systemctl start postgresql@15-main"
    store = OwnStore(start_postgres, folder)
    try:
        yield Postgres(store)
    finally:
        store.stop()
