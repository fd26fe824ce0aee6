"""The line runs on every kind of Redis: admit, status, lock, take, settle, hints, through both doors.
Real Redis and PostgreSQL.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.line import admission, reading
from inventory.line.pubsub import WakeUps, wait_for_settled
from inventory.line.reading import LineFigures
from inventory.locks.lock import Lock
from inventory.redis import keys, memory
from shop.sales.catalogue import SaleCard
from tests.support.road import LOCK_TTL_MS, ask, queue, run, settle_line, settler
from tests.support.servers.server_matrix import nodes_of
from tests.support.shopkeeping import assert_books_balance, close_sale, make_sale
from tests.support.waiting import wait_until

BUYERS = tuple(f"buyer-{number}" for number in range(30))


@pytest.fixture
def on_it(each_server: str, shop_database: None) -> None:
    """Work on one kind of Redis after another."""


def test_the_whole_road(on_it: None, new_sku: Callable[[], str]) -> None:
    cards = [make_sale(new_sku(), units=20) for _ in range(4)]  # several SKUs: several slots of a Cluster
    for card in cards:
        ids = queue(card, *BUYERS)
        places = reading.places(redis.connect(), card.sku, ids)
        assert [place and place.position for place in places] == list(range(1, len(BUYERS) + 1))
    assert set(reading.look_for_work(redis.connect())) >= {card.sku for card in cards}
    for card in cards:
        close_sale(card)
        settle_line(card, batch=7)
        counts = assert_books_balance(card)
        assert (counts["orders_held"], counts["orders_sold_out"]) == (20, 10)


def test_a_settler_goes_round_all_of_it(on_it: None, new_sku: Callable[[], str]) -> None:
    cards = [make_sale(new_sku(), units=20) for _ in range(3)]
    for card in cards:
        queue(card, *BUYERS)
        close_sale(card)
    with settler(batch=7) as worker:
        wait_until(lambda: worker.work_once() == 0)
    for card in cards:
        assert assert_books_balance(card)["decided"] == len(BUYERS)


def test_the_async_door_and_both_hints(on_it: None, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=20)
    wakeups = WakeUps(redis.connect())
    assert wakeups.wait(seconds=0.1)  # the first call subscribes

    async def buy() -> list[admission.Answer]:
        client = redis.connect_async()
        subscription = client.pubsub()
        try:
            await wait_for_settled(subscription, seconds=0.2)
            wishes = [ask(card, buyer) for buyer in BUYERS]
            answers = await admission.admit_async(client, admission.SaleLine(card.sale_id, card.sku), wishes)
            assert None not in await reading.places_async(client, card.sku, [wish.request_id for wish in wishes])
            assert (await reading.figures_async(client, [(card.sku, card.sale_id)]))[0]
            await asyncio.to_thread(
                redis.run_commands, redis.connect(), [("PUBLISH", keys.settled_channel(), card.sku)]
            )
            looks = 0
            while not await wait_for_settled(subscription, seconds=1):
                assert (looks := looks + 1) < 60, "the hint never came"
            return answers
        finally:
            await subscription.aclose()
            await redis.close_async(client)

    assert {answer.code for answer in asyncio.run(buy())} == {admission.Code.ADMITTED}
    wait_until(lambda: wakeups.wait(seconds=1), what="a hint comes")
    settle_line(card)


def test_a_lock_is_waited_for(on_it: None, new_sku: Callable[[], str]) -> None:
    sku = new_sku()
    first, second = (Lock(redis.connect(), sku, ttl_ms=LOCK_TTL_MS) for _ in range(2))
    assert first.acquire()
    assert not second.acquire(timeout_seconds=1.2)  # longer than any socket may be silent
    first.release()
    assert second.acquire(timeout_seconds=60)
    assert second.fence > first.fence
    second.release()


def test_each_server_says_how_full_it_is(on_it: None, new_sku: Callable[[], str]) -> None:
    """Of a Cluster each primary by its name, so that one full server stops its own SKUs only."""
    client, skus = redis.connect(), [new_sku() for _ in range(12)]
    for node in nodes_of(client):
        node.config_set("maxmemory", 2**40)
    try:
        found = redis.memory_of(client)
    finally:
        for node in nodes_of(client):
            node.config_set("maxmemory", 0)
    assert all(0 < used_bytes < 2**40 == max_bytes for used_bytes, max_bytes in found.values())
    assert {redis.node_of(client, keys.stock(sku)) for sku in skus} <= found.keys()
    watch = memory.MemoryWatch()
    full = redis.node_of(client, keys.stock(skus[0]))
    watch.note({name: memory.Memory(9 if name == full else 1, 10) for name in found})
    refused = {sku for sku in skus if watch.full_servers(client, sku)}
    assert refused == {sku for sku in skus if redis.node_of(client, keys.stock(sku)) == full}


def test_both_doors_tell_the_clock(on_it: None) -> None:
    async def ask() -> float:
        client = redis.connect_async()
        try:
            return await redis.time_of_async(client)
        finally:
            await redis.close_async(client)

    for moment in (redis.time_of(redis.connect()), asyncio.run(ask())):
        assert moment == pytest.approx(time.time(), abs=60)


def test_a_damaged_sale_hides_no_figures_of_another(on_it: None, new_sku: Callable[[], str]) -> None:
    """Its own are told by the other door as what cannot be read now, and by neither as a fault of ours."""
    damaged, *others = cards = [make_sale(new_sku(), units=20) for _ in range(4)]
    (text,) = run(("HGET", keys.sales(damaged.sku), damaged.sale_id))
    run(("HSET", keys.sales(damaged.sku), damaged.sale_id, "open|1"))
    assert_only_first_unread(cards)
    with pytest.raises(RedisUnavailable):
        reading.figures(redis.connect(), damaged.sku, sale_id=damaged.sale_id)
    assert all(reading.figures(redis.connect(), card.sku, sale_id=card.sale_id) for card in others)
    run(("HSET", keys.sales(damaged.sku), damaged.sale_id, text))


def assert_only_first_unread(cards: list[SaleCard]) -> None:
    async def look() -> list[LineFigures | RedisUnavailable | None]:
        client = redis.connect_async()
        try:
            return await reading.figures_async(client, [(card.sku, card.sale_id) for card in cards])
        finally:
            await redis.close_async(client)

    first, *others = asyncio.run(look())
    assert isinstance(first, RedisUnavailable)
    assert all(isinstance(each, LineFigures) for each in others)


def test_a_line_of_the_wrong_type_hides_no_figures_of_another(on_it: None, new_sku: Callable[[], str]) -> None:
    cards = [make_sale(new_sku(), units=20) for _ in range(4)]
    run(("SET", keys.line(cards[0].sku), "no sorted set"))
    assert_only_first_unread(cards)
    run(("DEL", keys.line(cards[0].sku)))
