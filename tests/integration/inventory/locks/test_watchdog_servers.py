"""A server that is silent delays no renewal of locks on other servers, and the threads that renew come and go.
Real Redis, once behind a proxy that swallows everything.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from django.conf import settings

from inventory import redis
from inventory.locks import watchdog
from inventory.locks.base import AnyLock
from inventory.locks.lock import Lock, release_all
from tests.support.servers.proxy import Proxy, proxy_to
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
# A silent server is waited for longer than the control's locks live; longer lives are for a machine that stands still.
SOCKET_SECONDS, TTLS_MS = 20.0, (2400, 12_000, 40_000)


@pytest.fixture
def two_servers() -> Iterator[tuple[redis.Client, redis.Client, Proxy]]:
    """Return a client of a good server, one of a server that the proxy can silence, and the proxy."""
    release_all()
    address = urlsplit(settings.REDIS_URL)
    assert address.port
    with proxy_to(address.port) as proxy:
        through = address._replace(netloc=f":{address.password}@127.0.0.1:{proxy.port}").geturl()
        good = redis.connect_once(settings.REDIS_URL, timeout_seconds=SOCKET_SECONDS)
        silent = redis.connect_once(through, timeout_seconds=SOCKET_SECONDS)
        yield good, silent, proxy
        proxy.black_hole = False
        release_all()
        good.close()
        silent.close()


@pytest.mark.parametrize("apart", [True, False])
def test_a_silent_server_delays_no_others_renewals(
    two_servers: tuple[redis.Client, redis.Client, Proxy],
    new_sku: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    apart: bool,
) -> None:
    """The control renews all servers with one thread: while it waits for the silent one, the other's lock is lost."""
    if not apart:
        monkeypatch.setattr(AnyLock, "renewed_with", redis)
    lives_ms = TTLS_MS if apart else TTLS_MS[:1]
    assert any(outlives_the_other(two_servers, new_sku, ttl_ms=ttl_ms) for ttl_ms in lives_ms) is apart


def outlives_the_other(
    two_servers: tuple[redis.Client, redis.Client, Proxy], new_sku: Callable[[], str], *, ttl_ms: int
) -> bool:
    """Silence one of two servers; say whether the lock at the other one is kept when that of the first is lost."""
    good, silent, proxy = two_servers
    kept, doomed = Lock(good, new_sku(), ttl_ms=ttl_ms), Lock(silent, new_sku(), ttl_ms=ttl_ms)
    # The silent server's turn comes first.
    wait_until(lambda: all(lock.is_valid() or lock.acquire() for lock in (doomed, kept)) and doomed.is_valid())
    proxy.black_hole = True
    assert doomed.lost.wait(timeout=120)
    over_at = time.monotonic() + ttl_ms / 1000
    wait_until(lambda: time.monotonic() > over_at)
    told, outlives = kept.lost.is_set(), kept.is_valid()
    # It is over by the clock, and told when the watchdog looks.
    assert not told if outlives else kept.lost.wait(timeout=120)
    proxy.black_hole = False
    kept.release()
    return outlives


def renewers() -> list[threading.Thread]:
    """Return the threads that renew locks."""
    return [thread for thread in threading.enumerate() if thread.name == "lock-watchdog"]


def test_a_thread_with_nothing_to_renew_ends_and_the_next_lock_starts_another(
    two_servers: tuple[redis.Client, redis.Client, Proxy], new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a forked child, which begins with none."""
    monkeypatch.setattr(watchdog, "IDLE_SECONDS", 0.2)
    good, silent, _ = two_servers
    before = set(renewers())
    locks = [Lock(client, new_sku(), ttl_ms=60_000) for client in (good, silent)]
    for _ in range(2):
        assert all(lock.acquire() for lock in locks)
        assert len(set(renewers()) - before) == 2
        assert all(lock.release() for lock in locks)
        wait_until(lambda: not set(renewers()) - before, what="idle threads end")
    child = os.fork()
    if child == 0:
        os._exit(0 if locks[0].acquire() and len(renewers()) == 1 and locks[0].release() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
