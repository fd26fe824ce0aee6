"""One script decides who gets into the line: once by id, in order, within limit, capacity and time.
Every test has a SKU of its own, and runs on every kind of Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from django.test.utils import override_settings

from inventory import redis
from inventory.audit import line
from inventory.exceptions import RedisUnavailable
from inventory.line import priming
from inventory.line.admission import Answer, Code, SaleLine, admit_async, state_of
from inventory.states import State
from shop.sales.catalogue import SaleCard
from tests.support.road import admit, ask, held_lock, queue, rewrite_sale, run, settle_line, snapshot, take
from tests.support.servers.server_matrix import ON_ONE_KIND
from tests.support.shopkeeping import make_sale, pay_all
from tests.support.waiting import wait_until
from workers.embedded.server import free_port

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")
KNOWN_QUEUED = Code.KNOWN_BEFORE + ord("q")
# How soon a sale opens or closes: the later ones are for a machine on which the first moment is over at the first ask.
SOON_SECONDS = (0.3, 3, 30)


@pytest.fixture
def card(each_server: str, new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of ten units, three a buyer."""
    return make_sale(new_sku(), units=10, limit=3)


def codes(answers: list[Answer]) -> list[int]:
    return [answer.code for answer in answers]


def test_the_first_ask_is_admitted_at_the_first_place(card: SaleCard) -> None:
    (answer,) = admit(card, ask(card, "ann"))
    assert (answer.code, answer.position) == (Code.ADMITTED, 1)
    assert state_of(answer.code) is State.QUEUED


def test_the_same_id_again_gets_the_same_place_and_changes_nothing(card: SaleCard) -> None:
    (first,) = admit(card, ask(card, "ann"))
    before = snapshot(card)
    (again,) = admit(card, ask(card, "ann"))
    assert again == first._replace(code=KNOWN_QUEUED)
    assert snapshot(card) == before


def test_the_same_id_twice_in_one_batch_is_one_request(card: SaleCard) -> None:
    wish = ask(card, "ann")
    ahead, first, twin = admit(card, ask(card, "bob"), wish, wish)
    assert (first.code, first.position) == (Code.ADMITTED, 2)
    assert twin == first._replace(code=KNOWN_QUEUED)
    assert ahead.seq < first.seq
    assert line.look(redis.connect(), card.sku).waiting == 2


def test_a_batch_sent_again_repeats_its_answers(card: SaleCard) -> None:
    asks = [ask(card, f"buyer-{number}") for number in range(5)]
    first = admit(card, *asks)
    before = snapshot(card)
    again = admit(card, *asks)
    assert [answer[1:] for answer in again] == [answer[1:] for answer in first]
    assert set(codes(again)) == {KNOWN_QUEUED}
    assert snapshot(card) == before


def test_a_settled_request_is_answered_with_its_outcome(card: SaleCard) -> None:
    (first,) = admit(card, ask(card, "ann"))
    settle_line(card)
    (again,) = admit(card, ask(card, "ann"))
    assert again == first._replace(code=Code.KNOWN_BEFORE + ord("h"), position=0)
    assert state_of(again.code) is State.HELD


def test_a_request_in_flight_keeps_its_position(card: SaleCard) -> None:
    asks = [ask(card, name) for name in ("ann", "bob", "eve")]
    admit(card, *asks)
    lock = held_lock(card.sku)
    take(lock, batch=2)
    assert [answer.position for answer in admit(card, *asks, ask(card, "joe"))] == [1, 2, 3, 4]
    lock.release()


def test_seq_strictly_rises_within_a_batch_and_over_batches(card: SaleCard) -> None:
    seqs = [answer.seq for part in range(3) for answer in admit(card, *(ask(card, f"{part}-{n}") for n in range(3)))]
    assert len(seqs) == 9
    assert all(one < other for one, other in pairwise(seqs))


def test_seq_is_the_servers_time_in_microseconds(card: SaleCard) -> None:
    ((seconds, micros),) = run(("TIME",))
    (answer,) = admit(card, ask(card, "ann"))
    ((later_seconds, later_micros),) = run(("TIME",))
    assert int(seconds) * 10**6 + int(micros) <= answer.seq <= int(later_seconds) * 10**6 + int(later_micros)


def test_the_place_is_the_order_of_the_batch(card: SaleCard) -> None:
    answers = admit(card, *(ask(card, f"buyer-{number}") for number in range(6)))
    assert [answer.position for answer in answers] == [1, 2, 3, 4, 5, 6]


def test_the_limit_counts_every_key_of_a_buyer_in_one_batch(card: SaleCard) -> None:
    answers = admit(card, *(ask(card, "ann", key=f"key-{number}") for number in range(5)))
    assert codes(answers) == [Code.ADMITTED] * 3 + [Code.LIMIT_REACHED] * 2


def test_the_limit_counts_units_over_calls(card: SaleCard) -> None:
    answers = [admit(card, ask(card, "ann", quantity=q, key=key))[0] for q, key in ((2, "a"), (2, "b"), (1, "c"))]
    assert codes(answers) == [Code.ADMITTED, Code.LIMIT_REACHED, Code.ADMITTED]


def test_one_buyer_at_the_limit_leaves_the_next_one_alone(card: SaleCard) -> None:
    answers = admit(card, ask(card, "ann", quantity=4), ask(card, "bob", quantity=3))
    assert codes(answers) == [Code.LIMIT_REACHED, Code.ADMITTED]


def test_no_more_units_queue_than_stock_and_line_capacity(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=2, line_capacity=1, limit=2)
    answers = admit(card, *(ask(card, f"buyer-{number}") for number in range(5)))
    assert codes(answers) == [Code.ADMITTED] * 3 + [Code.LINE_FULL] * 2
    assert line.look(redis.connect(), card.sku).queued == 3


def test_who_wants_too_many_for_the_line_does_not_shut_out_the_next(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=2, line_capacity=0, limit=3)
    answers = admit(card, ask(card, "ann", quantity=3), ask(card, "bob", quantity=2))
    assert codes(answers) == [Code.LINE_FULL, Code.ADMITTED]


def test_nobody_queues_for_a_sold_out_sale(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1, line_capacity=50)
    queue(card, "ann")
    settle_line(card)
    pay_all(card)
    assert codes(admit(card, ask(card, "bob"))) == [Code.SOLD_OUT]


def test_while_a_unit_may_come_back_there_is_room_to_wait_for_it(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1, line_capacity=1)
    queue(card, "ann")
    settle_line(card)
    assert codes(admit(card, ask(card, "bob"), ask(card, "eve"), ask(card, "joe"))) == [
        Code.ADMITTED,
        Code.ADMITTED,
        Code.LINE_FULL,
    ]


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        ({"opens_in_seconds": 3600, "closes_in_seconds": 7200}, Code.NOT_OPEN),
        ({"opens_in_seconds": 3600, "closes_in_seconds": 7200, "operator_state": "paused"}, Code.NOT_OPEN),
        ({"operator_state": "paused"}, Code.PAUSED),
        ({"operator_state": "closed"}, Code.CLOSED),
        ({"opens_in_seconds": -7200, "closes_in_seconds": -3600}, Code.CLOSED),
        ({"opens_in_seconds": -7200, "closes_in_seconds": -3600, "operator_state": "paused"}, Code.CLOSED),
    ],
)
def test_a_sale_that_is_shut_refuses_and_writes_nothing(
    new_sku: Callable[[], str], terms: dict[str, float | str], code: Code
) -> None:
    card = make_sale(new_sku(), units=5, **terms)
    before = snapshot(card)
    assert admit(card, ask(card, "ann")) == [Answer(code, 0, 0)]
    assert snapshot(card) == before


def test_an_unprimed_sale_refuses_and_writes_nothing(card: SaleCard, new_sku: Callable[[], str]) -> None:
    elsewhere = replace(card, sku=new_sku())
    before = snapshot(elsewhere)
    assert admit(elsewhere, ask(elsewhere, "ann")) == [Answer(Code.NOT_PRIMED, 0, 0)]
    assert snapshot(elsewhere) == before


def answers_until_shut(card: SaleCard) -> list[Answer]:
    """Ask again and again; return every answer, the last of them the refusal."""
    answers: list[Answer] = []

    def shut() -> bool:
        answers.extend(admit(card, ask(card, "ann", key=str(len(answers)))))
        return answers[-1].code != Code.ADMITTED

    wait_until(shut)
    return answers


def test_a_sale_opens_by_the_clock_of_redis(new_sku: Callable[[], str]) -> None:
    for seconds in SOON_SECONDS:
        card = make_sale(new_sku(), units=1, opens_in_seconds=seconds)
        if codes(admit(card, ask(card, "ann"))) == [Code.NOT_OPEN]:
            break
    else:
        pytest.fail("it was never told that it is not open yet")

    def admitted() -> Answer | None:
        (answer,) = admit(card, ask(card, "ann"))
        return answer if answer.code == Code.ADMITTED else None

    answer = wait_until(admitted)
    assert answer.seq >= priming.microseconds(card.opens_at)


def test_a_sale_closes_by_the_clock_of_redis(new_sku: Callable[[], str]) -> None:
    for until_close in SOON_SECONDS:
        card = make_sale(new_sku(), units=10_000, limit=10_000, closes_in_seconds=until_close)
        answers = answers_until_shut(card)
        if len(answers) > 1:
            break
    ((seconds, micros),) = run(("TIME",))
    assert answers[-1].code == Code.CLOSED
    assert answers[-2].seq < priming.microseconds(card.closes_at) <= int(seconds) * 10**6 + int(micros)


def test_who_was_admitted_is_still_known_after_the_close(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=5)
    (first,) = admit(card, ask(card, "ann"))
    rewrite_sale(card, state="closed")
    known = first._replace(code=KNOWN_QUEUED)
    assert admit(card, ask(card, "ann"), ask(card, "bob")) == [known, Answer(Code.CLOSED, 0, 0)]


def test_the_same_id_with_another_quantity_is_refused(card: SaleCard) -> None:
    admit(card, ask(card, "ann", quantity=1))
    before = snapshot(card)
    assert admit(card, ask(card, "ann", quantity=2)) == [Answer(Code.OTHER_QUANTITY, 0, 0)]
    assert snapshot(card) == before


def test_the_same_id_with_another_quantity_is_refused_within_one_batch(card: SaleCard) -> None:
    answers = admit(card, ask(card, "ann", quantity=1), ask(card, "ann", quantity=2))
    assert codes(answers) == [Code.ADMITTED, Code.OTHER_QUANTITY]


def test_a_thousand_fit_into_one_call(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1000)
    answers = admit(card, *(ask(card, f"buyer-{number}") for number in range(1000)))
    assert set(codes(answers)) == {Code.ADMITTED}
    assert answers[-1].position == 1000


def test_both_doors_lead_into_the_same_line(card: SaleCard) -> None:
    async def through_the_async_door() -> list[Answer]:
        client = redis.connect_async()
        try:
            return await admit_async(client, SaleLine(card.sale_id, card.sku), [ask(card, "ann"), ask(card, "bob")])
        finally:
            await redis.close_async(client)

    (first,) = admit(card, ask(card, "ann"))
    again, second = asyncio.run(through_the_async_door())
    assert again == first._replace(code=KNOWN_QUEUED)
    assert (second.code, second.position) == (Code.ADMITTED, 2)


@ON_ONE_KIND  # there is no server
def test_a_missing_redis_is_told_by_name(card: SaleCard) -> None:
    with override_settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"), pytest.raises(RedisUnavailable):
        admit(card, ask(card, "ann"))


def test_who_is_told_to_wait_for_a_held_unit_is_told_so_by_a_repeat_too(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    admit(card, ask(card, "ann"), ask(card, "bob"))
    (control,) = admit(card, ask(card, "bob"))
    assert state_of(control.code) is State.QUEUED
    settle_line(card)
    assert [state_of(answer.code) for answer in admit(card, ask(card, "ann"), ask(card, "bob"))] == [
        State.HELD,
        State.WAITLISTED,
    ]
