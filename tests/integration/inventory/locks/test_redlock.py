"""A majority decides: some servers may be down or silent, never the most of them; nothing is left behind.
On Valkeys and on Debian's Redis; not on Cluster or Sentinel, whose servers know each other.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from inventory import redis
from inventory.exceptions import InvalidRequest, LockInUse, LockLost
from inventory.locks.redlock import Redlock
from inventory.locks.watchdog import WATCHDOG
from inventory.redis import keys
from tests.support.servers.server_matrix import SERVER, Node, debian_redis, node
from tests.support.waiting import assert_waits_at_most, seconds_of, wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
# A server that waits for its disk must not look like one that is silent.
TEXT = SERVER.replace("appendfsync always", "appendfsync no")
# After so long a server counts as silent.
SILENT_SECONDS = 2.0
# How many servers, and of which program: None is Valkey.
GROUPS = [
    pytest.param((3, None), id="3 valkey"),
    pytest.param((5, None), id="5 valkey"),
    *([pytest.param((3, debian_redis()), id="3 redis7")] if debian_redis() else []),
]


@dataclass
class Nodes:
    """Servers that know nothing of each other. observers: clients with patience, which only look."""

    servers: list[Node]
    clients: list[redis.Client]
    observers: list[redis.Client]

    def lock(
        self, *, ttl_ms: int = 60_000, max_hold_ms: int | None = None, node_timeout_seconds: float = 10
    ) -> Redlock:
        return Redlock(
            self.clients, "kite", ttl_ms=ttl_ms, max_hold_ms=max_hold_ms, node_timeout_seconds=node_timeout_seconds
        )

    def holders(self) -> list[str | None]:
        """Return the token on each server."""
        return [client.get(keys.lock("kite")) for client in self.observers]

    @contextmanager
    def silent(self, *numbers: int) -> Iterator[None]:
        """Let some servers take calls and say nothing for the length of a block."""
        pids = [self.servers[number].child.pid for number in numbers]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


@pytest.fixture(params=GROUPS)
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nodes]:
    """Start three or five servers of one program."""
    count, program = request.param
    with ExitStack() as running:
        folders = [tmp_path / str(number) for number in range(count)]
        servers = [running.enter_context(node(folder, TEXT, program=program)) for folder in folders]
        urls = [f"redis://127.0.0.1:{server.port}/0" for server in servers]
        clients = [redis.connect_once(url, timeout_seconds=SILENT_SECONDS) for url in urls]
        observers = [redis.connect_once(url, timeout_seconds=30) for url in urls]
        for client in (*clients, *observers):
            running.callback(client.close)
        yield Nodes(servers, clients, observers)


def test_one_holder_and_nothing_left_behind(nodes: Nodes) -> None:
    ann, bob = nodes.lock(), nodes.lock()
    tried_with = bob.token
    assert (ann.acquire(), bob.acquire()) == (True, False)
    assert bob.token != tried_with  # what late answers to that try give back is not what the next one is given
    assert ann.is_locking(remote=True)
    assert set(nodes.holders()) == {ann.token}
    assert ann.extend(50_000)
    assert ann.release()
    assert set(nodes.holders()) == {None}
    with bob:
        bob.check()


def test_a_hold_that_its_cap_ended_and_an_object_in_use(nodes: Nodes) -> None:
    """The cap leaves no key on any server; the control is the same lock before its cap. One object is one holder."""
    control = nodes.lock(max_hold_ms=120_000)
    assert control.acquire()
    assert set(nodes.holders()) == {control.token}
    with pytest.raises(LockInUse):
        control.acquire()
    assert control.release()
    lock = nodes.lock(max_hold_ms=1000)
    wait_until(lock.acquire)
    assert lock.lost.wait(timeout=120)
    wait_until(lambda: set(nodes.holders()) == {None})
    assert not lock.release()


def test_a_minority_may_be_silent_and_a_late_reply_leaves_nothing(nodes: Nodes) -> None:
    minority, lock = range(len(nodes.clients) // 2), nodes.lock()
    with nodes.silent(*minority):
        assert lock.acquire()
        lock.check()
        assert lock.release()
    wait_until(lambda: set(nodes.holders()) == {None})


def test_without_a_majority_nobody_gets_it(nodes: Nodes) -> None:
    lock, most = nodes.lock(node_timeout_seconds=0.2), range(len(nodes.clients) // 2 + 1)
    given: list[bool] = []
    with nodes.silent(*most):
        assert_waits_at_most(3, lambda: seconds_of(lambda: given.append(lock.acquire(timeout_seconds=0.5))))
    assert set(given) == {False}
    wait_until(lambda: set(nodes.holders()) == {None})
    for server in nodes.servers:
        server.child.stop()
    assert not lock.acquire()


def test_a_holder_without_its_majority_is_told(nodes: Nodes) -> None:
    lock = nodes.lock(ttl_ms=6000)
    assert lock.acquire()
    with nodes.silent(*range(len(nodes.clients) // 2 + 1)):
        assert lock.lost.wait(timeout=120)
        with pytest.raises(LockLost):
            lock.check()


def test_a_server_that_lost_it_is_topped_up(nodes: Nodes) -> None:
    lock = nodes.lock()
    assert lock.acquire(timeout_seconds=60)
    nodes.clients[0].delete(keys.lock("kite"))

    def topped_up() -> bool:
        assert lock.hold
        WATCHDOG.renew([lock.hold])  # again, because a server's answer may come too late to count
        return set(nodes.holders()) == {lock.token}

    wait_until(topped_up)
    assert lock.release()


def test_it_gives_no_fence_and_refuses_nonsense(nodes: Nodes) -> None:
    assert nodes.lock().fence == 0
    with pytest.raises(InvalidRequest, match=r"^clients must"):
        Redlock([], "kite", ttl_ms=2000)
