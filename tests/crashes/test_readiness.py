"""Proves that /readyz tells within three seconds which store is silent, also in a flood, and forgets it afterwards.
Freezes a Valkey and a PostgreSQL of its own under a web process of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from threading import Event, Thread

import pytest

from inventory import redis
from shop.sales.catalogue import SaleCard
from tests.support.crashes.extra_shop import OwnStore, own_postgres, own_valkey
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import web_process
from tests.support.shopkeeping import make_sale, shop_of
from tests.support.waiting import assert_waits_at_most, wait_until
from workers.embedded.server import free_port

ANSWER_SECONDS = 3.0
CROWD = 24


@dataclass(frozen=True)
class Shop:
    """A web process with stores of its own, and a sale that is open."""

    web: Caller
    stores: dict[str, OwnStore]
    card: SaleCard

    def seconds_to_say(self, stores: dict[str, bool]) -> float:
        """Ask for readiness; fail unless the answer is 503 and names what is silent; return how long it took.

        A busy machine may keep the other store from answering in time: such an answer counts as none.
        """
        answer = self.web.get("/readyz")
        told = answer.json()["stores"]
        assert answer.status == 503
        assert not any(told[name] for name, answers in stores.items() if not answers)
        return answer.seconds if told == stores else math.inf


@pytest.fixture
def shop(process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path) -> Iterator[Shop]:
    """Open the shop; every kind of call has been made once, so its connections are open."""
    with ExitStack() as running:
        valkey = running.enter_context(own_valkey(tmp_path))
        environment = {**process_environment, "REDIS_URL": valkey.url, "CACHE_URL": valkey.url}
        postgres = running.enter_context(own_postgres(environment=environment))
        environment |= {"DATABASE_URL": postgres.url}
        running.enter_context(shop_of(environment))
        card = make_sale(new_sku(), units=10_000, line_capacity=100_000)
        web = running.enter_context(web_process(environment, folder=tmp_path))
        wait_until(lambda: web.ask(card.slug, web.new_buyer()).status == 202, what="the sale is open")
        wait_until(lambda: web.get("/readyz").status == 200, what="the shop is ready")
        yield Shop(web, {"redis": valkey, "database": postgres}, card)


@contextmanager
def flood(shop: Shop) -> Iterator[None]:
    """Let a crowd ask for units, for readiness and for pages that need the database, for the length of a block."""
    stop = Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                shop.web.ask(shop.card.slug, shop.web.new_buyer())
                shop.web.get("/readyz")
                shop.web.get("/past/", timeout_seconds=0.5)
            except (OSError, HTTPException):
                continue

    crowd = [Thread(target=ask) for _ in range(CROWD)]
    for each in crowd:
        each.start()
    try:
        yield
    finally:
        stop.set()
        for each in crowd:
            each.join(timeout=60)


@pytest.mark.parametrize("silent", ["redis", "database"])
def test_a_silent_store_is_named_in_time(silent: str, shop: Shop) -> None:
    want = {name: name != silent for name in shop.stores}
    with shop.stores[silent].frozen():
        for _ in range(3):
            assert_waits_at_most(ANSWER_SECONDS, lambda: shop.seconds_to_say(want))
        assert shop.web.get("/healthz").status == 200
    wait_until(lambda: shop.web.get("/readyz").status == 200, what="the shop is ready again")


@pytest.mark.parametrize("silent", ["redis", "database"])
def test_a_silent_store_is_named_in_time_in_a_flood(silent: str, shop: Shop) -> None:
    want = {name: name != silent for name in shop.stores}
    with flood(shop):
        with shop.stores[silent].frozen():
            # A question that was answered just before may make one answer more say that all is well.
            assert [shop.web.get("/readyz").status for _ in range(3)][1:] == [503, 503]
            for _ in range(3):
                assert_waits_at_most(ANSWER_SECONDS, lambda: shop.seconds_to_say(want))
        wait_until(lambda: shop.web.get("/readyz").status == 200, what="the shop is ready again")


def test_what_is_frozen_does_not_answer(shop: Shop) -> None:
    """The control: a call that reads the database itself waits for longer than readiness may take."""
    path = "/sales/nobody-heard-of-it/"
    assert shop.web.get(path).status == 404
    with shop.stores["database"].frozen(), pytest.raises(TimeoutError):
        shop.web.get(path, timeout_seconds=ANSWER_SECONDS)


def test_a_primary_that_became_a_replica_is_not_ready(shop: Shop) -> None:
    """It answers, but takes no writes. It is ready again when it is the primary again."""
    client = redis.connect_once(shop.stores["redis"].url, timeout_seconds=ANSWER_SECONDS)
    client.execute_command("REPLICAOF", "127.0.0.1", free_port())
    silent = {"redis": False, "database": True}
    wait_until(lambda: not math.isinf(shop.seconds_to_say(silent)), what="it is named, and the other one is not")
    client.execute_command("REPLICAOF", "NO", "ONE")
    wait_until(lambda: shop.web.get("/readyz").status == 200, what="the shop is ready again")
