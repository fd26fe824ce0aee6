"""The line runs on every kind of Redis: admit, status, lock, take, settle, hints, through both doors.
Each test runs on a Cluster of three, on a pair under Sentinel, and on Debian's Redis where it is installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.test.utils import override_settings

from inventory import admission, keys, line, redis
from inventory.exceptions import RedisUnavailable
from inventory.locks import Lock
from inventory.wakeups import WakeUps, wait_for_settled
from shop.models import Order
from tests.road import LOCK_TTL_MS, ask, queue, settle_line, settler
from tests.server_matrix import cluster, debian_redis, single, watched_pair
from tests.shopkeeping import assert_books_balance, make_sale
from tests.waiting import wait_until
from workers.settler import Settler

KINDS = ["cluster", "sentinel", *(["debian"] if debian_redis() else [])]
BUYERS = tuple(f"buyer-{number}" for number in range(30))


@pytest.fixture(scope="module", params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run one kind of Redis for the length of the module; give its address."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "cluster":
        with cluster(folder) as address:
            yield address
    elif request.param == "sentinel":
        with watched_pair(folder) as pair:
            yield pair.url
    else:
        program = debian_redis()
        assert program
        with single(folder, program=program) as address:
            yield address


@pytest.fixture
def on_it(url: str, shop_database: None) -> Iterator[None]:
    """Work on that Redis."""
    with override_settings(REDIS_URL=url):
        yield


def test_the_whole_road(on_it: None, new_sku: Callable[[], str]) -> None:
    cards = [make_sale(new_sku(), units=20) for _ in range(4)]  # several SKUs: several slots of a Cluster
    for card in cards:
        ids = queue(card, *BUYERS)
        places = line.places(redis.connect(), card.sku, ids)
        assert [place and place.position for place in places] == list(range(1, len(BUYERS) + 1))
    assert set(line.skus_with_work(redis.connect())) >= {card.sku for card in cards}
    for card in cards:
        settle_line(card, batch=7)
        counts = assert_books_balance(card)
        assert (counts["orders_held"], counts["orders_sold_out"]) == (20, 10)


def test_a_settler_goes_round_all_of_it(on_it: None, new_sku: Callable[[], str]) -> None:
    cards = [make_sale(new_sku(), units=20) for _ in range(3)]
    for card in cards:
        queue(card, *BUYERS)
    with settler(batch=7) as worker:
        wait_until(lambda: worker.work_once() == 0, timeout_seconds=20)
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
            assert None not in await line.places_async(client, card.sku, [wish.request_id for wish in wishes])
            assert (await line.figures_async(client, [(card.sku, card.sale_id)]))[0]
            await asyncio.to_thread(
                redis.run_commands, redis.connect(), [("PUBLISH", keys.settled_channel(), card.sku)]
            )
            heard = [await wait_for_settled(subscription, seconds=1) for _ in range(2)]
            assert any(heard)
            return answers
        finally:
            await subscription.aclose()
            await redis.close_async(client)

    assert {answer.code for answer in asyncio.run(buy())} == {admission.Code.ADMITTED}
    assert wakeups.wait(seconds=1)
    settle_line(card)


def test_a_lock_is_waited_for(on_it: None, new_sku: Callable[[], str]) -> None:
    sku = new_sku()
    first, second = (Lock(redis.connect(), sku, ttl_ms=LOCK_TTL_MS) for _ in range(2))
    assert first.acquire()
    assert not second.acquire(timeout_seconds=1.2)  # longer than any socket may be silent
    first.release()
    assert second.acquire(timeout_seconds=2)
    assert second.fence > first.fence
    second.release()


def test_a_failover_in_the_middle_of_a_drain_costs_no_unit(
    shop_database: None, new_sku: Callable[[], str], tmp_path: Path
) -> None:
    with watched_pair(tmp_path) as pair, override_settings(REDIS_URL=pair.url):
        card = make_sale(new_sku(), units=20)
        queue(card, *BUYERS)
        redis.run_commands(redis.connect(), [("WAIT", 1, 2000)])
        rounds = iter(range(2))
        with settler(batch=5, stopping=lambda: next(rounds, None) is None) as worker:
            assert worker.work_once() > 0
        assert 0 < Order.objects.filter(sale_id=card.sale_id).count() < len(BUYERS)
        pair.kill_primary()
        with settler(batch=5, lock_ttl_ms=500) as worker:
            wait_until(lambda: worked(worker, card.sku), timeout_seconds=20, what="everything is decided")
        counts = assert_books_balance(card)
        assert (counts["orders_held"], counts["orders_sold_out"]) == (20, 10)


def worked(worker: Settler, sku: str) -> bool:
    """Let a settler work; say whether its Redis answers and the line is empty."""
    try:
        worker.work_once()
        seen = line.check(redis.connect(), sku)
    except RedisUnavailable:
        return False
    return seen.waiting == seen.flying == 0
