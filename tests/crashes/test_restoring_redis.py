"""Runs the commands of docs/restoring.md that copy Redis and restore it, on a real Valkey with the shop's settings and
users: the append-only folder, and the snapshot. Without a redis-cli on this machine the test asks the server itself.
And the commands of the pictures. The control: a snapshot is not read where an append-only folder is expected.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inventory import redis
from tests.support.crashes.extra_shop import OwnStore, port_of
from tests.support.crashes.rehearsal import PLAYED, block
from tests.support.servers.least_rights import LETTERS, user_lines
from tests.support.waiting import wait_until
from workers.embedded.server import Server, kept_password
from workers.embedded.valkey import start_valkey

CLI = shutil.which("redis-cli") or shutil.which("valkey-cli")


class RedisRehearsal:
    """A Valkey, and a place for its backups. settings: lines at the end of its configuration file."""

    def __init__(self, folder: Path) -> None:
        self.settings = ""
        self.folder, self.backup = folder / "own" / "valkey", folder / "backup"
        self.backup.mkdir()
        (folder / "own").mkdir()
        self._users, self._passwords = folder / "users.acl", folder / "passwords"
        operators = kept_password(folder / "own" / "valkey.password")
        users = "\n".join(user_lines("--before-7.2")).replace(f">{LETTERS} ", f">{operators} ")
        self._users.write_text(users + "\n")
        self._passwords.write_text(f"FAIRDROP_DB_PASSWORD=another\nREDIS_PASSWORD={operators}\n")
        self.store = OwnStore(self.start, folder / "own")

    def start(self, data_dir: Path, *, port: int) -> Server:
        return start_valkey(data_dir, port=port, more=f'aclfile "{self._users}"\n{self.settings}')

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
            elif "redis-cli " in line and not CLI:
                self.ask(line)
            else:
                assert not line.startswith(PLAYED)
                self.run(line)

    def ask(self, line: str) -> None:
        """Do a line without a redis-cli: send its command, or wait as it does."""
        if line.startswith("redis-cli -e "):
            self.client.execute_command(*shlex.split(line)[2:])
        else:
            assert line.startswith("until redis-cli -e INFO persistence | ")
            self.wait_for_disk()

    def run(self, line: str, *, first: bool = True) -> subprocess.CompletedProcess[bytes]:
        """Run a line, with the password as the document finds it; first: after the line that says it."""
        lines = [*(block("sh", holding="export REDISCLI_AUTH") if first else ()), line]
        command = ["sh", "-c", "\n".join(map(self.told, lines))]
        return subprocess.run(command, check=first, capture_output=True, timeout=600)

    def told(self, line: str) -> str:
        """Return a line with the places of this machine, and of the only copy there is."""
        line = line.replace("/etc/fairdrop/passwords", str(self._passwords))
        line = re.sub(r"\bredis-cli\b", f"{CLI} -p {port_of(self.store.url)}", line)
        line = line.replace("/var/lib/redis", str(self.folder)).replace("/srv/backup", str(self.backup))
        return line.replace("redis-2026-11-24-2004", next((each.name for each in self.backup.glob("redis-*")), ""))


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
    rehearsal.follow(block("sh", holding="redis-2026"))
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


@pytest.mark.skipif(not CLI, reason="it asks what redis-cli does, and there is none")
def test_the_control_without_the_password_a_command_fails(rehearsal: RedisRehearsal) -> None:
    """Without `-e` it would fail just as well, and nobody would see it."""
    before = rewrites_at(rehearsal)
    refused = rehearsal.run("redis-cli -e CONFIG SET auto-aof-rewrite-percentage 0", first=False)
    assert refused.returncode != 0
    assert b"NOAUTH" in refused.stdout + refused.stderr
    assert rehearsal.run("redis-cli CONFIG SET auto-aof-rewrite-percentage 0", first=False).returncode == 0
    assert rewrites_at(rehearsal) == before


def test_the_pictures_come_back(tmp_path: Path) -> None:
    """The control: after the first line alone there is none."""
    picture, backup = tmp_path / "media" / "kite.webp", tmp_path / "backup"
    backup.mkdir()
    picture.parent.mkdir()
    picture.write_bytes(b"a picture")
    text = "\n".join(block("sh", holding="/srv/fairdrop-media")).replace("runuser -u fairdrop -- ", "")
    text = text.replace("/srv/fairdrop-media", str(picture.parent)).replace("/srv/backup", str(backup))
    keep, put_back = text.replace("$(date +%F)", "2026-11-24").splitlines()
    subprocess.run(["bash", "-euc", keep], check=True, timeout=60)
    picture.unlink()
    assert list(picture.parent.iterdir()) == []
    subprocess.run(["bash", "-euc", put_back], check=True, timeout=60)
    assert picture.read_bytes() == b"a picture"
