"""A turn of a settler ends with the answer to its last batch, when many SKUs have work and nothing more was in line.
Uses real stores, on every kind of Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.line import reading, writing
from inventory.locks import lock as locks
from inventory.redis import Client, ScriptCall, keys
from inventory.states import State
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.shopkeeping import assert_books_balance, fill_line, make_sale
from workers import settler as settlers
from workers.settler import MANY_SKUS, Settler

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")
BATCH = 3
OTHER = "another settler"


@pytest.fixture
def card(each_server: str, new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=20)


@pytest.fixture
def settler(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settler]:
    monkeypatch.setattr(settlers, "TURN_SECONDS", 3600)  # however slow the machine is, a turn is a whole one
    with road.settler(batch=BATCH) as worker:
        yield worker


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what was asked of Redis by two scripts in one round trip."""
    seen, send = list[str](), locks.run_scripts

    def note(client: Client, calls: Sequence[ScriptCall]) -> list[Any]:
        seen.append("+".join(name for name, *_ in calls))
        return send(client, calls)

    monkeypatch.setattr(locks, "run_scripts", note)
    monkeypatch.setattr(writing, "run_scripts", note)
    return seen


def take_turn(settler: Settler, card: SaleCard, *, skus: int = MANY_SKUS) -> int:
    return settler._take_turn(card.sku, skus=skus, probe=False)


def holder(card: SaleCard) -> str | None:
    """Return the token that holds the lock of a SKU."""
    return road.run(("GET", keys.lock(card.sku)))[0]


def states(card: SaleCard, names: Sequence[str]) -> list[State]:
    return [place.record.state for place in reading.places(redis.connect(), card.sku, names) if place]


def test_a_turn_ends_with_the_answer_to_all_who_were_in_line(
    settler: Settler, card: SaleCard, trips: list[str]
) -> None:
    names = fill_line(card, buyers=2 * BATCH - 1)
    assert take_turn(settler, card) == len(names)
    assert trips == ["settle+take", "settle+release"]
    assert holder(card) is None
    assert states(card, names) == [State.HELD] * len(names)
    assert_books_balance(card)


def test_a_batch_that_was_cut_is_not_all_that_is_in_line(settler: Settler, card: SaleCard, trips: list[str]) -> None:
    names = fill_line(card, buyers=2 * BATCH - 1)
    settler._next_batch = 1
    assert take_turn(settler, card) == len(names)
    assert trips == ["settle+take", "settle+take", "settle+release"]


def test_control_where_few_skus_have_work_the_turn_goes_on(settler: Settler, card: SaleCard, trips: list[str]) -> None:
    names = fill_line(card, buyers=BATCH - 1)
    assert take_turn(settler, card, skus=MANY_SKUS - 1) == len(names)
    assert trips == ["settle+take"]
    assert holder(card) is None


def test_what_a_dead_holder_left_is_not_all_that_is_in_line(settler: Settler, card: SaleCard, trips: list[str]) -> None:
    left = fill_line(card, buyers=BATCH - 1)
    dead = road.held_lock(card.sku)
    assert len(road.take(dead).requests) == len(left)
    dead.release()
    new = fill_line(card, buyers=BATCH - 1, named="late")
    assert take_turn(settler, card) == len(left) + len(new)
    assert trips == ["settle+take", "settle+release"]
    assert states(card, [*left, *new]) == [State.HELD] * (len(left) + len(new))


def test_a_turn_whose_lock_another_has_answers_nobody(
    settler: Settler, card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, settle = fill_line(card, buyers=BATCH - 1), settlers.settle_batch

    def lose(*args: Any, **named: Any) -> Any:
        settlement = settle(*args, **named)
        road.run(("SET", keys.lock(card.sku), OTHER, "PX", 60_000))
        return settlement

    monkeypatch.setattr(settlers, "settle_batch", lose)
    assert take_turn(settler, card) == 0
    assert holder(card) == OTHER
    assert states(card, names) == [State.QUEUED] * len(names)


def test_an_answer_that_did_not_come_leaves_no_lock_behind(
    settler: Settler, card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = fill_line(card, buyers=BATCH - 1)

    def fail(*_: Any) -> Any:
        raise RedisUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(locks, "run_scripts", fail)
        with pytest.raises(RedisUnavailable):
            take_turn(settler, card)
    assert holder(card) is None
    assert states(card, names) == [State.QUEUED] * len(names)
    assert take_turn(settler, card) == len(names)
    assert states(card, names) == [State.HELD] * len(names)
    assert_books_balance(card)
