"""What a wait for a lock costs its server: nothing on disk, and no more connections than callers.
On a Valkey of its own, where nobody else writes or connects; each with its control.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inventory import redis
from inventory.redis import keys
from inventory.redis.connections import WaitingPlace
from workers.embedded.server import Server, free_port
from workers.embedded.valkey import start_valkey

NAME = "shoe"
LOCK, FENCE = keys.lock(NAME), keys.fence(NAME)
SIGNALS, WAITERS = keys.lock_signals(NAME), keys.lock_waiters(NAME)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """Run a server that nobody else uses."""
    with start_valkey(tmp_path) as server:
        yield server


def client_of(server: Server) -> redis.Client:
    """Return a new client, with no connection yet."""
    return redis.connect_once(server.url, timeout_seconds=10)


def acquire(client: redis.Client, token: str, *, wait_ms: int, nonce: str = "") -> list[int]:
    """Ask for the lock as a Lock does."""
    args = [token, 60_000, 60_000, wait_ms, nonce, 1000]
    return redis.run_script(client, "acquire", keys=[LOCK, FENCE, SIGNALS, WAITERS], args=args)


def release(client: redis.Client, token: str, *, nonce: str) -> int:
    """Give the lock back as a Lock does."""
    return redis.run_script(client, "release", keys=[LOCK, SIGNALS, WAITERS], args=[token, 1000, nonce, 1])


def written_bytes(client: redis.Client) -> int:
    return client.info("persistence")["aof_current_size"]


def test_a_waiter_costs_no_write(own_server: Server) -> None:
    """Its note is not in the log; the control: the lock and the hand-over are."""
    client = client_of(own_server)
    before = written_bytes(client)
    assert acquire(client, "holder", wait_ms=0)[0] == 1
    with_holder = written_bytes(client)
    assert with_holder > before
    for _ in range(3):
        assert acquire(client, "waiter", wait_ms=30_000)[0] == 0
    assert client.zrange(WAITERS, 0, -1) == ["waiter"]
    assert written_bytes(client) == with_holder
    assert release(client, "holder", nonce="n1") == 2
    assert written_bytes(client) > with_holder


def test_after_a_restart_the_lock_is_held_and_a_waiter_notes_itself_again(tmp_path: Path) -> None:
    """The control does not ask again: the lock is then not handed on to it but free."""
    port = free_port()
    with start_valkey(tmp_path, port=port) as server:
        client = client_of(server)
        assert acquire(client, "holder", wait_ms=0)[0] == 1
        assert acquire(client, "waiter", wait_ms=30_000)[0] == 0
        client.close()
    with start_valkey(tmp_path, port=port):
        assert client.get(LOCK) == "holder"
        assert release(client, "holder", nonce="n1") == 1
        assert acquire(client, "holder", wait_ms=0)[0] == 1
        assert acquire(client, "waiter", wait_ms=30_000)[0] == 0
        assert release(client, "holder", nonce="n2") == 2
        client.close()


def test_whoever_was_woken_asks_on_the_connection_it_waited_on(own_server: Server) -> None:
    """The control: while a caller waits, another's question needs a connection of its own."""
    looker, caller, place = client_of(own_server), client_of(own_server), WaitingPlace()
    assert acquire(looker, "waiter", wait_ms=0)[0] == 1  # from here on the server knows the script
    before = connections(looker)
    for nonce in ("n1", "n2", "n3"):
        looker.rpush(SIGNALS, nonce)
        assert redis.wait_for_signal(caller, SIGNALS, seconds=10, place=place, place_seconds=10) == nonce
        assert acquire(caller, "waiter", wait_ms=0)[0] == 1
    assert connections(looker) == before + 1
    assert redis.wait_for_signal(caller, SIGNALS, seconds=0.01, place=place, place_seconds=30) is None
    assert acquire(caller, "waiter", wait_ms=0)[0] == 1
    assert connections(looker) == before + 2
    place.leave()


def connections(client: redis.Client) -> int:
    """Return how many connections the server has."""
    return int(client.info("clients")["connected_clients"])
