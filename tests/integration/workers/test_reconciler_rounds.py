"""A reconciler goes on past a SKU that fails, says that it lives between all steps, and stops between two of them.
Works on real stores; what fails is a key of the wrong type, or a retired sale.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DataError

from inventory import reconcile_requests, redis
from inventory.exceptions import InvalidRequest, RedisUnavailable
from inventory.line import repair
from inventory.line.priming import is_primed
from inventory.postgres import Cursor
from inventory.redis import Client, keys
from shop.sales.catalogue import SaleCard, find_sale
from shop.staff import retiring
from tests.support import road
from tests.support.shopkeeping import close_sale, make_sale
from workers.process_loop import Stopped
from workers.reconciler import loop as module
from workers.reconciler.loop import Reconciler
from workers.reconciler.requested import compare_asked
from workers.reconciler.retirement import Retirement

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def cards(new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> list[SaleCard]:
    """Return three sales that are all a reconciler looks at; nothing is wrong with them."""
    made = [make_sale(sku, units=3) for sku in sorted(new_sku() for _ in range(3))]
    on_sale = module.skus_on_sale
    monkeypatch.setattr(module, "skus_on_sale", lambda: {card.sku: on_sale()[card.sku] for card in made})
    return made


@pytest.fixture
def spoil() -> Iterator[Callable[[SaleCard], None]]:
    """Return what makes every look at a sale's line fail; it is mended when the test ends."""
    spoiled = []

    def spoil_line(card: SaleCard) -> None:
        spoiled.append(keys.line(card.sku))
        road.run(("SET", spoiled[-1], "no sorted set"))

    yield spoil_line
    for key in spoiled:
        road.run(("DEL", key))


@pytest.fixture
def rounds_until_compared(monkeypatch: pytest.MonkeyPatch) -> Callable[[SaleCard], int]:
    """Return what counts the rounds of a new reconciler until it has compared the stock of a sale, 20 at most."""
    compared, look = set[str](), module.look_at_stock

    def note(client: Client, cursor: Cursor, sku: str, **named: Any) -> Any:
        compared.add(sku)
        return look(client, cursor, sku, **named)

    monkeypatch.setattr(module, "look_at_stock", note)

    def count(card: SaleCard) -> int:
        watcher = Reconciler(redis.connect(), stopping=lambda: False)
        for rounds in range(1, 20):
            with suppress(RedisUnavailable):
                watcher.work_once()
            if card.sku in compared:
                return rounds
        return 20

    return count


def test_one_that_fails_costs_the_others_one_round(
    cards: list[SaleCard],
    spoil: Callable[[SaleCard], None],
    rounds_until_compared: Callable[[SaleCard], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often it fails: it ends a round, and the next one begins after it."""
    monkeypatch.setattr(module, "BUSY_SECONDS", 0)
    for card in cards[:2]:
        spoil(card)
    assert rounds_until_compared(cards[2]) == 3


def test_when_none_fails_one_round_is_enough(
    cards: list[SaleCard], rounds_until_compared: Callable[[SaleCard], int]
) -> None:
    """The control: what the first test counts is what the two that fail cost."""
    assert rounds_until_compared(cards[2]) == 1


def test_a_failure_is_told_to_the_loop_that_waits_before_the_next_round(
    cards: list[SaleCard], spoil: Callable[[SaleCard], None]
) -> None:
    spoil(cards[0])
    with pytest.raises(RedisUnavailable):
        Reconciler(redis.connect(), stopping=lambda: False).work_once()


@pytest.mark.parametrize("stops", [True, False], ids=["asked to stop", "not asked"])
def test_what_staff_asked_for_is_left_to_the_next_one_by_a_stop(
    cards: list[SaleCard], stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pages, and the request is not lost. The control: without a stop it is compared to its end."""
    client, card, pages = redis.connect(), cards[0], []
    monkeypatch.setattr(repair, "record_pages", lambda *_: (pages.append(1) or {} for _ in range(5)))
    watcher = Reconciler(client, stopping=lambda: stops and len(pages) == 2)
    reconcile_requests.ask(client, card.sku, actor="anna")
    with pytest.raises(Stopped) if stops else nullcontext():
        compare_asked(watcher, client)
    assert len(pages) == (2 if stops else 5)
    assert (card.sku in reconcile_requests.waiting(client)) is stops
    assert reconcile_requests.last(client, card.sku)["actor"] == "anna"


def test_a_damaged_one_keeps_no_other_that_staff_asked_for_back(cards: list[SaleCard]) -> None:
    """The process goes on, and staff are told; a request that stayed would end the next process by the same error."""
    client, (bad, good, _) = redis.connect(), cards
    road.run(("HSET", keys.live_units(bad.sku), "1:ann", "many"))
    for card in (bad, good):
        reconcile_requests.ask(client, card.sku, actor="anna")
    compare_asked(Reconciler(client, stopping=lambda: False), client)
    told = [reconcile_requests.last(client, card.sku) or {} for card in (bad, good)]
    assert [each["state"] for each in told] == [reconcile_requests.FAILED, reconcile_requests.DONE]
    assert told[0]["detail"] == "a fault of the program, which is in its log"
    road.run(("HDEL", keys.live_units(bad.sku), "1:ann"))


def test_what_is_asked_for_while_it_is_compared_is_compared_again(
    cards: list[SaleCard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first comparison has read may be older than the second ask; the second is answered as any other."""
    client, card = redis.connect(), cards[0]
    watcher = Reconciler(client, stopping=lambda: False)
    with monkeypatch.context() as patched:
        patched.setattr(watcher, "compare", lambda *_, **__: reconcile_requests.ask(client, card.sku, actor="b") or [])
        reconcile_requests.ask(client, card.sku, actor="anna")
        compare_asked(watcher, client)
    assert reconcile_requests.waiting(client)[card.sku]["actor"] == "b"
    compare_asked(watcher, client)
    told = reconcile_requests.last(client, card.sku) or {}
    assert (told["state"], told["actor"]) == (reconcile_requests.DONE, "b")


def test_a_long_comparison_is_not_begun_a_second_time(cards: list[SaleCard], monkeypatch: pytest.MonkeyPatch) -> None:
    """It says at its pages that it still runs; the others of its process have their turn there too."""
    client, card = redis.connect(), cards[0]
    now, waiting, turns = [time.time()], [], []

    def pages(*_: object) -> Iterator[dict[str, str]]:
        for _page in range(5):
            now[0] += 0.9 * reconcile_requests.BROKEN_OFF_SECONDS
            waiting.append(card.sku in reconcile_requests.waiting(client))
            yield {}

    monkeypatch.setattr(reconcile_requests, "time", SimpleNamespace(time=lambda: now[0]))
    monkeypatch.setattr(repair, "record_pages", pages)
    reconcile_requests.ask(client, card.sku, actor="anna")
    compare_asked(Reconciler(client, stopping=lambda: False), client, between_pages=lambda: turns.append(1))
    assert waiting == [False] * 5
    assert len(turns) >= 5
    assert (reconcile_requests.last(client, card.sku) or {})["state"] == reconcile_requests.DONE


@pytest.mark.parametrize("text", ["{", "7", '{"state": "asked"}', '{"state": "running", "actor": "a", "at": "x"}'])
def test_a_damaged_request_of_staff_has_failed_and_harms_no_other(cards: list[SaleCard], text: str) -> None:
    client, (bad, good, _) = redis.connect(), cards
    road.run(("HSET", keys.reconciliations(), bad.sku, text))
    assert reconcile_requests.last(client, bad.sku)["detail"] == reconcile_requests.DAMAGED
    reconcile_requests.ask(client, good.sku, actor="anna")
    compare_asked(Reconciler(client, stopping=lambda: False), client)
    assert reconcile_requests.last(client, good.sku)["state"] == reconcile_requests.DONE
    reconcile_requests.ask(client, bad.sku, actor="anna")
    compare_asked(Reconciler(client, stopping=lambda: False), client)
    assert reconcile_requests.last(client, bad.sku)["state"] == reconcile_requests.DONE


def test_it_says_that_it_lives_between_all_steps(cards: list[SaleCard], monkeypatch: pytest.MonkeyPatch) -> None:
    said, pages = [], []
    monkeypatch.setattr(repair, "record_pages", lambda *_: (pages.append(len(said)) or {} for _ in range(5)))
    watcher = Reconciler(redis.connect(), stopping=lambda: False, report_alive=lambda: said.append(1))
    watcher.work_once()
    assert len(pages) == 5 * len(cards)
    assert len(set(pages)) == len(pages)  # between any two pages it has spoken


@pytest.fixture
def due(cards: list[SaleCard], monkeypatch: pytest.MonkeyPatch) -> list[SaleCard]:
    """Return three sales that are all a reconciler finds due to be retired; of the first the retirement fails."""
    first = cards[0]
    slugs = [(card.sale_id, card.slug) for card in cards]
    mark = retiring.mark_retired

    def mark_unless_first(slug: str, **named: Any) -> str:
        if slug == first.slug:
            raise DataError("cannot be retired")
        return mark(slug, **named)

    for card in cards:
        close_sale(card)
    monkeypatch.setattr(
        retiring, "due", lambda *, limit, after_id: [each for each in slugs if each[0] > after_id][:limit]
    )
    monkeypatch.setattr(retiring, "mark_retired", mark_unless_first)
    return cards


def test_a_sale_that_cannot_be_retired_keeps_no_other_back(due: list[SaleCard]) -> None:
    retirement = Retirement(redis.connect(), throttle=lambda: None)
    with pytest.raises(DataError):
        retirement.work_once()
    assert retirement.work_once() == 2
    assert [find_sale(card.slug).retired_at is not None for card in due] == [False, True, True]


@pytest.mark.parametrize("stops", [True, False], ids=["asked to stop", "not asked"])
def test_a_stop_is_heard_between_two_sales_that_are_not_settled(
    due: list[SaleCard], stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of them is forgotten, so there is no other step to hear it at. The control: not asked, all are tried."""
    tried: list[str] = []

    def refuse(slug: str, **_: Any) -> str:
        tried.append(slug)
        raise InvalidRequest("somebody waits in its line")

    def stop_after_one() -> None:
        if stops and tried:
            raise Stopped

    monkeypatch.setattr(retiring, "mark_retired", refuse)
    with pytest.raises(Stopped) if stops else nullcontext():
        Retirement(redis.connect(), throttle=stop_after_one).work_once()
    assert tried == [card.slug for card in due][: 1 if stops else 3]


@pytest.mark.parametrize("stops", [True, False], ids=["asked to stop", "not asked"])
def test_a_stop_is_heard_between_two_skus_that_are_left_to_forget(
    due: list[SaleCard], stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[str] = []

    def stop_after_one() -> None:
        if stops and forgotten:
            raise Stopped

    monkeypatch.setattr(retiring, "due", lambda **_: [])
    monkeypatch.setattr(retiring, "forget_retired", lambda sku, **_: forgotten.append(sku))
    for card in due[1:]:
        retiring.mark_retired(card.slug, actor="anna", reason="over")
    with pytest.raises(Stopped) if stops else nullcontext():
        Retirement(redis.connect(), throttle=stop_after_one).work_once()
    assert len(forgotten) == 1 if stops else {card.sku for card in due[1:]} <= set(forgotten)


def test_a_sku_that_cannot_be_forgotten_keeps_no_other_back(
    due: list[SaleCard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second sale is marked, and to forget it fails each time; the third is marked and forgotten all the same."""
    forget = retiring.forget_retired

    def forget_unless_second(sku: str, **named: Any) -> None:
        if sku == due[1].sku:
            raise DataError("cannot be forgotten")
        forget(sku, **named)

    monkeypatch.setattr(retiring, "forget_retired", forget_unless_second)
    retirement, errors = Retirement(redis.connect(), throttle=lambda: None), 0
    for _ in range(4):
        try:
            retirement.work_once()
        except DataError:
            errors += 1
    assert errors >= 2
    assert find_sale(due[2].slug).retired_at is not None
    assert not is_primed(redis.connect(), due[2].sku)
