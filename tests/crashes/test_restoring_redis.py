"""Runs the commands of docs/restoring.md that copy Redis and restore it, on a real Valkey with the shop's settings:
the append-only folder, and the snapshot. The control: a snapshot is not read where an append-only folder is expected.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inventory import redis
from tests.support.crashes.extra_shop import OwnStore
from tests.support.crashes.rehearsal import PLAYED, block
from tests.support.waiting import wait_until
from workers.embedded.server import Server
from workers.embedded.valkey import start_valkey


class RedisRehearsal:
    """A Valkey, and a place for its backups. settings: lines at the end of its configuration file."""

    def __init__(self, folder: Path) -> None:
        self.settings = ""
        self.folder, self.backup = folder / "own" / "valkey", folder / "backup"
        self.backup.mkdir()
        (folder / "own").mkdir()
        self.store = OwnStore(self.start, folder / "own")

    def start(self, data_dir: Path, *, port: int) -> Server:
        return start_valkey(data_dir, port=port, more=self.settings)

    @property
    def client(self) -> redis.Client:
        return redis.connect_once(self.store.url, timeout_seconds=60)

    def wait_for_disk(self) -> None:
        """Return when nothing is written in the background, as the document says."""

        def is_quiet() -> bool:
            found = self.client.info("persistence")
            work = ("rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled")
            return not any(found[name] for name in work)

        wait_until(is_quiet, what="the disk is quiet")

    def follow(self, lines: list[str]) -> None:
        """Do what the document says, line by line."""
        for line in lines:
            if line == "systemctl stop redis-server":
                self.store.stop()
            elif line == "systemctl start redis-server":
                self.store.start_again()
            elif line.startswith("redis-cli "):
                self.client.execute_command(*shlex.split(line)[1:])
                self.wait_for_disk()
            else:
                assert not line.startswith(PLAYED)
                subprocess.run(["sh", "-c", self.told(line)], check=True, capture_output=True, timeout=600)

    def told(self, line: str) -> str:
        """Return a line with the places of this machine, and of the only copy there is."""
        line = line.replace("/var/lib/redis", str(self.folder)).replace("/srv/backup", str(self.backup))
        return line.replace("redis-2004", next((each.name for each in self.backup.glob("redis-*")), ""))


@pytest.fixture
def rehearsal(tmp_path: Path) -> Iterator[RedisRehearsal]:
    found = RedisRehearsal(tmp_path)
    try:
        found.client.set("before", "1")
        yield found
    finally:
        found.store.stop()


def rewrites_at(rehearsal: RedisRehearsal) -> str:
    return str(rehearsal.client.config_get("auto-aof-rewrite-percentage")["auto-aof-rewrite-percentage"])


def test_the_append_only_folder_comes_back_as_it_was_copied(rehearsal: RedisRehearsal) -> None:
    before = rewrites_at(rehearsal)
    rehearsal.follow(block("sh", holding="auto-aof-rewrite-percentage"))
    assert rewrites_at(rehearsal) == before
    rehearsal.client.set("after", "1")
    rehearsal.follow(block("sh", holding="redis-2004"))
    assert rehearsal.client.keys() == ["before"]
    rehearsal.client.set("since", "1")
    rehearsal.store.kill()
    rehearsal.store.start_again()
    assert sorted(rehearsal.client.keys()) == ["before", "since"]


def test_a_snapshot_comes_back_and_is_appended_to_again(rehearsal: RedisRehearsal) -> None:
    rehearsal.follow(block("sh", holding="BGSAVE"))
    rehearsal.client.set("after", "1")
    rehearsal.settings = "appendonly no\n"
    rehearsal.follow(block("sh", holding="CONFIG SET appendonly yes"))
    assert rehearsal.client.keys() == ["before"]
    rehearsal.client.set("since", "1")
    rehearsal.settings = ""
    rehearsal.store.kill()
    rehearsal.store.start_again()
    assert sorted(rehearsal.client.keys()) == ["before", "since"]


def test_with_an_append_only_folder_expected_a_snapshot_is_not_read(rehearsal: RedisRehearsal) -> None:
    """The control of the settings that the document has changed meanwhile."""
    rehearsal.follow(block("sh", holding="BGSAVE"))
    rehearsal.follow(block("sh", holding="CONFIG SET appendonly yes"))
    assert rehearsal.client.keys() == []
