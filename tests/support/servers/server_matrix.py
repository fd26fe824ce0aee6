"""Starts the kinds of Redis that the shop runs on: one server, a Cluster of three or six, a pair under Sentinel.
Never leaves one behind; loopback only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from inventory import redis
from tests.support.waiting import wait_until
from workers.embedded.binaries import valkey_program
from workers.embedded.child_process import ChildProcess
from workers.embedded.server import free_port

SLOTS = 16384
SERVICE = "fairdrop"
SERVER = """\
bind 127.0.0.1
port {port}
appendonly yes
appendfsync always
maxmemory-policy noeviction
save ""
dir "{folder}"
repl-diskless-sync-delay 0
"""
# The groups are patient: a busy server is not taken for a dead one, nor is a handshake of two busy ones given up.
# Sentinel is quick only when one was killed; it promotes no replica whose link is down for ten times as long.
PATIENCE_MS, QUICK_MS = 60_000, 3_000
# A Sentinel that stood still for longer would declare nobody dead for half a minute: it must doubt its own clock.
STANDSTILL_MS = 3_600_000
# When the servers of a Cluster take one that is killed for dead.
NODE_TIMEOUT_MS = 1500
ANSWER_SECONDS = 60
# The server's own choice, port + 10000, may lie beyond the last port.
CLUSTERED = """\
cluster-enabled yes
cluster-port {bus}
cluster-config-file nodes.conf
cluster-node-timeout {patience}
cluster-require-full-coverage no
"""
SENTINEL = """\
bind 127.0.0.1
port {port}
dir "{folder}"
sentinel monitor {service} 127.0.0.1 {primary} 1
sentinel down-after-milliseconds {service} {patience}
sentinel failover-timeout {service} 3000
"""


@dataclass(frozen=True)
class Node:
    """One server of a group, and a client of it alone."""

    child: ChildProcess
    port: int
    bus_port: int
    client: redis.Client

    def run(self, *command: str | int) -> object:
        """Run one command on this very server."""
        return self.client.execute_command(*command)


@cache
def debian_redis() -> Path | None:
    """Return Debian's redis-server when it is installed and is a Redis 7, not a Valkey by another name."""
    found = shutil.which("redis-server")
    if found is None:
        return None
    told = subprocess.run(
        [found, "--version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
    ).stdout
    return Path(found) if re.match(r"Redis server v=7\.", told) else None


# Every kind there is on this machine; the first is the one server that all tests share.
KINDS = ("valkey", *(("redis7",) if debian_redis() else ()), "cluster", "sentinel")
# For a test of `each_server` that the kind of server cannot change.
ON_ONE_KIND = pytest.mark.parametrize("each_server", KINDS[:1], indirect=True)


class ServerGroups:
    """One group of servers of each kind: started when it is first asked for, stopped together."""

    def __init__(self, folder: Path, *, valkey_url: str) -> None:
        self._folder = folder
        self._urls = {"valkey": valkey_url}
        self._running = ExitStack()

    def url(self, kind: str) -> str:
        """Return the address of the group of one of KINDS."""
        if kind not in self._urls:
            self._urls[kind] = self._start(kind)
        return self._urls[kind]

    def _start(self, kind: str) -> str:
        folder = self._folder / kind
        folder.mkdir()
        if kind == "cluster":
            return self._running.enter_context(cluster(folder))
        if kind == "sentinel":
            return self._running.enter_context(watched_pair(folder)).url
        program = debian_redis()
        assert program is not None, f"{kind} is none of {KINDS}"
        return self._running.enter_context(single(folder, program=program))

    def close(self) -> None:
        """Stop every group."""
        self._running.close()


def nodes_of(client: redis.Client) -> list[redis.Client]:
    """Return a client for each server that takes writes: one, or the primaries of a Cluster."""
    if not hasattr(client, "get_primaries"):
        return [client]
    return [client.get_redis_connection(each) for each in client.get_primaries()]


def sum_of_info(client: redis.Client, section: str, field: str) -> int:
    """Return a number of INFO, added up over every server that takes writes."""
    infos: list[dict[str, Any]] = [each.info(section) for each in nodes_of(client)]
    return sum(int(info[field]) for info in infos)


@contextmanager
def node(
    folder: Path,
    text: str,
    *,
    program: Path | None = None,
    options: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Node]:
    """Run one server with the configuration `text`, which may name {port} and {folder}, and more in its environment."""
    folder.mkdir()
    port, bus_port = free_port(), free_port()
    configuration = folder / "server.conf"
    for name, value in {"port": port, "bus": bus_port, "folder": folder, "patience": PATIENCE_MS}.items():
        text = text.replace(f"{{{name}}}", str(value))
    configuration.write_text(text)
    child = ChildProcess(
        name=folder.name,
        arguments=[str(program or valkey_program()), str(configuration), *options],
        environment={**os.environ, **(environment or {})},
        folder=folder,
        log_path=folder / "log",
    ).start()
    client = redis.connect_once(f"redis://127.0.0.1:{port}/0", timeout_seconds=ANSWER_SECONDS)
    try:
        wait_until(lambda: answers(client), what=f"{folder.name} answers")
        yield Node(child, port, bus_port, client)
    finally:
        client.close()
        child.stop()


def answers(client: redis.Client) -> bool:
    """Say whether a server answers."""
    try:
        return bool(client.ping())
    except redis.FAILURES:
        return False


@contextmanager
def single(folder: Path, *, program: Path) -> Iterator[str]:
    """Run one server of `program`; give its address."""
    with node(folder / "single", SERVER, program=program) as server:
        yield f"redis://127.0.0.1:{server.port}/0"


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a Cluster of three primaries that is patient; give its address."""
    with cluster_of_three(folder) as nodes:
        yield address_of(nodes)


def address_of(nodes: Sequence[Node]) -> str:
    """Return the address of a Cluster."""
    return "redis+cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in nodes)


@contextmanager
def cluster_of_three(folder: Path) -> Iterator[list[Node]]:
    """Run a Cluster of three primaries; give its servers."""
    with ExitStack() as running:
        nodes = [running.enter_context(node(folder / f"node-{number}", SERVER + CLUSTERED)) for number in range(3)]
        bounds = [0, 5461, 10923, SLOTS]
        for number, each in enumerate(nodes):
            each.run("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
            each.run("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            each.run("CLUSTER", "MEET", "127.0.0.1", nodes[0].port, nodes[0].bus_port)
        wait_until(lambda: all(knows_all(each) for each in nodes), what="the cluster is whole")
        yield nodes


def knows_all(each: Node, *, count: int = 3) -> bool:
    """Say whether a node knows who serves every slot, and every node."""
    info = str(each.client.execute_command("CLUSTER INFO"))
    return "cluster_state': 'ok'" in info and f"cluster_known_nodes': '{count}'" in info


@contextmanager
def cluster_of_six(folder: Path) -> Iterator[tuple[list[Node], list[Node]]]:
    """Run a Cluster of three primaries with a replica each; give both, in the same order.

    No replica takes over by itself: one that is told to may, also when it has heard nothing of its primary for long.
    """
    text = f"{SERVER}{CLUSTERED}cluster-replica-no-failover yes\ncluster-replica-validity-factor 0\n"
    with cluster_of_three(folder) as primaries, ExitStack() as running:
        replicas = [running.enter_context(node(folder / f"replica-{number}", text)) for number in range(3)]
        for each in replicas:
            each.run("CLUSTER", "MEET", "127.0.0.1", primaries[0].port, primaries[0].bus_port)
        everybody = [*primaries, *replicas]
        wait_until(lambda: all(knows_all(each, count=6) for each in everybody), what="all six know each other")
        for primary, replica in zip(primaries, replicas, strict=True):
            replica.run("CLUSTER", "REPLICATE", str(primary.run("CLUSTER", "MYID")))
            wait_until(lambda replica=replica: linked(replica), what=f"{replica.child.name} is linked")
        wait_until(lambda: all(knows_replicas(each) for each in everybody), what="all know who replicates whom")
        yield primaries, replicas


def knows_replicas(each: Node) -> bool:
    """Say whether a node knows of all three replicas what they are."""
    return str(each.client.execute_command("CLUSTER NODES")).count("slave") == 3


def wait_until_replica_has_all(primary: Node, replica: Node) -> None:
    """Return when the replica has everything that the primary had when this was called."""
    # Not WAIT: it counts only what its own connection wrote, and a pool may choose another one.
    offset = int(primary.client.info("replication")["master_repl_offset"])
    wait_until(lambda: offset_of(replica) >= offset, what="the replica has all")


def cut_replica_off(primary: Node, replica: Node) -> None:
    """Let the replica get nothing more from the primary; others still reach both."""
    replica.run("CONFIG", "SET", "masterauth", "a password that the primary does not have")
    primary.run("CLIENT", "KILL", "TYPE", "replica")
    wait_until(lambda: not linked(replica), what="the replica is cut off")


def take_over(replica: Node, *, others: Sequence[Node]) -> None:
    """Let the replica of a primary that was killed take its place; return when it has. others: who must notice.

    They stay less patient: one that is wrongly taken for dead is forgiven after two of their timeouts.
    """
    replica.run("CONFIG", "SET", "cluster-replica-no-failover", "no")
    for each in (replica, *others):
        each.run("CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS)
    wait_until(lambda: role_of(replica) == "master", what="the replica has taken over")


@dataclass(frozen=True)
class Watched:
    """A primary and its replica under one Sentinel."""

    url: str
    primary: Node
    replica: Node
    sentinel: Node

    def wait_until_replica_has_all(self) -> None:
        """Return when the replica has everything that the primary had when this was called."""
        wait_until_replica_has_all(self.primary, self.replica)

    def cut_replica_off(self) -> None:
        """Let the replica get nothing more from the primary; Sentinel still reaches both."""
        cut_replica_off(self.primary, self.replica)

    def kill_primary(self) -> None:
        """End the primary as a power cut does; return when Sentinel names the replica as the primary."""
        self.primary.child.kill_group()
        self._set_patience(QUICK_MS)
        wait_until(lambda: role_of(self.replica) == "master", what="the replica is promoted")
        asked = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        wait_until(lambda: str(self.replica.port) in str(self.sentinel.run(*asked)), what="it is named")
        self._set_patience(PATIENCE_MS)

    def _set_patience(self, milliseconds: int) -> None:
        self.sentinel.run("SENTINEL", "SET", SERVICE, "down-after-milliseconds", milliseconds)


def role_of(each: Node) -> str:
    """Return master or slave, or nothing when it cannot say: Sentinel cuts every connection of what it promotes."""
    try:
        return str(each.client.info("replication")["role"])
    except redis.FAILURES:
        return ""


def linked(replica: Node) -> bool:
    """Say whether a replica is in touch with its primary."""
    return replica.client.info("replication").get("master_link_status") == "up"


def offset_of(replica: Node) -> int:
    """Return how much of its primary's stream a replica has applied."""
    return int(replica.client.info("replication")["slave_repl_offset"])


@contextmanager
def watched_pair(folder: Path) -> Iterator[Watched]:
    """Run a primary, its replica, and a Sentinel that watches them."""
    with ExitStack() as running:
        primary = running.enter_context(node(folder / "primary", SERVER))
        replica = running.enter_context(node(folder / "replica", f"{SERVER}replicaof 127.0.0.1 {primary.port}\n"))
        wait_until(lambda: linked(replica), what="the replica is linked")
        text = (
            SENTINEL.replace("{service}", SERVICE)
            .replace("{primary}", str(primary.port))
            .replace("{patience}", str(PATIENCE_MS))
        )
        sentinel = running.enter_context(node(folder / "sentinel", text, options=("--sentinel",)))
        with suppress(redis.FAILURES):  # one that does not know it goes without
            sentinel.run("SENTINEL", "DEBUG", "TILT-TRIGGER", STANDSTILL_MS)
        wait_until(lambda: knows(sentinel, replica), what="Sentinel knows the replica")
        yield Watched(f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}/0", primary, replica, sentinel)


def knows(sentinel: Node, replica: Node) -> bool:
    """Say whether a Sentinel has found a replica."""
    return str(replica.port) in str(sentinel.run("SENTINEL", "REPLICAS", SERVICE))
