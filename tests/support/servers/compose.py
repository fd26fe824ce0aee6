"""Starts servers of Redis and Sentinels by the command lines of docker-compose.yml: real processes, no container.
Of a command only the names of other containers, the folders and the program change. Never leaves one behind.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from inventory import redis
from inventory.telemetry.page import serve as serve_metrics
from tests.support.servers.least_rights import LETTERS, passwords
from tests.support.servers.server_matrix import ANSWER_SECONDS, answers
from tests.support.servers.shop_processes import ROOT
from tests.support.waiting import wait_until
from workers.embedded.binaries import valkey_program
from workers.embedded.child_process import ChildProcess
from workers.embedded.server import free_port

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
SERVERS = ("redis", "redis-2", "redis-3")
SENTINELS = ("sentinel-1", "sentinel-2", "sentinel-3")
# Another container, in an address or as two words; not the beginning of redis://.
CONTAINER = re.compile(r"\b(redis(?:-\d)?|sentinel-\d|cache)([: ])(?:6379|26379)\b")
# What the image's script does when it has become the user.
ENTRYPOINT = '#!/bin/sh\nshift\nexec "{program}" "$@" --bind 127.0.0.1 --port {port}\n'


def filled(text: str, given: Mapping[str, str]) -> str:
    """Return `text` with Compose's ${NAME:-default}, ${NAME:?error} and ${NAME:+other} replaced, inner ones first."""
    pattern = re.compile(r"\$\{(\w+)(?::([-?+])([^${}]*))?\}")
    while found := pattern.search(text):
        default = (found[3] or "") if found[2] == "-" else ""
        value = given.get(found[1], default)
        text = text[: found.start()] + (found[3] if value and found[2] == "+" else value) + text[found.end() :]
    return text


def example_of_sentinel() -> dict[str, str]:
    """Return the variables of the profile as .env.example shows them."""
    text = (ROOT / ".env.example").read_text()
    return dict(re.findall(r"^#(REDIS_SCHEME|REDIS_SERVERS|CACHE_SERVER)=(.+)$", text, flags=re.MULTILINE))


def check_health(service: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a service's health check in the environment of its process, more patiently: the machine may stand still."""
    kind, program, *arguments = SERVICES[service]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    patient = [re.sub(r"timeout(_seconds)?=\d+", rf"timeout\1={ANSWER_SECONDS}", each) for each in arguments]
    assert patient != arguments
    return subprocess.run(
        [sys.executable, *patient],
        cwd=ROOT, capture_output=True, text=True, timeout=5 * ANSWER_SECONDS,
        env={"PATH": os.environ["PATH"], **environment},
    )  # fmt: skip


class ComposeServers:
    """The servers and Sentinels of the profile. Each has a port of its own, and a folder that outlives it."""

    def __init__(self, folder: Path) -> None:
        self.given = {**passwords(), **example_of_sentinel(), "REDIS_PASSWORD": LETTERS}
        self.ports = {name: free_port() for name in (*SERVERS, *SENTINELS)}
        self._folder = folder
        self._children: dict[str, ChildProcess] = {}
        self._clients: dict[str, redis.Client] = {}
        self._metrics = f"127.0.0.1:{serve_metrics('127.0.0.1:0', 'settler')}"

    def environment_of(self, service: str) -> dict[str, str]:
        """Return what Compose gives a service, with the other containers on this machine."""
        given = SERVICES[service]["environment"]
        return {name: self._here(filled(str(value), self.given)) for name, value in given.items()}

    def _here(self, text: str) -> str:
        return CONTAINER.sub(lambda found: f"127.0.0.1{found[2]}{self.ports.get(found[1], 1)}", text)

    def start(self, name: str) -> None:
        """Run the command of a server or a Sentinel; return when it answers."""
        folder, programs = self._folder / name, self._folder / name / "programs"
        for each in (folder, programs, folder / "tmp", folder / "data"):
            each.mkdir(exist_ok=True)
        self._stand_in(programs / "docker-entrypoint.sh", ENTRYPOINT, port=self.ports[name])
        self._stand_in(programs / "chown", "#!/bin/sh\n")  # the files have no other user here
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._children[name] = ChildProcess(
            name=name,
            arguments=self._command(name),
            environment={**self.environment_of(name), "OWN_NAME": "127.0.0.1", "PATH": path},
            folder=folder / "data",
            log_path=folder / "log",
        ).start()
        wait_until(lambda: answers(self.operator(name)), what=lambda: f"{name}: {self._children[name].log_end()}")

    @staticmethod
    def _stand_in(path: Path, text: str, *, port: int = 0) -> None:
        path.write_text(text.format(program=valkey_program(), port=port))
        path.chmod(0o755)

    def _command(self, name: str) -> list[str]:
        """Return a command with the folders of this machine; the scripts are files that the container sees."""
        mounts = [mount.split(":") for mount in SERVICES[name]["volumes"] if mount.startswith("./")]
        folder = self._folder / name
        here = {inside: str(ROOT / source) for source, inside, _ in mounts}
        here |= {"/tmp/": f"{folder}/tmp/", "/data": f"{folder}/data"}  # noqa: S108
        command = [part.replace("$$", "$") for part in SERVICES[name]["command"]]
        return [re.sub("|".join(map(re.escape, here)), lambda found: here[found[0]], part) for part in command]

    def operator(self, name: str) -> redis.Client:
        """Return a client of this very server or Sentinel, that may do everything."""
        if name not in self._clients:
            user = "operator" if name in SENTINELS else "default"
            url = f"redis://{user}:{LETTERS}@127.0.0.1:{self.ports[name]}/0"
            self._clients[name] = redis.connect_once(url, timeout_seconds=ANSWER_SECONDS)
        return self._clients[name]

    def ask(self, name: str, *command: str) -> Any:
        """Return the reply of this very server or Sentinel, nothing while it has none."""
        try:
            return self.operator(name).execute_command(*command)
        except redis.FAILURES:
            return None

    def primary(self) -> str:
        """Return which server the Sentinels that answer all name as the primary, '' while they do not agree."""
        told = [self.ask(name, "SENTINEL GET-MASTER-ADDR-BY-NAME", "fairdrop") for name in SENTINELS]
        ports = {int(address[1]) for address in told if address}
        return next((name for name in SERVERS if {self.ports[name]} == ports), "")

    def watched(self, name: str) -> dict[str, str]:
        """Return what a Sentinel says of the primary, nothing while it is not there."""
        told = self.ask(name, "SENTINEL MASTER", "fairdrop") or {}
        return {key: str(value) for key, value in dict(told).items()}

    def is_ready(self) -> bool:
        """Say whether every Sentinel knows both replicas and both others, and the replicas are in touch."""
        told = [self.watched(name) for name in SENTINELS]
        known = {(each.get("num-slaves"), each.get("num-other-sentinels")) for each in told}
        return known == {("2", "2")} and sum(self.follows(name) for name in SERVERS) == 2

    def follows(self, name: str) -> bool:
        """Say whether a server is a replica that is in touch with its primary."""
        told = self.ask(name, "INFO", "replication") or {}
        return told.get("role") == "slave" and told.get("master_link_status") == "up"

    def kill(self, *names: str) -> None:
        """End servers or Sentinels as a power cut does."""
        for name in names:
            self._children[name].kill_group()

    def health(self, service: str, database_url: str) -> subprocess.CompletedProcess[str]:
        """Run a service's health check where its process would run, with a page of metrics of ours."""
        here = {"DATABASE_URL": database_url, "FAIRDROP_METRICS_ADDRESS": self._metrics, "TMPDIR": str(self._folder)}
        return check_health(service, {**self.environment_of(service), **here})

    def close(self) -> None:
        """Stop whatever still runs."""
        for client in self._clients.values():
            client.close()
        for child in self._children.values():
            child.stop()


@contextmanager
def compose_servers(folder: Path) -> Iterator[ComposeServers]:
    """Run the servers and Sentinels of the profile; give them when they know each other."""
    servers = ComposeServers(folder)
    try:
        for name in (*SERVERS, *SENTINELS):
            servers.start(name)
        wait_until(servers.is_ready, what=lambda: str([servers.watched(name) for name in SENTINELS]))
        yield servers
    finally:
        servers.close()
