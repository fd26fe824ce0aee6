"""Proves that a shop without Redis says so within a second, and that nothing acknowledged is lost when it is back.
Kills and freezes a Valkey of its own under a web process of its own; the web process is never restarted.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shop.sales.catalogue import SaleCard
from tests.support.crashes.extra_shop import OwnStore, own_valkey
from tests.support.http_calls import Answer, Buyer, Caller
from tests.support.servers.shop_processes import settler_process, web_process
from tests.support.shopkeeping import assert_books_balance, make_sale, shop_of
from tests.support.waiting import assert_waits_at_most, wait_until

MAX_SECONDS = 1.0
# Sixty threads of this process read their answers one after the other; one wait after the other would be 48 seconds.
CROWD_SECONDS = 16.0


@dataclass(frozen=True)
class Shop:
    """A web process, its own Valkey, and a sale that is open."""

    web: Caller
    valkey: OwnStore
    card: SaleCard
    environment: dict[str, str]


@pytest.fixture
def shop(process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path) -> Iterator[Shop]:
    """Open a shop on the test database and a Valkey of its own."""
    with ExitStack() as open_things:
        valkey = open_things.enter_context(own_valkey(tmp_path))
        environment = {**process_environment, "REDIS_URL": valkey.url, "CACHE_URL": valkey.url}
        environment["FAIRDROP_REDIS_TIMEOUT_SECONDS"] = "0.8"  # as in production: the deadline is what is tested
        open_things.enter_context(shop_of(environment))
        card = make_sale(new_sku(), units=1000)
        web = open_things.enter_context(web_process(environment, folder=tmp_path))
        first = web.new_buyer()
        wait_until(lambda: web.ask(card.slug, first).status in (200, 202), what="the sale is open")
        yield Shop(web, valkey, card, environment)


def assert_away(answer: Answer) -> None:
    """Fail unless `answer` says that the shop is away, and when to come back."""
    assert (answer.status, answer.json()["code"]) == (503, "unavailable"), answer
    assert int(answer.headers["retry-after"]) >= 1


def assert_told_soon(call: Callable[[], Answer], check: Callable[[Answer], bool | None]) -> None:
    """Fail unless `check` holds for every answer, and the shop itself takes less than a second for it.

    check: may return False for an answer that a busy machine has spoiled, and that counts as none.
    """

    def seconds() -> float:
        answer = call()
        return math.inf if check(answer) is False else answer.seconds

    assert_waits_at_most(MAX_SECONDS, seconds)


def assert_alive(answer: Answer) -> None:
    assert answer.status == 200


def assert_not_ready(answer: Answer) -> bool:
    """Say whether the database was found in time, too."""
    stores = answer.json()["stores"]
    assert (answer.status, stores["redis"]) == (503, False)
    return bool(stores["database"])


def heard(call: Callable[[], Answer]) -> Answer:
    """Call until the shop has reached its Redis: within 0.8 s a busy machine may not."""
    return wait_until(lambda: (answer := call()).status != 503 and answer)


def assert_every_call_says_away(shop: Shop, *, buyer: Buyer, request_id: str) -> None:
    """Ask one thing after the other, again and again: nobody may wait long, or be told anything else."""
    web = shop.web
    for _ in range(3):
        assert_told_soon(lambda: web.ask(shop.card.slug, buyer), assert_away)
        assert_told_soon(lambda: web.ask(shop.card.slug, web.new_buyer()), assert_away)
        assert_told_soon(lambda: web.status(request_id, buyer), assert_away)
        assert_told_soon(lambda: web.get("/healthz"), assert_alive)
        assert_told_soon(lambda: web.get("/readyz"), assert_not_ready)


def assert_back(shop: Shop, *, buyer: Buyer, before: dict[str, object]) -> None:
    """Fail unless the same web process soon gives the same place again, and new ones behind it."""
    web = shop.web
    again = wait_until(lambda: (answer := web.ask(shop.card.slug, buyer)).status == 200 and answer).json()
    assert (again["request_id"], again["seq"]) == (before["request_id"], before["seq"])
    buyers = (web.new_buyer() for _ in itertools.count())
    # A Redis that was started again admits nobody new until the sale is primed above the ordinals it may have lost.
    later = wait_until(lambda: (answer := web.ask(shop.card.slug, next(buyers))).status == 202 and answer)
    assert later.json()["seq"] > again["seq"]
    wait_until(lambda: web.get("/readyz").status == 200, what="the shop is ready again")


def test_a_killed_redis_is_told_at_once_and_forgotten_when_it_is_back(shop: Shop) -> None:
    buyer = shop.web.new_buyer()
    before = heard(lambda: shop.web.ask(shop.card.slug, buyer)).json()
    shop.valkey.kill()
    assert_every_call_says_away(shop, buyer=buyer, request_id=before["request_id"])
    shop.valkey.start_again()
    assert_back(shop, buyer=buyer, before=before)


def test_a_silent_redis_is_told_within_the_deadline_and_forgotten_when_it_speaks(shop: Shop) -> None:
    buyer = shop.web.new_buyer()
    before = heard(lambda: shop.web.ask(shop.card.slug, buyer)).json()
    with shop.valkey.frozen():
        assert_every_call_says_away(shop, buyer=buyer, request_id=before["request_id"])
    assert_back(shop, buyer=buyer, before=before)


def test_a_crowd_in_front_of_a_silent_redis_waits_no_longer_than_one_buyer(shop: Shop) -> None:
    buyers = [shop.web.new_buyer() for _ in range(60)]

    def slowest() -> float:
        answers: list[Answer] = []
        run_together([lambda each=each: answers.append(shop.web.ask(shop.card.slug, each)) for each in buyers])
        assert len(answers) == len(buyers)
        for answer in answers:
            assert_away(answer)
        return max(answer.seconds for answer in answers)

    with shop.valkey.frozen():
        assert_waits_at_most(CROWD_SECONDS, slowest)


@dataclass
class Shopper:
    """One buyer after the other asks until told to stop; what the shop acknowledged is kept."""

    shop: Shop
    acknowledged: list[tuple[Buyer, dict[str, object]]] = field(default_factory=list)
    refused: int = 0

    def ask_until(self, stop: threading.Event) -> None:
        """Ask and ask again."""
        while not stop.is_set():
            buyer = self.shop.web.new_buyer()
            answer = self.shop.web.ask(self.shop.card.slug, buyer)
            if answer.status == 202:
                self.acknowledged.append((buyer, answer.json()))
            else:
                assert_away(answer)
                self.refused += 1


def test_whoever_was_acknowledged_before_the_kill_is_still_in_line_after_it(shop: Shop) -> None:
    shoppers, stop = [Shopper(shop) for _ in range(4)], threading.Event()
    crowd = start_together([lambda each=each: each.ask_until(stop) for each in shoppers])
    wait_until(lambda: sum(len(each.acknowledged) for each in shoppers) >= 100)
    shop.valkey.kill()
    wait_until(lambda: all(each.refused for each in shoppers))
    shop.valkey.start_again()
    behind = sum(len(each.acknowledged) for each in shoppers) + 50
    wait_until(lambda: sum(len(each.acknowledged) for each in shoppers) >= behind)
    stop.set()
    finish(crowd)
    acknowledged = [pair for each in shoppers for pair in each.acknowledged]
    for buyer, place in acknowledged:
        again = heard(lambda buyer=buyer: shop.web.ask(shop.card.slug, buyer))  # type: ignore[misc]
        assert (again.status, again.json()["request_id"], again.json()["seq"]) == (
            200, place["request_id"], place["seq"],
        )  # fmt: skip
    assert len({place["seq"] for _, place in acknowledged}) == len(acknowledged)


def test_a_settler_outlives_redis_and_decides_everything_in_order(shop: Shop, tmp_path: Path) -> None:
    buyers = [shop.web.new_buyer() for _ in range(20)]
    with settler_process(shop.environment, folder=tmp_path) as settler:
        ids = [ask_until_admitted(shop, buyer) for buyer in buyers[:10]]
        shop.valkey.kill()
        assert_away(shop.web.ask(shop.card.slug, buyers[10]))
        shop.valkey.start_again()
        wait_until(lambda: shop.web.get("/readyz").status == 200)
        ids += [ask_until_admitted(shop, buyer) for buyer in buyers[10:]]
        for request_id, buyer in zip(ids, buyers, strict=True):
            wait_until_held(shop, request_id, buyer)
        assert settler.running
    assert assert_books_balance(shop.card)["orders_held"] == len(buyers) + 1  # and the one who proved the shop open


def wait_until_held(shop: Shop, request_id: str, buyer: Buyer) -> None:
    wait_until(lambda: shop.web.status(request_id, buyer).json().get("state") == "held")


def ask_until_admitted(shop: Shop, buyer: Buyer) -> str:
    """Ask as a patient buyer does, and return the request's id."""
    answer = wait_until(
        lambda: next((a for a in [shop.web.ask(shop.card.slug, buyer)] if a.status in (200, 202)), None),
    )
    return str(answer.json()["request_id"])


def start_together(tasks: list[Callable[[], None]]) -> list[threading.Thread]:
    """Start a thread for each task."""
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    return threads


def finish(threads: list[threading.Thread]) -> None:
    """Wait for threads to end."""
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()


def run_together(tasks: list[Callable[[], None]]) -> None:
    """Run every task in a thread of its own, and wait for all."""
    finish(start_together(tasks))
