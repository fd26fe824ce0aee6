"""A settler wakes up when an empty line gets its first request, and never sleeps longer than a second.
Every test has a SKU of its own, and runs on every kind of Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from django.test.utils import override_settings

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.line.pubsub import WakeUps, wait_for_settled
from inventory.redis import keys
from tests.support.road import queue
from tests.support.servers.server_matrix import ON_ONE_KIND, nodes_of
from tests.support.shopkeeping import make_sale
from tests.support.waiting import PATIENCE_SECONDS, assert_waits_at_most, seconds_of, wait_until
from workers.embedded.server import free_port

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")


@pytest.fixture
def wakeups(each_server: str) -> WakeUps:
    """Return a listener that has subscribed already."""
    made = WakeUps(redis.connect())
    assert made.wait(seconds=1)  # a hint may have been sent before: the first wait says "look once more"
    while made.wait(seconds=0.05):
        pass
    return made


def seconds_unhinted(wakeups: WakeUps, *, seconds: float, at_least: float) -> float:
    """Wait for a hint that nobody gives, and return how long."""
    hinted: list[bool] = []
    took = seconds_of(lambda: hinted.append(wakeups.wait(seconds=seconds)))
    assert (hinted, took >= at_least) == ([False], True)
    return took


def test_without_a_hint_the_wait_ends_by_itself(wakeups: WakeUps) -> None:
    assert_waits_at_most(1, lambda: seconds_unhinted(wakeups, seconds=0.2, at_least=0.2))


@ON_ONE_KIND  # it is our own clock that ends the wait
def test_no_wait_is_longer_than_a_second(wakeups: WakeUps) -> None:
    assert_waits_at_most(3, lambda: seconds_unhinted(wakeups, seconds=60, at_least=1))


def test_the_first_request_of_an_empty_line_wakes_up(wakeups: WakeUps, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=5)
    queue(card, "ann")
    wait_until(lambda: wakeups.wait(seconds=1), what="a hint comes")


def test_who_queues_behind_others_wakes_nobody(wakeups: WakeUps, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=5)
    queue(card, "ann")
    wait_until(lambda: wakeups.wait(seconds=1), what="a hint comes")
    queue(card, "bob")
    assert not wakeups.wait(seconds=0.1)


HINTS = 200


def give_hints(channel: str) -> None:
    """Give many hints at once, as a flood does; each was handed to the listeners' connections when this returns."""
    redis.run_commands(redis.connect(), [("PUBLISH", channel, "a-sku")] * HINTS)


def test_hints_that_have_come_are_answered_by_few_looks(wakeups: WakeUps) -> None:
    """One look a hint would go on for long after a flood."""
    give_hints(keys.wake_channel())
    wait_until(lambda: wakeups.wait(seconds=1), what="the first hint comes")
    looks = 1
    while wakeups.wait(seconds=0.3):
        looks += 1
    assert 1 <= looks < HINTS / 4


def test_settled_hints_that_have_come_are_answered_by_few_looks(each_server: str) -> None:
    async def listen() -> int:
        client = redis.connect_async()
        subscription, looks, tries = client.pubsub(), 0, 0
        try:
            await wait_for_settled(subscription, seconds=0.3)
            await asyncio.to_thread(give_hints, keys.settled_channel())
            while not await wait_for_settled(subscription, seconds=1):
                assert (tries := tries + 1) < PATIENCE_SECONDS, "no hint came"
            looks = 1
            while await wait_for_settled(subscription, seconds=0.3):
                looks += 1
            return looks
        finally:
            await subscription.aclose()
            await redis.close_async(client)

    assert 1 <= asyncio.run(listen()) < HINTS / 4


def test_a_cut_subscription_comes_back(wakeups: WakeUps, new_sku: Callable[[], str]) -> None:
    killed = [each.execute_command("CLIENT", "KILL", "TYPE", "pubsub") for each in nodes_of(redis.connect())]
    assert sum(killed) >= 1

    def woken() -> bool:
        queue(make_sale(new_sku(), units=1), "ann")
        try:
            return wakeups.wait(seconds=0.1)
        except RedisUnavailable:
            return False

    wait_until(woken)


@ON_ONE_KIND  # there is no server
def test_a_missing_redis_is_told_by_name(shop_database: None) -> None:
    with override_settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"):
        nowhere = WakeUps(redis.connect())
    for _ in range(2):  # the second time from the same state
        with pytest.raises(RedisUnavailable):
            nowhere.wait(seconds=1)
