"""With FAIRDROP_REDIS_REPLICAS nobody is told of a place that only the primary has.
A primary, its replica and a Sentinel of this module; the replica is frozen. Control: without the setting.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.test.utils import override_settings

from inventory import redis
from inventory.audit import line
from inventory.exceptions import RedisUnavailable
from inventory.line import admission
from inventory.line.admission import Answer, Ask, Code, SaleLine
from shop.orders import requests
from shop.sales.catalogue import SaleCard
from tests.support.crashes.worker_shop import freeze, wake
from tests.support.road import admit, ask
from tests.support.servers.server_matrix import Watched, watched_pair
from tests.support.servers.shop_processes import web_process
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched_pair(tmp_path_factory.mktemp("replicas")) as pair:
        pair.wait_until_replica_has_all()
        yield pair


@pytest.fixture(params=["sentinel", "one server"])
def url(servers: Watched, request: pytest.FixtureRequest) -> str:
    """Return the pair's address, by its Sentinel or by the primary itself."""
    return servers.url if request.param == "sentinel" else f"redis://127.0.0.1:{servers.primary.port}/0"


@pytest.fixture
def card(url: str, shop_database: None, new_sku: Callable[[], str]) -> Iterator[SaleCard]:
    # The server waits for a replica half as long as we wait for the server: a stall must fit into the other half.
    with override_settings(REDIS_URL=url, REDIS_REPLICAS=1, REDIS_TIMEOUT_SECONDS=10):
        yield make_sale(new_sku(), units=20)


@contextmanager
def frozen_replica(servers: Watched) -> Iterator[None]:
    """Freeze the replica for the length of a block; it is waited for in vain there, so not for long."""
    freeze(servers.replica.child)
    try:
        with override_settings(REDIS_TIMEOUT_SECONDS=2):
            yield
    finally:
        wake(servers.replica.child)


def admit_by_the_gate(card: SaleCard, *asks: Ask) -> list[Answer]:
    """Admit through the door of the event loop."""

    async def call() -> list[Answer]:
        client = redis.connect_async()
        try:
            return await admission.admit_async(client, SaleLine(card.sale_id, card.sku), asks)
        finally:
            await redis.close_async(client)

    return asyncio.run(call())


@pytest.mark.parametrize("door", [admit, admit_by_the_gate])
def test_a_place_is_told_when_the_replica_has_it(
    card: SaleCard, servers: Watched, door: Callable[..., list[Answer]]
) -> None:
    first, second = ask(card, "ann"), ask(card, "bob")
    # To a busy machine the replica may answer too late at first: then it is asked again, and is known.
    told = wait_until(lambda: answers(door, card, first), what="the replica has the first")
    assert [answer.code for answer in told] in ([Code.ADMITTED], [Code.KNOWN_BEFORE + ord("q")])
    with frozen_replica(servers):
        for _ in range(2):  # the second time it is known, and nothing is written
            wait_until(lambda: is_told_to_ask_again(door, card, second), what="the primary has answered")
        with pytest.raises(RedisUnavailable):  # nor is an older place told while it may be lost
            door(card, first)
    told = wait_until(lambda: answers(door, card, second), what="the replica is there again")
    assert [answer.code for answer in told] == [Code.KNOWN_BEFORE + ord("q")]


def is_told_to_ask_again(door: Callable[..., object], *wish: Any, **more: Any) -> bool:
    """Say whether a door refused because of the replica, not because the primary was late; fail when it let in."""
    with pytest.raises(RedisUnavailable) as refused:
        door(*wish, **more)
    return "ask again" in str(refused.value)


def answers(door: Callable[..., list[Answer]], card: SaleCard, wish: Ask) -> list[Answer]:
    """Return the answer, nothing while there is none."""
    try:
        return door(card, wish)
    except RedisUnavailable:
        return []


@pytest.mark.parametrize("door", [admit, admit_by_the_gate])
def test_without_the_setting_a_place_is_told_that_only_the_primary_has(
    card: SaleCard, servers: Watched, door: Callable[..., list[Answer]]
) -> None:
    """The control."""
    with frozen_replica(servers), override_settings(REDIS_REPLICAS=0, REDIS_TIMEOUT_SECONDS=10):
        assert [answer.code for answer in door(card, ask(card, "ann"))] == [Code.ADMITTED]


def test_the_page_says_the_same(card: SaleCard, servers: Watched) -> None:
    wish = {"buyer": "ann", "quantity": 1, "idempotency_key": "a"}
    with frozen_replica(servers):
        wait_until(lambda: is_told_to_ask_again(requests.ask, card, **wish), what="the primary has answered")
    assert line.look(redis.connect(), card.sku).waiting == 1


def test_the_api_answers_503_and_then_200(
    card: SaleCard, url: str, servers: Watched, process_environment: dict[str, str], tmp_path: Path
) -> None:
    environment = {**process_environment, "REDIS_URL": url, "CACHE_URL": os.environ["REDIS_URL"]}
    with web_process({**environment, "FAIRDROP_REDIS_REPLICAS": "1"}, folder=tmp_path) as web:
        wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").status == 200)
        buyer, other = web.new_buyer(), web.new_buyer()
        wait_until(lambda: web.ask(card.slug, other).status in (200, 202), what="the replica has the first")
        with frozen_replica(servers):
            refused = [web.ask(card.slug, buyer) for _ in range(2)]
        assert {(each.status, each.json()["code"]) for each in refused} == {(503, "unavailable")}
        again = wait_until(lambda: next((a for a in [web.ask(card.slug, buyer)] if a.status != 503), None))
        assert (again.status, again.json()["state"]) == (200, "queued")
