"""Starts the kinds of Redis that the shop runs on: one server, a Cluster of three, a pair under Sentinel.
Never leaves one behind; loopback only. Called by the server-matrix tests.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from inventory import redis
from tests.waiting import wait_until
from workers.child_process import ChildProcess
from workers.server import free_port
from workers.server_binaries import valkey_program

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
# The server's own choice, port + 10000, may lie beyond the last port.
CLUSTERED = "cluster-enabled yes\ncluster-port {bus}\ncluster-config-file nodes.conf\ncluster-node-timeout 2000\n"
SENTINEL = """\
bind 127.0.0.1
port {port}
dir "{folder}"
sentinel monitor {service} 127.0.0.1 {primary} 1
sentinel down-after-milliseconds {service} 500
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


def debian_redis() -> Path | None:
    """Return Debian's redis-server when it is installed and is not a Valkey by another name."""
    found = shutil.which("redis-server")
    return Path(found) if found else None


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
    for name, value in {"port": port, "bus": bus_port, "folder": folder}.items():
        text = text.replace(f"{{{name}}}", str(value))
    configuration.write_text(text)
    child = ChildProcess(
        name=folder.name,
        arguments=[str(program or valkey_program()), str(configuration), *options],
        environment={**os.environ, **(environment or {})},
        folder=folder,
        log_path=folder / "log",
    ).start()
    client = redis.connect_once(f"redis://127.0.0.1:{port}/0", timeout_seconds=5)
    try:
        wait_until(lambda: answers(client), timeout_seconds=10, what=f"{folder.name} answers")
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
    """Run a Cluster of three primaries; give its address."""
    with ExitStack() as running:
        nodes = [running.enter_context(node(folder / f"node-{number}", SERVER + CLUSTERED)) for number in range(3)]
        bounds = [0, 5461, 10923, SLOTS]
        for number, each in enumerate(nodes):
            each.run("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
            each.run("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            each.run("CLUSTER", "MEET", "127.0.0.1", nodes[0].port, nodes[0].bus_port)
        wait_until(lambda: all(knows_all(each) for each in nodes), timeout_seconds=20, what="the cluster is whole")
        yield "redis+cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in nodes)


def knows_all(each: Node) -> bool:
    """Say whether a node knows who serves every slot."""
    info = str(each.client.execute_command("CLUSTER INFO"))
    return "cluster_state': 'ok'" in info and "cluster_known_nodes': '3'" in info


@dataclass(frozen=True)
class Watched:
    """A primary and its replica under one Sentinel."""

    url: str
    primary: Node
    replica: Node

    def kill_primary(self) -> None:
        """End the primary as a power cut does; return when Sentinel has made the replica the primary."""
        self.primary.child.kill_group()
        wait_until(lambda: role_of(self.replica) == "master", timeout_seconds=20, what="the replica is promoted")


def role_of(each: Node) -> str:
    """Return master or slave."""
    return str(each.client.info("replication")["role"])


@contextmanager
def watched_pair(folder: Path) -> Iterator[Watched]:
    """Run a primary, its replica, and a Sentinel that watches them."""
    with ExitStack() as running:
        primary = running.enter_context(node(folder / "primary", SERVER))
        replica = running.enter_context(node(folder / "replica", f"{SERVER}replicaof 127.0.0.1 {primary.port}\n"))
        wait_until(lambda: replica.client.info("replication")["master_link_status"] == "up", timeout_seconds=10)
        text = SENTINEL.replace("{service}", SERVICE).replace("{primary}", str(primary.port))
        sentinel = running.enter_context(node(folder / "sentinel", text, options=("--sentinel",)))
        wait_until(lambda: knows(sentinel, replica), timeout_seconds=20, what="Sentinel knows the replica")
        yield Watched(f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}/0", primary, replica)


def knows(sentinel: Node, replica: Node) -> bool:
    """Say whether a Sentinel has found a replica."""
    return str(replica.port) in str(sentinel.run("SENTINEL", "REPLICAS", SERVICE))
