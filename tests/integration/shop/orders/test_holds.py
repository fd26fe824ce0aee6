"""A hold ends once: paid, expired or cancelled; its units go to the next in line, who is told so."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest
from django.db import connection, transaction

from inventory import redis
from inventory.exceptions import NotPayable, RequestNotFound
from inventory.line import reading
from inventory.line.admission import Code
from inventory.records import Record
from inventory.redis import keys
from inventory.states import State
from shop.models import Order, OrderEvent, Payment
from shop.orders import holds
from shop.payments import notices
from shop.payments.providers import Notice
from shop.sales import catalogue, priming
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.query_plans import pages_read
from tests.support.shopkeeping import assert_books_balance, fill_line, let_holds_end, make_sale, pay
from workers.expirer import Expirer
from workers.settlement import Settlement, settle_batch

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Two units, held for as long as a test wants."""
    return make_sale(new_sku(), units=2)


def states(card: SaleCard, names: list[str]) -> list[State]:
    """Return what each request is told."""
    return [place.record.state if place else None for place in reading.places(redis.connect(), card.sku, names)]


def expire(card: SaleCard) -> int:
    """Let one expirer look once."""
    expirer = Expirer(stopping=lambda: False)
    try:
        return expirer.work_once()
    finally:
        expirer.close()


def notice_of(payment: Payment, *, event: str = "e1", amount: Decimal | None = None) -> Notice:
    return Notice(f"{payment.reference}-{event}", "captured", payment.reference, amount or payment.amount, "EUR")


def begin(name: str) -> Payment:
    return notices.begin(Order.objects.get(request_id=name), provider_name="sandbox")


def test_who_comes_when_all_is_held_waits_and_is_told_so(card: SaleCard) -> None:
    names = fill_line(card, buyers=4)
    road.settle_line(card)
    assert states(card, names) == [State.HELD, State.HELD, State.WAITLISTED, State.WAITLISTED]
    assert [place.position for place in reading.places(redis.connect(), card.sku, names)] == [0, 0, 1, 2]
    assert Order.objects.filter(sale_id=card.sale_id).count() == 2
    assert_books_balance(card)


def test_a_hold_that_expires_goes_to_the_head_of_the_line(card: SaleCard) -> None:
    names = fill_line(card, buyers=4)
    road.settle_line(card)
    let_holds_end(names[1])
    assert expire(card) >= 1
    assert expire(card) == 0
    road.settle_line(card)
    assert states(card, names) == [State.HELD, State.EXPIRED, State.HELD, State.WAITLISTED]
    assert_books_balance(card)


def test_when_nothing_can_come_back_the_rest_is_told_sold_out(card: SaleCard) -> None:
    names = fill_line(card, buyers=4)
    road.settle_line(card)
    for name in names[:2]:
        assert notices.take_notice(notice_of(begin(name)), provider_name="sandbox") == "paid"
    road.settle_line(card)
    assert states(card, names) == [State.PAID, State.PAID, State.SOLD_OUT, State.SOLD_OUT]
    assert_books_balance(card)


def test_a_buyer_may_give_a_hold_back_and_leave_the_line(card: SaleCard) -> None:
    names = fill_line(card, buyers=5)
    road.settle_line(card)
    assert holds.cancel(names[0], buyer="buyer-0000000") is State.CANCELLED
    assert holds.cancel(names[0], buyer="buyer-0000000") is State.CANCELLED
    assert holds.cancel(names[2], buyer="buyer-0000002") is State.CANCELLED
    with pytest.raises(RequestNotFound):
        holds.cancel(names[3], buyer="somebody else")
    road.settle_line(card)
    want = [State.CANCELLED, State.HELD, State.CANCELLED, State.HELD, State.WAITLISTED]
    assert states(card, names) == want
    assert_books_balance(card)


def test_a_late_payment_takes_the_unit_again_when_it_is_free(card: SaleCard) -> None:
    names = fill_line(card, buyers=2)
    road.settle_line(card)
    payment = begin(names[0])
    let_holds_end(names[0])
    expire(card)
    assert notices.take_notice(notice_of(payment), provider_name="sandbox") == "paid"
    assert states(card, names) == [State.PAID, State.HELD]
    assert notices.take_notice(notice_of(payment, event="e2"), provider_name="sandbox") == "nothing to change"
    assert_books_balance(card)


def test_every_change_leaves_one_row_of_history(card: SaleCard) -> None:
    names = fill_line(card, buyers=1)
    road.settle_line(card)
    let_holds_end(names[0])
    expire(card)
    events = OrderEvent.objects.filter(order__request_id=names[0])
    assert [(event.from_state, event.to_state, event.actor) for event in events] == [
        ("queued", "held", "settler"),
        ("held", "expired", "expirer"),
    ]


def test_what_is_paid_cannot_be_cancelled(card: SaleCard) -> None:
    (name,) = fill_line(card, buyers=1)
    road.settle_line(card)
    notices.take_notice(notice_of(begin(name)), provider_name="sandbox")
    with pytest.raises(NotPayable):
        holds.cancel(name, buyer="buyer-0000000")
    with transaction.atomic(), connection.cursor() as cursor:
        let_holds_end(name)
        assert holds.expire_due(cursor, sku=card.sku, request_ids=[name]).changed == []
    assert_books_balance(card)


def test_a_hold_is_ended_by_the_clock_of_the_database_alone(card: SaleCard) -> None:
    names = fill_line(card, buyers=2)
    road.settle_line(card)
    let_holds_end(names[0])
    road.forget(card)
    assert expire(card) >= 1
    priming.prime_card(card)
    assert states(card, names) == [State.EXPIRED, State.HELD]
    assert_books_balance(card)


@pytest.mark.parametrize("late_seconds", [1, 3600])
def test_a_hold_that_should_have_ended_long_ago_is_found_by_the_whole_sweep(card: SaleCard, late_seconds: int) -> None:
    """The control is a sweep of what ended lately: it finds the one and not the other."""
    (name,) = fill_line(card, buyers=1)
    road.settle_line(card)
    let_holds_end(name, seconds_ago=late_seconds)
    with connection.cursor() as cursor:
        lately = holds.find_due(cursor, limit=9, ended_within_seconds=60)
        assert (name in lately.get(card.sku, [])) is (late_seconds < 60)
    assert expire(card) >= 1
    assert states(card, [name]) == [State.EXPIRED]


def test_what_does_not_end_is_named_in_the_log(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = fill_line(card, buyers=1)
    road.settle_line(card)
    let_holds_end(*names)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as broken:
        broken.setattr(holds, "expire_due", fail)
        expire(card)
    lines = [record.msg for record in caplog.records if record.name == "workers.expirer"]
    found = [(line["action"], line["requests"]) for line in lines if line.get("sku") == card.sku]
    assert found == [("expire_failed", names)]
    assert expire(card) >= 1


@pytest.fixture
def expirer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Expirer]:
    """Return an expirer that finds 10 holds in a round."""
    monkeypatch.setattr("workers.expirer.MAX_A_ROUND", 10)
    monkeypatch.setattr("workers.expirer.WHOLE_SWEEP_SECONDS", 3600.0)  # however slow the machine is
    worker = Expirer(stopping=lambda: False)
    yield worker
    worker.close()


def test_a_backlog_of_old_holds_ends_in_one_full_round_after_the_other(
    new_sku: Callable[[], str], expirer: Expirer
) -> None:
    """The control is the next old hold: after a round that was not full, the next ones look at the last minute only."""
    card = make_sale(new_sku(), units=36)
    names = fill_line(card, buyers=36)
    road.settle_line(card)
    let_holds_end(*names[:35], seconds_ago=61)
    assert [expirer.work_once() for _ in range(4)] == [10, 10, 10, 5]
    assert_books_balance(card)
    let_holds_end(names[35], seconds_ago=61)
    assert expirer.work_once() == 0


def test_skus_whose_holds_cannot_be_ended_keep_no_other_waiting(
    new_sku: Callable[[], str], expirer: Expirer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two fills a round. The control is the round after the others had their turn: it tries them again."""
    bad, worse, good = (make_sale(new_sku(), units=10) for _ in range(3))
    names = {card.sku: fill_line(card, buyers=10 if card != good else 2) for card in (bad, worse, good)}
    for card, seconds_ago in ((bad, 300), (worse, 200), (good, 61)):
        road.settle_line(card)
        let_holds_end(*names[card.sku], seconds_ago=seconds_ago)
    expire_due, broken = holds.expire_due, {bad.sku, worse.sku}

    def failing(cursor: Any, *, sku: str, request_ids: Sequence[str]) -> holds.Changes:
        if sku in broken:
            raise RuntimeError("a fault of this SKU")
        return expire_due(cursor, sku=sku, request_ids=request_ids)

    monkeypatch.setattr(holds, "expire_due", failing)
    assert [expirer.work_once() for _ in range(3)] == [0, 0, 2]
    broken.clear()
    monkeypatch.setattr("workers.expirer.WHOLE_SWEEP_SECONDS", 0)
    assert [expirer.work_once() for _ in range(3)] == [10, 10, 0]


@pytest.mark.parametrize("again_seconds", [0.0, 3600.0], ids=["as it is, at once", "the control: with the next sweep"])
def test_holds_that_could_not_be_ended_are_looked_for_again_soon(
    card: SaleCard, expirer: Expirer, again_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ended longer ago than most rounds look back: nobody could end them for minutes."""
    monkeypatch.setattr("workers.expirer.AGAIN_SECONDS", again_seconds)
    names = fill_line(card, buyers=2)
    road.settle_line(card)
    let_holds_end(*names, seconds_ago=300)
    with monkeypatch.context() as busy:
        busy.setattr(holds, "expire_due", Mock(side_effect=psycopg.errors.LockNotAvailable("the row is locked")))
        assert expirer.work_once() == 0
    assert expirer.work_once() == (2 if again_seconds == 0 else 0)
    expire(card)


def test_ended_holds_cost_the_sweep_nothing_before_a_vacuum(card: SaleCard) -> None:
    """The control is the whole sweep, which passes the entries of all holds that have ended."""
    count = 40_000
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shop_order SET (autovacuum_enabled = off)")
        try:
            make_ended_holds(cursor, card, count=count)
            recent = blocks_read(cursor, ended_within_seconds=60)
            whole = blocks_read(cursor, ended_within_seconds=holds.EVER_SECONDS)
        finally:
            cursor.execute("ALTER TABLE shop_order RESET (autovacuum_enabled)")
        # What other tests have left is read in both. Entries that a look has marked as dead cost no heap block.
        assert whole > recent + 200


def make_ended_holds(cursor: Any, card: SaleCard, *, count: int) -> None:
    """Write so many holds that lapsed an hour ago or earlier, so that their index entries are dead, not vacuumed."""
    cursor.execute(
        """INSERT INTO shop_order (request_id, sale_id, buyer, quantity, buyer_limit, seq, state, reason, unit_price,
                                   currency, hold_expires_at)
           SELECT 'ended-' || n, %s, 'ended-' || n, 1, 1, n, 'held', '', 1, 'EUR', now() - n * interval '1 second'
           FROM generate_series(3600, 3600 + %s) n""",
        [card.sale_id, count],
    )
    cursor.execute("UPDATE shop_order SET state = 'expired' WHERE request_id LIKE 'ended-%%'")


def blocks_read(cursor: Any, *, ended_within_seconds: int) -> int:
    """Return how many blocks PostgreSQL looks at in one sweep."""
    values = {"without": "{}", "limit": 10, "seconds": ended_within_seconds}
    cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + holds.DUE, values)
    ((plan,),) = cursor.fetchall()
    (plan,) = json.loads(plan) if isinstance(plan, str) else plan
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


def test_the_first_end_of_a_sales_holds_is_found_without_those_of_other_sales(
    card: SaleCard, new_sku: Callable[[], str]
) -> None:
    """Every web process looks once a second, however many units another sale holds."""
    fill_line(card, buyers=1)
    road.settle_line(card)
    other = make_sale(new_sku(), units=1)

    look = catalogue._sales().filter(pk=card.sale_id)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO shop_order (request_id, sale_id, buyer, quantity, buyer_limit, seq, state, reason,
                                       unit_price, currency, hold_expires_at)
               SELECT 'other-' || n, %s, 'other-' || n, 1, 1, n, 'held', '', 1, 'EUR', now()
               FROM generate_series(1, 20000) n""",
            [other.sale_id],
        )
        cursor.execute("ANALYZE shop_order")
        by_index = pages_read(look)
        # The control: by the index of all holds, those of the other sale are passed first.
        cursor.execute("DROP INDEX order_held_by_sale_and_end")
        cursor.execute("DROP INDEX order_by_sale_and_buyer")
        assert pages_read(look) > 200 + by_index
        transaction.set_rollback(True)


def test_when_the_head_of_the_line_leaves_the_next_is_looked_at_at_once(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=3, limit=2)
    road.admit(card, road.ask(card, "ann", quantity=2))
    big, small = road.ask(card, "bob", quantity=2), road.ask(card, "eve")
    road.admit(card, big, small)
    road.settle_line(card)
    assert states(card, [big.request_id, small.request_id]) == [State.WAITLISTED, State.WAITLISTED]
    holds.cancel(big.request_id, buyer="bob")
    road.settle_line(card)
    assert states(card, [big.request_id, small.request_id]) == [State.CANCELLED, State.HELD]
    assert_books_balance(card)


@pytest.fixture
def hand_outs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return how many requests of each SKU are brought to settlement from now on."""
    sizes: Counter[str] = Counter()

    def counted(*args: Any, sku: str, requests: Sequence[tuple[str, Record]], **named: Any) -> Settlement:
        sizes[sku] += len(requests)
        return settle_batch(*args, sku=sku, requests=requests, **named)

    monkeypatch.setattr("workers.settler.settle_batch", counted)
    monkeypatch.setattr("workers.settler.PROBE_SECONDS", 3600.0)  # however slow the machine is
    return sizes


def test_a_payment_makes_nobody_read_the_line_that_waits(new_sku: Callable[[], str], hand_outs: Counter[str]) -> None:
    """A hundred changes for 900 who wait. The control is one unit that comes back: its buyer alone is read."""
    card = make_sale(new_sku(), units=150, line_capacity=900)
    names = fill_line(card, buyers=1050)
    with road.settler() as settler:
        settler.work_once()
        assert (hand_outs[card.sku], reading.look_for_work(redis.connect())[card.sku]) == (150, reading.Work.WAITS)
        for name in names[:50]:
            pay(name)
            settler.work_once()
        assert hand_outs[card.sku] == 150
        for number in range(50, 100):
            holds.cancel(names[number], buyer=f"buyer-{number:07d}")
            settler.work_once()
    assert hand_outs[card.sku] == 200
    assert Order.objects.filter(sale_id=card.sale_id, state="held").count() == 100
    assert_books_balance(card)


def test_a_line_that_was_told_nothing_is_probed(
    card: SaleCard, hand_outs: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit came back, and the message was lost. The control is a settler that looks before it is time to probe."""
    names = fill_line(card, buyers=3)
    road.settle_line(card)
    monkeypatch.setattr(holds, "publish", lambda _changes: None)
    holds.cancel(names[0], buyer="buyer-0000000")
    with road.settler() as settler:
        settler.work_once()
        assert (states(card, names[2:]), hand_outs[card.sku]) == ([State.WAITLISTED], 0)
    monkeypatch.setattr("workers.settler.PROBE_SECONDS", 0)
    with road.settler() as settler:
        for _ in range(20):  # a round probes some of the lines that wait
            settler.work_once()
    assert states(card, names[2:]) == [State.HELD]
    assert hand_outs[card.sku] == 1


def test_a_head_that_the_database_does_not_decide_is_left_alone_for_a_while(
    card: SaleCard, hand_outs: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis thinks that a unit is free. The control is a settler without a rest: it asks again and again."""
    fill_line(card, buyers=3)
    road.settle_line(card)
    wrong = [("HSET", keys.stock(card.sku), "available", 1, "held", 1, "version", 1)]
    with road.settler() as settler:
        monkeypatch.setattr("workers.settler.UNDECIDED_SECONDS", 3600)
        for _ in range(3):
            road.run(*wrong)
            settler.work_once()
        assert hand_outs[card.sku] == 1
        for _ in range(3):
            settler._rests_until.clear()
            road.run(*wrong)
            settler.work_once()
    assert hand_outs[card.sku] == 4
    assert_books_balance(card)


def test_who_was_told_waitlisted_is_not_told_queued_again(new_sku: Callable[[], str]) -> None:
    """A big request at the head waits; when it leaves or fits, those after it are still waitlisted."""
    card = make_sale(new_sku(), units=3, limit=3)
    road.admit(card, road.ask(card, "ann", quantity=2))
    road.settle_line(card)
    asked = [road.ask(card, "bob", quantity=2), road.ask(card, "eve"), road.ask(card, "joe")]
    road.admit(card, *asked)
    told = lambda: states(card, [each.request_id for each in asked])  # noqa: E731
    assert told() == [State.WAITLISTED] * 3
    holds.cancel(asked[0].request_id, buyer="bob")
    assert told() == [State.CANCELLED, State.WAITLISTED, State.WAITLISTED]
    assert [each.code for each in road.admit(card, *asked[1:])] == [Code.KNOWN_BEFORE + ord("w")] * 2
    (late,) = road.admit(card, road.ask(card, "late"))
    assert late.code == Code.ADMITTED
    road.settle_line(card)
    assert told() == [State.CANCELLED, State.HELD, State.WAITLISTED]
    assert_books_balance(card)
