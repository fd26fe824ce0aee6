"""The line hands out every request until it is settled, to the lock's holder only, and repeats without harm.
Every test has a SKU of its own, and runs on every kind of Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inventory import redis
from inventory.audit import line as audit_line
from inventory.exceptions import LockLost
from inventory.line import reading, writing
from inventory.line.admission import Code
from inventory.line.writing import MAX_HAND_OUTS, Handed
from inventory.locks.lock import Lock
from inventory.locks.token import new_token
from inventory.redis import keys
from inventory.states import State
from shop.sales.catalogue import SaleCard
from tests.support.road import (
    admit,
    answer_batch,
    answered,
    ask,
    figures,
    forget,
    held_lock,
    queue,
    run,
    snapshot,
    take,
)
from tests.support.servers.server_matrix import nodes_of
from tests.support.shopkeeping import make_sale

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")


@pytest.fixture
def card(each_server: str, new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of ten units, one a buyer."""
    return make_sale(new_sku(), units=10)


def names(handed: Handed) -> list[str]:
    return [name for name, _ in handed.requests]


def settle(card: SaleCard, token: str, handed: Handed, *, call: int = 1, state: State = State.HELD) -> int:
    return answer_batch(
        redis.connect(),
        card.sku,
        token=token,
        call=call,
        figures=figures(available=7, held=3, version=2),
        settled=answered(handed, state),
    )


def test_a_batch_comes_in_the_order_of_the_line(card: SaleCard) -> None:
    asked = queue(card, "ann", "bob", "eve")
    lock = held_lock(card.sku)
    handed = take(lock, batch=2)
    assert (handed.kind, names(handed)) == ("fresh", asked[:2])
    assert [record.buyer for _, record in handed.requests] == ["ann", "bob"]
    lock.release()


def test_an_empty_line_hands_out_nothing(card: SaleCard) -> None:
    lock = held_lock(card.sku)
    assert take(lock) == ("fresh", [])
    lock.release()


def drain(card: SaleCard, lock: Lock) -> list[tuple[str, list[str]]]:
    """Settle everything under `lock`; return the batches as they were handed out."""
    handed, batches = take(lock, call=1), []
    while handed.requests:
        batches.append((handed.kind, names(handed)))
        handed = writing.settle_and_take(
            redis.connect(),
            card.sku,
            token=lock.token,
            figures=figures(available=9, version=2),
            settled=answered(handed, State.HELD),
            call=len(batches) + 1,
            batch=500,
        )
    return batches


def abandon(card: SaleCard, *, given_back: bool = False) -> None:
    """Take two requests and settle none of them, as a holder does that dies, or that stops in order."""
    holder = held_lock(card.sku)
    take(holder, batch=2)
    if given_back:
        writing.give_back(redis.connect(), card.sku, token=holder.token)
    holder.release()


def test_what_a_dead_holder_left_comes_first_and_together(card: SaleCard) -> None:
    asked = queue(card, "ann", "bob", "eve")
    abandon(card)
    heir = held_lock(card.sku)
    assert drain(card, heir) == [("again", asked[:2]), ("fresh", asked[2:])]
    heir.release()


def test_what_two_dead_holders_left_comes_first_and_one_at_a_time(card: SaleCard) -> None:
    asked = queue(card, "ann", "bob", "eve")
    abandon(card)
    abandon(card)
    heir = held_lock(card.sku)
    assert drain(card, heir) == [("again", asked[:1]), ("again", asked[1:2]), ("fresh", asked[2:])]
    heir.release()


def test_a_batch_given_back_in_order_is_never_counted(card: SaleCard) -> None:
    """A settler stopped while the database is away is not the requests' fault, however often it happens."""
    asked = queue(card, "ann", "bob")
    for _ in range(MAX_HAND_OUTS + 2):
        abandon(card, given_back=True)
    heir = held_lock(card.sku)
    assert drain(card, heir) == [("again", asked)]
    heir.release()


def test_a_lost_token_gives_nothing_back(card: SaleCard) -> None:
    queue(card, "ann")
    abandon(card)
    before = snapshot(card)
    with pytest.raises(LockLost):
        writing.give_back(redis.connect(), card.sku, token="of|someone|else")
    assert snapshot(card) == before


@pytest.mark.parametrize("left_by_a_dead_holder", [False, True])
def test_a_take_sent_again_gets_the_same_batch(card: SaleCard, left_by_a_dead_holder: bool) -> None:
    queue(card, "ann", "bob", "eve")
    if left_by_a_dead_holder:
        dead = held_lock(card.sku)
        take(dead, batch=2)
        dead.release()
    lock = held_lock(card.sku)
    first = take(lock, batch=2)
    before = snapshot(card)
    assert take(lock, batch=2) == first
    assert snapshot(card) == before
    lock.release()


def test_a_settle_sent_again_settles_nothing(card: SaleCard) -> None:
    queue(card, "ann", "bob")
    lock = held_lock(card.sku)
    handed = take(lock)
    assert settle(card, lock.token, handed) == 2
    before = snapshot(card)
    assert settle(card, lock.token, handed) == 0
    assert snapshot(card) == before
    lock.release()


def test_a_settle_and_take_sent_again_hands_out_the_same_batch(card: SaleCard) -> None:
    asked = queue(card, "ann", "bob", "eve")
    lock = held_lock(card.sku)
    handed = take(lock, batch=1)
    call = {
        "token": lock.token,
        "figures": figures(available=9, version=2),
        "settled": answered(handed, State.HELD),
        "call": 2,
        "batch": 1,
    }
    first = writing.settle_and_take(redis.connect(), card.sku, **call)
    before = snapshot(card)
    assert writing.settle_and_take(redis.connect(), card.sku, **call) == first
    assert names(first) == asked[1:2]
    assert snapshot(card) == before
    lock.release()


@pytest.mark.parametrize("keeps", [1, 2], ids=["one keeps its place", "all keep their places"])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_settle_of_who_keeps_a_place_sent_again_leaves_the_batch_after_it(
    card: SaleCard, keeps: int, batch: int
) -> None:
    """What was returned meanwhile is free for them: the same requests are handed out at once."""
    asked = queue(card, "ann", "bob", "eve")
    lock = held_lock(card.sku)
    handed = take(lock, batch=2)
    call = {
        "token": lock.token,
        "figures": figures(available=9, held=1, version=2),
        "settled": answered(handed, State.HELD)[: 2 - keeps],
        "staying": names(handed)[2 - keeps :],
        "call": 2,
        "batch": batch,
    }
    first = writing.settle_and_take(redis.connect(), card.sku, **call)
    before = snapshot(card)
    assert names(first) == asked[2 - keeps :][:batch]
    assert writing.settle_and_take(redis.connect(), card.sku, **call) == first
    assert snapshot(card) == before
    lock.release()


def test_a_settle_that_comes_again_behind_a_later_take_leaves_its_batch(card: SaleCard) -> None:
    asked = queue(card, "ann", "bob")
    lock = held_lock(card.sku)
    take(lock, call=1, batch=1)
    call = {
        "token": lock.token,
        "call": 1,
        "figures": figures(available=9, held=1, version=2),
        "settled": [],
        "staying": asked[:1],
    }
    answer_batch(redis.connect(), card.sku, **call)
    assert names(take(lock, call=2)) == asked
    before = snapshot(card)
    answer_batch(redis.connect(), card.sku, **call)
    assert snapshot(card) == before
    lock.release()


def test_a_redis_that_forgot_its_scripts_settles_before_it_hands_out(card: SaleCard) -> None:
    asked = queue(card, "ann", "bob")
    lock = held_lock(card.sku)
    for each in nodes_of(redis.connect()):
        each.script_flush()
    handed = take(lock, batch=1)  # now Redis knows this script again, but not the one that settles
    following = writing.settle_and_take(
        redis.connect(),
        card.sku,
        token=lock.token,
        figures=figures(available=9, version=2),
        settled=answered(handed, State.HELD),
        call=2,
        batch=1,
    )
    assert (following.kind, names(following)) == ("fresh", asked[1:])
    lock.release()


def test_a_take_without_the_lock_changes_nothing(card: SaleCard) -> None:
    queue(card, "ann")
    before = snapshot(card)
    with pytest.raises(LockLost):
        writing.take(redis.connect(), card.sku, token=new_token(), call=1, batch=5)
    assert snapshot(card) == before


def test_a_settle_after_the_lock_was_lost_changes_nothing(card: SaleCard) -> None:
    queue(card, "ann")
    lost = held_lock(card.sku)
    handed = take(lost)
    lost.release()
    heir = held_lock(card.sku)
    before = snapshot(card)
    with pytest.raises(LockLost):
        settle(card, lost.token, handed)
    with pytest.raises(LockLost):
        writing.settle_and_take(
            redis.connect(),
            card.sku,
            token=lost.token,
            figures=figures(version=9),
            settled=answered(handed, State.HELD),
            call=2,
            batch=5,
        )
    assert snapshot(card) == before
    heir.release()


def test_without_a_token_what_is_in_flight_stays_there(card: SaleCard) -> None:
    """Of a batch in flight one is told an outcome, one stays, one is not named. The control is the holder's settle."""
    ann, bob, eve, joe = queue(card, "ann", "bob", "eve", "joe")
    lock = held_lock(card.sku)
    handed = take(lock, batch=3)
    flight, line = ("ZRANGE", keys.in_flight(card.sku), 0, -1), ("ZRANGE", keys.line(card.sku), 0, -1)
    before = run(flight, line, ("HGETALL", keys.hand_outs(card.sku)))
    assert before[:2] == [[ann, bob, eve], [joe]]
    settled = answered(handed, State.HELD)[:1]
    call: dict[str, Any] = {"figures": figures(available=9, held=1, version=2), "settled": settled, "staying": [bob]}
    answer_batch(redis.connect(), card.sku, token="", call=1, **call)
    assert run(flight, line, ("HGETALL", keys.hand_outs(card.sku))) == before
    (place,) = reading.places(redis.connect(), card.sku, [ann])
    assert place is not None
    assert place.record.state is State.HELD  # a record goes forward all the same
    answer_batch(redis.connect(), card.sku, token=lock.token, call=1, **call)
    assert run(flight, line) == [[], [bob, eve, joe]]
    lock.release()


def test_without_a_token_a_redis_that_is_not_primed_stays_empty(card: SaleCard) -> None:
    """The control is a Redis that is primed: there the same call writes the record."""
    queue(card, "ann")
    lock = held_lock(card.sku)
    settled = answered(take(lock), State.HELD)
    lock.release()
    stock = run(("HGETALL", keys.stock(card.sku)))[0]
    forget(card)
    told: dict[str, Any] = {"figures": figures(available=9, held=1, version=9), "changed": settled}
    assert writing.publish_changes(redis.connect(), card.sku, **told) == 0
    assert [content for content in snapshot(card).values() if content] == []
    run(("HSET", keys.stock(card.sku), *(part for pair in stock.items() for part in pair)))
    run(("HSET", keys.sales(card.sku), card.sale_id, "on"))
    assert writing.publish_changes(redis.connect(), card.sku, **told) == 1


def test_after_five_hand_outs_a_request_lies_in_the_dead_letters(card: SaleCard) -> None:
    poison, innocent = queue(card, "ann", "bob")
    kinds = []
    for _ in range(writing.MAX_HAND_OUTS + 1):
        lock = held_lock(card.sku)
        handed = take(lock, batch=1)
        assert names(handed) == [poison]
        kinds.append(handed.kind)
        lock.release()
    assert kinds == ["fresh", *["again"] * 4, "dead"]
    assert run(("ZRANGE", keys.dead_letters(card.sku), 0, -1)) == [[poison]]
    lock = held_lock(card.sku)
    settle(card, lock.token, take(lock, call=1), state=State.REFUSED)
    assert names(take(lock, call=2)) == [innocent]
    assert audit_line.look(redis.connect(), card.sku).dead_letters == 1
    lock.release()


def test_hand_outs_are_forgotten_when_a_request_is_settled(card: SaleCard) -> None:
    queue(card, "ann")
    for _ in range(3):
        lock = held_lock(card.sku)
        handed = take(lock)
        lock.release()
    lock = held_lock(card.sku)
    settle(card, lock.token, handed)
    assert run(("EXISTS", keys.hand_outs(card.sku))) == [0]
    lock.release()


def test_an_older_stock_version_does_not_overwrite_a_newer_one(card: SaleCard) -> None:
    queue(card, "ann", "bob")
    lock = held_lock(card.sku)
    first, client = take(lock, batch=1), redis.connect()
    newer, older = figures(available=4, held=6, version=9), figures(available=8, held=2, version=8)
    answer_batch(client, card.sku, token=lock.token, call=1, figures=newer, settled=answered(first, State.HELD))
    second = take(lock, call=2, batch=1)
    answer_batch(client, card.sku, token=lock.token, call=2, figures=older, settled=answered(second, State.HELD))
    seen = reading.figures(client, card.sku, sale_id=card.sale_id)
    assert seen is not None
    assert (seen.available, seen.held, seen.decided, seen.queued) == (4, 6, 2, 0)
    lock.release()


def test_a_refused_request_gives_its_units_back_to_the_buyer(card: SaleCard) -> None:
    queue(card, "ann", "bob")
    lock = held_lock(card.sku)
    settle(card, lock.token, take(lock, call=1, batch=1), state=State.REFUSED)
    settle(card, lock.token, take(lock, call=2, batch=1), call=2)
    again = admit(card, ask(card, "ann", key="second"), ask(card, "bob", key="second"))
    assert [answer.code for answer in again] == [Code.ADMITTED, Code.LIMIT_REACHED]
    lock.release()


def test_queued_counts_exactly_the_units_in_line_and_in_flight(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=10, limit=3)
    admit(card, ask(card, "ann", quantity=3), ask(card, "bob", quantity=2), ask(card, "eve", quantity=1))
    lock, seen = held_lock(card.sku), []
    handed = take(lock, batch=2)
    seen.append(audit_line.look(redis.connect(), card.sku).queued)
    settle(card, lock.token, handed)
    seen.append(audit_line.look(redis.connect(), card.sku).queued)
    settle(card, lock.token, take(lock, call=2), call=2)
    seen.append(audit_line.look(redis.connect(), card.sku).queued)
    assert seen == [6, 1, 0]
    lock.release()


def test_a_look_at_the_line_tells_every_place(card: SaleCard) -> None:
    asked = queue(card, "ann", "bob", "eve")
    lock = held_lock(card.sku)
    handed = take(lock, batch=1)
    client = redis.connect()
    assert [place.position for place in reading.places(client, card.sku, asked) if place] == [1, 2, 3]
    settle(card, lock.token, handed)
    settled, *waiting, nobody = reading.places(client, card.sku, [*asked, "unknown"])
    assert (settled.record.state, settled.position) == (State.HELD, 0)
    assert [place.position for place in waiting if place] == [1, 2]
    assert nobody is None
    lock.release()


@pytest.mark.parametrize("record", ["damaged", "q", "q|"])
def test_a_damaged_record_keeps_nobody_else_from_an_answer(record: str, card: SaleCard) -> None:
    names = queue(card, "ann", "bob", "eve")
    run(("HSET", keys.records(card.sku), names[1], record))
    first, damaged, last = reading.places(redis.connect(), card.sku, names)
    assert damaged is None
    assert [place and place.position for place in (first, last)] == [1, 3]


def test_a_sku_has_work_until_nothing_is_in_line_or_in_flight(card: SaleCard) -> None:
    client, seen = redis.connect(), []
    seen.append(reading.look_for_work(client).get(card.sku))
    queue(card, "ann")
    seen.append(reading.look_for_work(client).get(card.sku))
    lock = held_lock(card.sku)
    handed = take(lock)
    seen.append(reading.look_for_work(client).get(card.sku))
    settle(card, lock.token, handed)
    seen.append(reading.look_for_work(client).get(card.sku))
    assert seen == [None, reading.Work.READY, reading.Work.READY, None]
    lock.release()
