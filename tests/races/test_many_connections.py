"""Threads that send one command leave connections for threads that send many: the pool lends a hundred."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.redis import connections, keys
from tests.races.crowd import at_once

pytestmark = pytest.mark.usefixtures("shop_database")
THREADS = 60
# So long does each keep its connection, that all have one at the same time.
KEPT_SECONDS = 15


def send_one_each_then_many_each(sku: str, *, timeout_seconds: float) -> None:
    """Let all threads send one command each, then a pipeline each; timeout_seconds: makes the client one of its own."""
    client = redis.connect(timeout_seconds=timeout_seconds)
    wait = ("BLPOP", keys.lock_signals(sku), KEPT_SECONDS)
    at_once(lambda _number: connections.send(client, wait), THREADS)
    at_once(lambda _number: redis.run_commands(client, [wait]), THREADS)


def test_what_is_ready_leaves_room_for_the_others(new_sku: Callable[[], str]) -> None:
    send_one_each_then_many_each(new_sku(), timeout_seconds=31)


def test_without_a_bound_nobody_else_gets_a_connection(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(connections, "MAX_READY", THREADS)
    with pytest.raises(RedisUnavailable):
        send_one_each_then_many_each(new_sku(), timeout_seconds=32)
