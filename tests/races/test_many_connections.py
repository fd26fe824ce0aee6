"""Threads that send one command leave connections for threads that send many: the pool lends a hundred."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.redis import connections, keys
from tests.races.crowd import at_once
from tests.support.lock_waiters import blocked_clients
from tests.support.road import run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
THREADS = 60
# So long would each wait if nobody let it go.
KEPT_SECONDS = 120


def send_one_each_then_many_each(sku: str, *, timeout_seconds: float) -> None:
    """Let all threads send one command each, then a pipeline each; timeout_seconds: makes the client one of its own."""
    client = redis.connect(timeout_seconds=timeout_seconds)
    wait = ("BLPOP", keys.lock_signals(sku), KEPT_SECONDS)
    all_at_the_same_time(lambda: connections.send(client, wait), sku)
    all_at_the_same_time(lambda: redis.run_commands(client, [wait]), sku)


def all_at_the_same_time(send: Callable[[], object], sku: str) -> None:
    """Let each thread keep its connection until all that got one have it. Raises RedisUnavailable when one got none."""
    before, refused = blocked_clients(), list[RedisUnavailable]()

    def wait_for_a_word(_number: int) -> None:
        try:
            send()
        except RedisUnavailable as error:
            refused.append(error)
            raise

    def let_go() -> None:
        wait_until(lambda: blocked_clients() >= before + THREADS - len(refused), what="all wait")
        run(("RPUSH", keys.lock_signals(sku), *["word"] * THREADS), ("DEL", keys.lock_signals(sku)))

    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(let_go)
        at_once(wait_for_a_word, THREADS)
        going.result()


def test_what_is_ready_leaves_room_for_the_others(new_sku: Callable[[], str]) -> None:
    send_one_each_then_many_each(new_sku(), timeout_seconds=2 * KEPT_SECONDS)


def test_without_a_bound_nobody_else_gets_a_connection(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(connections, "MAX_READY", THREADS)
    with pytest.raises(RedisUnavailable):
        send_one_each_then_many_each(new_sku(), timeout_seconds=3 * KEPT_SECONDS)
