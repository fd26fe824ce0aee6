"""A unit that comes back after "sold out" goes to those on standby: after those who wait, before anybody new.
Real servers; a SKU of its own each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inventory import redis
from inventory.audit import line as audit_line
from inventory.audit.run import TAKE_OVER_MS
from inventory.line import admission, reading, writing
from inventory.line.admission import Code
from inventory.queues.checks import check_line
from inventory.records import Ticket, sign_ticket
from inventory.redis import keys
from inventory.states import State
from loadtest.mutants.guards import GUARDS
from shop.buyers import ticket_signer
from shop.models import Order
from shop.orders import holds
from shop.orders.restoring import restore
from shop.payments import refunds
from shop.sales import priming
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support import road
from tests.support.shopkeeping import assert_books_balance, audit_of, close_sale, let_holds_end, make_sale, pay, rewrite
from tests.support.waiting import wait_until
from workers.expirer import Expirer
from workers.management.commands.reconcile import run

pytestmark = pytest.mark.usefixtures("shop_database")
# What lets nobody new in while somebody is on standby.
NOBODY_NEW = GUARDS["standby"].process[0]


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """A sale of two units that ann and bob have paid for; three a buyer, as many wait as there are units."""
    made = make_sale(new_sku(), units=2, limit=3, line_capacity=0)
    pay(*hold(made, "ann", "bob"))
    return made


def hold(card: SaleCard, *buyers: str) -> list[str]:
    names = road.queue(card, *buyers)
    road.settle_line(card)
    assert told(card, *names) == [State.HELD] * len(names)
    return names


def stand_by(card: SaleCard, *buyers: str, quantity: int = 1) -> list[str]:
    """Let each of `buyers` ask for standby and get it; return the request ids."""
    asks = [road.ask(card, buyer, quantity=quantity, standby=True) for buyer in buyers]
    assert {answer.code for answer in road.admit(card, *asks)} == {Code.ON_STANDBY}
    return [each.request_id for each in asks]


def told(card: SaleCard, *names: str) -> list[State | None]:
    found = reading.places(redis.connect(), card.sku, names)
    return [place.record.state if place else None for place in found]


def positions(card: SaleCard, *names: str) -> list[int]:
    return [place.position if place else -1 for place in reading.places(redis.connect(), card.sku, names)]


def code_of(card: SaleCard, buyer: str, **wish: Any) -> int:
    return road.admit(card, road.ask(card, buyer, **wish))[0].code


def refund(card: SaleCard, buyer: str) -> None:
    """Give back what `buyer` has paid for."""
    refunds.refund_order(road.ask(card, buyer).request_id, actor="olga", reason="asked for")


def expire(name: str) -> None:
    let_holds_end(name)
    expirer = Expirer(stopping=lambda: False)
    expirer.work_once()
    expirer.close()


def come_back(card: SaleCard, how: str) -> None:
    """Let one unit come back."""
    if how == "refund":
        refund(card, "ann")
    elif how == "restock":
        sale_control.restock(card.slug, units=1, actor="olga")
    else:
        name = Order.objects.get(sale_id=card.sale_id, state="held").request_id
        expire(name) if how == "expiry" else holds.cancel(name, buyer="bob")


@pytest.mark.parametrize("how", ["refund", "restock", "expiry", "cancel"])
def test_a_unit_that_comes_back_goes_to_the_first_on_standby(new_sku: Callable[[], str], how: str) -> None:
    card = make_sale(new_sku(), units=2, line_capacity=0)
    mine, others = hold(card, "ann", "bob")
    pay(mine, *([] if how in ("expiry", "cancel") else [others]))
    names = stand_by(card, "eve", "joe")
    assert told(card, *names) == [State.STANDBY] * 2
    assert positions(card, *names) == [1, 2]
    road.settle_line(card)
    assert told(card, *names) == [State.STANDBY] * 2  # the control: nothing has come back
    come_back(card, how)
    road.settle_line(card)
    assert told(card, *names) == [State.HELD, State.STANDBY]
    assert Order.objects.get(request_id=names[0]).standby
    assert_books_balance(card)


def test_a_settler_sees_it_by_itself(card: SaleCard) -> None:
    (name,) = stand_by(card, "eve")
    assert reading.look_for_work(redis.connect())[card.sku] is reading.Work.WAITS
    refund(card, "ann")
    assert reading.look_for_work(redis.connect())[card.sku] is reading.Work.READY
    with road.settler() as settler:
        wait_until(lambda: settler.work_once() >= 0 and told(card, name) == [State.HELD])
    assert_books_balance(card)


def test_those_who_wait_come_first(card: SaleCard) -> None:
    """dan waits for a unit that is held; the line is full then, and eve stands by."""
    sale_control.restock(card.slug, units=1, actor="olga")
    (held,) = hold(card, "cat")
    (waits,) = road.queue(card, "dan")
    (stands_by,) = stand_by(card, "eve")
    assert told(card, waits, stands_by) == [State.WAITLISTED, State.STANDBY]
    assert positions(card, waits, stands_by) == [1, 2]
    holds.cancel(held, buyer="cat")
    road.settle_line(card)
    assert told(card, waits, stands_by) == [State.HELD, State.STANDBY]
    holds.cancel(waits, buyer="dan")
    road.settle_line(card)
    assert told(card, stands_by) == [State.HELD]
    assert_books_balance(card)


def test_who_waits_in_vain_is_told_so_while_others_stand_by(card: SaleCard) -> None:
    sale_control.restock(card.slug, units=1, actor="olga")
    (held,) = hold(card, "cat")
    (waits,) = road.queue(card, "dan")
    (stands_by,) = stand_by(card, "eve")
    pay(held)
    road.settle_line(card)
    assert told(card, waits, stands_by) == [State.SOLD_OUT, State.STANDBY]
    assert_books_balance(card)


def test_nobody_new_is_let_in_before_them(card: SaleCard) -> None:
    (name,) = stand_by(card, "eve")
    assert code_of(card, "new") == Code.SOLD_OUT
    refund(card, "ann")
    assert code_of(card, "new") == Code.LINE_FULL
    assert code_of(card, "later", standby=True) == Code.ON_STANDBY
    road.settle_line(card)
    assert told(card, name, road.ask(card, "later").request_id) == [State.HELD, State.STANDBY]
    assert_books_balance(card)


def test_without_that_rule_somebody_new_gets_a_place_before_them(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the place that is told to those on standby falls back. Their turn does not: it goes by seq."""
    NOBODY_NEW.take_away(monkeypatch.setattr)
    (name,) = stand_by(card, "eve")
    sale_control.restock(card.slug, units=2, actor="olga")
    (new,) = road.queue(card, "new")
    assert positions(card, new, name) == [1, 2]
    road.settle_line(card, batch=1)
    orders = Order.objects.filter(sale_id=card.sale_id, state="held").order_by("id")
    assert [order.request_id for order in orders] == [name, new]


def test_a_unit_is_open_to_anybody_when_nobody_stands_by_any_more(card: SaleCard) -> None:
    (name,) = stand_by(card, "eve")
    sale_control.restock(card.slug, units=2, actor="olga")
    road.settle_line(card)
    assert told(card, name) == [State.HELD]
    assert told(card, *hold(card, "new")) == [State.HELD]
    assert_books_balance(card)


def test_one_for_whom_it_is_too_little_is_passed_over_and_keeps_the_place(card: SaleCard) -> None:
    (two,) = stand_by(card, "eve", quantity=2)
    (one, last) = stand_by(card, "joe", "kim")
    refund(card, "ann")
    road.settle_line(card)
    assert told(card, two, one, last) == [State.STANDBY, State.HELD, State.STANDBY]
    assert positions(card, two, last) == [1, 2]
    sale_control.restock(card.slug, units=3, actor="olga")
    road.settle_line(card)
    assert told(card, two, one, last) == [State.HELD] * 3
    assert_books_balance(card)


def test_nobody_on_standby_keeps_a_unit_from_one_who_takes_fewer(card: SaleCard) -> None:
    """New ones get it on standby, for which they need not wait."""
    stand_by(card, "eve", quantity=3)
    refund(card, "ann")
    (name,) = stand_by(card, "new")
    road.settle_line(card)
    assert told(card, name) == [State.HELD]
    assert_books_balance(card)


def test_who_asks_for_standby_while_there_is_room_just_waits_in_line(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    assert code_of(card, "ann", standby=True) == Code.ADMITTED
    assert code_of(card, "ann") == Code.KNOWN_BEFORE + ord("q")


def test_the_same_ask_again_is_told_its_place(card: SaleCard) -> None:
    (first,) = road.admit(card, road.ask(card, "eve", standby=True))
    before = road.snapshot(card)
    for standby in (True, False):
        (again,) = road.admit(card, road.ask(card, "eve", standby=standby))
        assert again == first._replace(code=Code.KNOWN_BEFORE + ord("b"))
    twice = road.ask(card, "joe", standby=True)
    before_last, last = road.admit(card, twice, twice)
    assert last == before_last._replace(code=Code.KNOWN_BEFORE + ord("b"))
    holds.cancel(twice.request_id, buyer="joe")
    assert road.snapshot(card)[keys.line(card.sku)] == before[keys.line(card.sku)]
    assert_books_balance(card)


def test_the_limit_counts_them(card: SaleCard) -> None:
    assert code_of(card, "ann", quantity=3, key="more", standby=True) == Code.LIMIT_REACHED  # she has paid for one
    assert code_of(card, "ann", quantity=2, key="more", standby=True) == Code.ON_STANDBY
    assert code_of(card, "ann", key="yet more", standby=True) == Code.LIMIT_REACHED


def test_standby_has_an_end(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_STANDBY", 2)
    stand_by(card, "eve", "joe")
    assert code_of(card, "kim", standby=True) == Code.LINE_FULL
    holds.cancel(road.ask(card, "eve").request_id, buyer="eve")
    stand_by(card, "kim")


@pytest.mark.parametrize("free", [0, 1])
def test_when_the_sale_closes_each_is_told_its_end(card: SaleCard, free: int) -> None:
    names = stand_by(card, "eve", "joe")
    if free:
        refund(card, "ann")
    close_sale(card)
    road.settle_line(card)
    assert told(card, *names) == [State.HELD if free else State.SOLD_OUT, State.SOLD_OUT]
    assert assert_books_balance(card)["waiting"] == 0


def test_a_pause_keeps_them_where_they_are(card: SaleCard) -> None:
    names = stand_by(card, "eve")
    sale_control.pause(card.slug, actor="olga", reason="a count")
    refund(card, "ann")
    road.settle_line(card)
    assert told(card, *names) == [State.STANDBY]
    sale_control.resume(card.slug, actor="olga")
    road.settle_line(card)
    assert told(card, *names) == [State.HELD]
    assert_books_balance(card)


def test_who_leaves_standby_is_decided(card: SaleCard) -> None:
    eve, joe = stand_by(card, "eve", "joe")
    assert holds.cancel(eve, buyer="eve") is State.CANCELLED
    refund(card, "ann")
    road.settle_line(card)
    assert told(card, eve, joe) == [State.CANCELLED, State.HELD]
    assert_books_balance(card)


def ticket_of(card: SaleCard, buyer: str) -> str:
    (place,) = reading.places(redis.connect(), card.sku, [road.ask(card, buyer).request_id])
    assert place is not None
    record = place.record
    on_standby = record.state is State.STANDBY
    name = road.ask(card, buyer).request_id
    return sign_ticket(
        ticket_signer(),
        Ticket(name, buyer, record.quantity, record.seq, record.terms_version, record.ordinal, on_standby),
    )


def test_tickets_bring_them_back_after_a_loss_and_before_who_came_meanwhile(card: SaleCard) -> None:
    """A newcomer of the time between is in line as one who waits, and comes after them all the same."""
    names = stand_by(card, "eve", "joe")
    tickets = {buyer: ticket_of(card, buyer) for buyer in ("eve", "joe")}
    refund(card, "ann")
    road.forget(card)
    priming.prime_sale(card.slug)
    (new,) = road.queue(card, "new")
    for buyer in ("joe", "eve"):
        view, lost = restore(tickets[buyer], buyer=buyer)
        assert (view.state, lost) == (State.STANDBY, True)
        assert restore(tickets[buyer], buyer=buyer)[1] is False
    assert check_line(redis.connect(), card.sku) == []
    assert run(sale=card.slug, repair=False)["drifts"] == []
    road.settle_line(card)
    assert told(card, *names, new) == [State.HELD, State.STANDBY, State.WAITLISTED]
    assert_books_balance(card)


def test_a_ticket_without_its_mark_would_bring_back_one_who_is_sent_away(card: SaleCard) -> None:
    """The control of the test before: brought back as one who waits, eve is told sold out."""
    (name,) = stand_by(card, "eve")
    ticket = sign_ticket(ticket_signer(), Ticket(name, "eve", 1, 10**15))
    road.forget(card)
    priming.prime_sale(card.slug)
    restore(ticket, buyer="eve")
    road.settle_line(card)
    assert told(card, name) == [State.SOLD_OUT]


def test_a_batch_that_its_holder_left_is_inherited(card: SaleCard) -> None:
    names = stand_by(card, "eve", "joe")
    refund(card, "ann")
    lock = road.held_lock(card.sku)
    assert [name for name, _ in road.take(lock).requests] == names[:1]
    lock.release()
    assert code_of(card, "new") == Code.LINE_FULL
    assert code_of(card, "later", standby=True) == Code.ON_STANDBY
    road.settle_line(card)
    assert told(card, *names) == [State.HELD, State.STANDBY]
    assert_books_balance(card)


def test_one_that_redis_thought_would_fit_goes_back_to_its_own_place(card: SaleCard) -> None:
    names = stand_by(card, "eve", "joe")
    before = road.run(("ZRANGE", keys.line(card.sku), 0, -1, "WITHSCORES"))
    road.run(("HSET", keys.stock(card.sku), "available", 1))
    road.settle_line(card)
    assert road.run(("ZRANGE", keys.line(card.sku), 0, -1, "WITHSCORES")) == before
    assert told(card, *names) == [State.STANDBY] * 2
    assert check_line(redis.connect(), card.sku) == []
    assert_books_balance(card)


def test_one_that_is_in_no_place_is_put_back_by_the_reconciler(card: SaleCard) -> None:
    names = stand_by(card, "eve", "joe")
    before = road.run(("ZRANGE", keys.line(card.sku), 0, -1, "WITHSCORES"))
    road.run(("ZREM", keys.line(card.sku), names[0]))
    assert writing.requeue(redis.connect(), card.sku, names[:1]) == 1
    assert road.run(("ZRANGE", keys.line(card.sku), 0, -1, "WITHSCORES")) == before


def broken(card: SaleCard) -> dict[str, str]:
    return {each["id"]: each["detail"] for each in audit_of(card)["invariants"] if not each["ok"]}


@pytest.mark.parametrize("passed_by", ["standby", "newcomer"])
def test_the_audit_names_one_on_standby_who_was_passed(card: SaleCard, passed_by: str) -> None:
    first, second = stand_by(card, "eve", "joe")
    sale_control.restock(card.slug, units=2, actor="olga")
    road.settle_line(card)
    assert broken(card) == {}
    seq = Order.objects.get(request_id=second).seq
    rewrite(first, seq=seq + 1, standby=passed_by == "standby")
    assert set(broken(card)) == {"I8"}
    rewrite(first, seq=seq - 1)
    assert broken(card) == {}


def test_the_audit_names_one_who_waited_and_was_passed_by_standby(card: SaleCard) -> None:
    sale_control.restock(card.slug, units=2, actor="olga")
    (waited,) = hold(card, "dan")
    (stood_by,) = hold(card, "eve")
    rewrite(waited, standby=True)
    assert broken(card) == {}
    rewrite(waited, seq=Order.objects.get(request_id=stood_by).seq + 1)
    assert set(broken(card)) == {"I8"}


def test_the_audit_names_one_on_standby_for_whom_a_unit_is_free(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the first on standby wants more. One who waits for what may never come is in order."""
    stand_by(card, "eve", quantity=3)
    stand_by(card, "joe")
    monkeypatch.setattr("inventory.audit.run.TAKE_OVER_MS", -3_600_000)
    assert TAKE_OVER_MS > 0
    assert broken(card) == {}
    refund(card, "ann")
    assert "I21" in broken(card)
    road.settle_line(card)
    assert broken(card) == {}


def test_the_audit_names_one_on_standby_whose_sale_is_over(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_by(card, "eve")
    monkeypatch.setattr("inventory.audit.run.TAKE_OVER_MS", -3_600_000)
    assert broken(card) == {}
    close_sale(card)
    assert "its sale is over" in broken(card)["I21"]


def test_one_that_waits_is_not_counted_as_waitlisted(card: SaleCard) -> None:
    stand_by(card, "eve")
    look = audit_line.look(redis.connect(), card.sku)
    assert (look.waiting, look.waitlisted, look.queued) == (1, 0, 1)
