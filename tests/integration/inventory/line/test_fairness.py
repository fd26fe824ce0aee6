"""One settler goes round the SKUs that wait; neither a locked SKU nor a damaged one keeps it from the others.
Real PostgreSQL and every kind of Redis.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection

from inventory import redis
from inventory.audit import line
from inventory.redis import keys
from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.support.road import held_lock, run, settler
from tests.support.shopkeeping import assert_books_balance, decided_count, fill_line, make_sale
from tests.support.waiting import wait_until
from workers import settler as settler_module

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")
WAITING = 40


@pytest.fixture
def cards(each_server: str, new_sku: Callable[[], str]) -> list[SaleCard]:
    """Return four sales, by the name of their SKU, with forty buyers in each line and none in any other."""
    with settler() as worker:
        wait_until(lambda: worker.work_once() == 0)  # what other tests left behind
    made = [make_sale(sku, units=WAITING) for sku in sorted(new_sku() for _ in range(4))]
    for card in made:
        fill_line(card, buyers=WAITING)
    return made


def decided(cards: list[SaleCard]) -> list[int]:
    return [decided_count(card) for card in cards]


def test_a_long_turn_would_empty_the_first_line(cards: list[SaleCard], monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with turns without end, the first SKU is emptied before the second is begun."""
    monkeypatch.setattr(settler_module, "TURN_SECONDS", 3600)
    seen: list[list[int]] = []
    with settler(batch=10, stopping=lambda: seen.append(decided(cards)) or False) as worker:
        worker.work_once()
    assert [WAITING, 0, 0, 0] in seen


def test_a_settler_goes_round_the_skus(cards: list[SaleCard], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settler_module, "TURN_SECONDS", 0)
    with settler(batch=10) as worker:
        rounds = []
        for _ in range(4):
            worker.work_once()
            rounds.append(decided(cards))
    assert rounds == [[10] * 4, [20] * 4, [30] * 4, [40] * 4]
    for card in cards:
        assert_books_balance(card)


def test_the_next_round_begins_behind_the_last_turn(cards: list[SaleCard], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settler_module, "TURN_SECONDS", 0)
    enough = 0
    with settler(batch=10, stopping=lambda: sum(decided(cards)) == enough) as worker:
        for enough in (20, 40):  # noqa: B007 - the settler asks for it
            worker.work_once()
    assert decided(cards) == [10, 10, 10, 10]


def test_a_sku_whose_lock_another_holds_never_blocks_the_others(cards: list[SaleCard]) -> None:
    other = held_lock(cards[1].sku)
    with settler() as worker:
        worker.work_once()
        assert decided(cards) == [WAITING, 0, WAITING, WAITING]
        other.release()
        worker.work_once()
    assert decided(cards) == [WAITING] * 4


def test_a_damaged_record_never_blocks_the_other_skus(cards: list[SaleCard]) -> None:
    (first,) = run(("ZRANGE", keys.line(cards[0].sku), 0, 0))
    run(("HSET", keys.records(cards[0].sku), *first, "damaged"))
    with settler() as worker:
        worker.work_once()
        worker.work_once()
    assert decided(cards) == [0, WAITING, WAITING, WAITING]
    forgotten = line.look(redis.connect(), cards[0].sku)
    assert (forgotten.waiting, forgotten.in_flight) == (0, WAITING)
    run(("DEL", keys.in_flight(cards[0].sku)))  # nobody after this test shall meet it


def test_a_request_that_cannot_be_settled_is_refused_and_those_around_it_are_decided(
    cards: list[SaleCard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settler_module, "TURN_SECONDS", 3600)  # however slow the machine is, a turn is a whole one
    (ids,) = run(("ZRANGE", keys.line(cards[0].sku), 0, -1))
    poison = ids[3]
    with connection.cursor() as cursor:  # the database will not have it held, only refused
        cursor.execute(
            "ALTER TABLE shop_order ADD CONSTRAINT poison "
            f"CHECK (state = 'refused' OR request_id <> '{poison}') NOT VALID"
        )
    try:
        with settler() as worker:
            for _ in range(8):
                worker.work_once()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE shop_order DROP CONSTRAINT poison")
    assert decided(cards) == [WAITING] * 4
    refused = Order.objects.filter(sale_id=cards[0].sale_id).exclude(state="held")
    assert list(refused.values_list("request_id", "state", "reason")) == [(poison, "refused", "dead_letter")]
    assert_books_balance(cards[0])


def test_a_stopping_settler_begins_no_new_turn(cards: list[SaleCard]) -> None:
    with settler(stopping=lambda: True) as worker:
        assert worker.work_once() == 0
    assert decided(cards) == [0] * 4


def test_decisions_follow_the_line_within_each_sku(cards: list[SaleCard]) -> None:
    with settler(batch=7) as worker:
        worker.work_once()
    for card in cards:
        seqs = list(Order.objects.filter(sale_id=card.sale_id).order_by("id").values_list("seq", flat=True))
        assert seqs == sorted(seqs)
