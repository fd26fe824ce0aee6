"""A sale that is over and settled is retired: Redis forgets it, and the database answers for it, page by page.
Uses the real servers; its controls show what would happen without each guard.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from itertools import count
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.test.utils import override_settings
from django.utils import timezone

from inventory import redis
from inventory.exceptions import (
    IdempotencyMismatch,
    InvalidRequest,
    RequestNotFound,
    SaleClosed,
    SaleNotPrimed,
)
from inventory.line import forgetting, priming, reading
from inventory.line.admission import Code
from inventory.locks.lock import Lock
from inventory.models import Stock
from inventory.records import Ticket, sign_ticket
from inventory.redis import keys
from inventory.states import State
from shop.buyers import ticket_signer
from shop.models import Order, Payment, Sale, StaffAct
from shop.orders import holds, requests, restoring
from shop.payments import notices, refunds
from shop.sales import catalogue
from shop.sales.audit import audit_sale
from shop.sales.catalogue import SaleCard
from shop.staff import line_actions, retiring, sale_control
from tests.support import road
from tests.support.shopkeeping import (
    assert_books_balance,
    close_sale,
    fill_line,
    let_holds_end,
    make_sale,
    pay,
    pay_all,
)
from tests.support.staff import browser_of
from workers.reconciler.loop import Reconciler
from workers.reconciler.retirement import Retirement

pytestmark = pytest.mark.usefixtures("shop_database")

PAST = timedelta(days=2)


def over(card: SaleCard) -> SaleCard:
    """Let a sale have ended two days ago; return it as it is now."""
    now = timezone.now()
    Sale.objects.filter(pk=card.sale_id).update(opens_at=now - PAST - timedelta(hours=1), closes_at=now - PAST)
    catalogue.prime_sale(card.slug)
    return catalogue.find_sale(card.slug)


def sold(sku: str, *, units: int = 3, buyers: int = 5) -> SaleCard:
    """Return a sale that is over: some paid, the others were told sold out."""
    card = make_sale(sku, units=units)
    fill_line(card, buyers=buyers)
    road.settle_line(card)
    pay_all(card)
    road.settle_line(card)
    return over(card)


def next_sale(card: SaleCard, *, opens_in: timedelta = timedelta(seconds=-5)) -> SaleCard:
    """Make another sale of the same SKU, and put it into Redis."""
    now = timezone.now()
    first = Sale.objects.get(pk=card.sale_id)
    sale = Sale.objects.create(
        slug=f"{card.slug}-again", product=first.product, stock=first.stock, title="Again", price=first.price,
        opens_at=now + opens_in, closes_at=now + opens_in + timedelta(hours=1),
    )  # fmt: skip
    catalogue.prime_sale(sale.slug)
    return catalogue.find_sale(sale.slug)


def keys_left(sku: str) -> list[str]:
    """Return every key that Redis has of a SKU, and the lists that name it."""
    client = redis.connect()
    found = list(client.scan_iter(match=f"fd:{{{sku}}}:*", count=10_000))
    return sorted(found) + [name for name in (keys.skus(), keys.lock_names()) if client.sismember(name, sku)]


def command(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command("sale", *arguments, "--actor", "olga", "--json", stdout=out)
    row: dict[str, Any] = json.loads(out.getvalue())
    return row


def reconcile() -> None:
    """Let a reconciler retire and forget whatever is due; other tests have left sales as well."""
    retirement = Retirement(redis.connect(), throttle=lambda: None)
    for _ in range(100):
        retirement.work_once()


def of_retired(card: SaleCard) -> SaleCard:
    return catalogue.find_sale(card.slug)


# who may be retired


def test_an_open_a_scheduled_and_a_paused_sale_are_refused(new_sku: Callable[[], str]) -> None:
    opened, coming = make_sale(new_sku(), units=1), make_sale(new_sku(), units=1, opens_in_seconds=60)
    with pytest.raises(InvalidRequest, match="is open; only a sale that is over"):
        retiring.retire(opened.slug, actor="olga")
    with pytest.raises(InvalidRequest, match="is scheduled; only"):
        retiring.retire(coming.slug, actor="olga")
    sale_control.pause(opened.slug, actor="olga", reason="a fault")
    with pytest.raises(InvalidRequest, match="is paused; only"):
        retiring.retire(opened.slug, actor="olga")
    assert not Sale.objects.filter(slug__in=[opened.slug, coming.slug], retired_at__isnull=False).exists()


def test_a_sale_in_whose_line_somebody_waits_is_refused(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    fill_line(card, buyers=2)
    card = over(card)
    with pytest.raises(InvalidRequest, match="not settled: somebody waits"):
        retiring.retire(card.slug, actor="olga")
    lock = road.held_lock(card.sku)
    assert road.take(lock).requests
    with pytest.raises(InvalidRequest, match="not settled: somebody waits"):
        retiring.retire(card.slug, actor="olga")
    lock.release()


def test_who_waits_far_behind_the_buyers_of_another_sale_keeps_a_sale(new_sku: Callable[[], str]) -> None:
    """Its sale opened a second time, after the other. The control is the same sale when that request is decided."""
    card = over(make_sale(new_sku(), units=2000))
    other = next_sale(card)
    fill_line(other, buyers=1100)
    now = timezone.now()
    Sale.objects.filter(pk=other.sale_id).update(closes_at=now)
    Sale.objects.filter(pk=card.sale_id).update(opens_at=now, closes_at=now + timedelta(hours=1))
    catalogue.prime_sale(card.slug)
    (name,) = fill_line(card, buyers=1, named="late")
    card = over(card)
    with pytest.raises(InvalidRequest, match="waits in line"):
        retiring.retire(card.slug, actor="olga")
    road.settle_line(card)
    pay(name)
    retiring.retire(card.slug, actor="olga")
    assert of_retired(card).retired_at is not None


def test_an_undecided_dead_letter_keeps_a_sale_until_staff_discard_it(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = fill_line(card, buyers=1)
    card = over(card)
    road.run(
        ("ZREM", keys.line(card.sku), name),
        ("ZADD", keys.dead_letters(card.sku), 1, name),
        ("ZADD", keys.aside(card.sku), 1, name),
        ("HSET", keys.stock(card.sku), "queued", 0),
    )
    with pytest.raises(InvalidRequest, match="undecided dead letter"):
        retiring.retire(card.slug, actor="olga")
    line_actions.change_letters(card.sku, [name], mode="discard", actor="olga")
    assert retiring.retire(card.slug, actor="olga") == "retired"


@pytest.mark.parametrize("is_looked_at_again", [True, False])
def test_a_request_given_up_between_two_looks_keeps_a_sale(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, is_looked_at_again: bool
) -> None:
    """It goes from flight to the dead letters while the line is read. The control has no second look at the letters."""
    card, looks = make_sale(new_sku(), units=1), count(1)
    (name,) = fill_line(card, buyers=1)
    lock = road.held_lock(card.sku)
    road.take(lock)
    lock.release()
    members_of, has_dead_letter = forgetting._members_of, forgetting._has_dead_letter

    def give_up_meanwhile(client: redis.Client, key: str, sale_id: int) -> Iterator[list[str]]:
        if key == keys.line(card.sku):
            road.run(("ZREM", keys.in_flight(card.sku), name), ("ZADD", keys.dead_letters(card.sku), 1, name))
        return members_of(client, key, sale_id)

    def look_once(*look: Any) -> bool:
        return (is_looked_at_again or next(looks) == 1) and has_dead_letter(*look)

    monkeypatch.setattr(forgetting, "_members_of", give_up_meanwhile)
    monkeypatch.setattr(forgetting, "_has_dead_letter", look_once)
    assert forgetting.has_waiting(redis.connect(), card.sku, sale_id=card.sale_id) is is_looked_at_again


def test_a_held_order_keeps_a_sale_until_it_ends(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = fill_line(card, buyers=1)
    road.settle_line(card)
    card = over(card)
    with pytest.raises(InvalidRequest, match="not settled: an order is held"):
        retiring.retire(card.slug, actor="olga")
    pay(name)
    assert retiring.retire(card.slug, actor="olga") == "retired"


@pytest.mark.parametrize(
    ("state", "age", "why"),
    [
        (Payment.State.PENDING, timedelta(hours=1), "a payment is under way"),
        (Payment.State.REFUND_DUE, timedelta(days=9), "a refund is due"),
        (Payment.State.PENDING, timedelta(days=2), ""),
        (Payment.State.DECLINED, timedelta(hours=1), ""),
    ],
)
def test_money_that_is_on_its_way_keeps_a_sale(
    new_sku: Callable[[], str], state: str, age: timedelta, why: str
) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = fill_line(card, buyers=1)
    road.settle_line(card)
    payment = notices.begin(Order.objects.get(request_id=name), provider_name="sandbox")
    holds.cancel(name, buyer=Order.objects.get(request_id=name).buyer)
    Payment.objects.filter(pk=payment.pk).update(state=state, created_at=timezone.now() - age)
    card = over(card)
    assert retiring.unsettled(Sale.objects.get(pk=card.sale_id)) == why
    Payment.objects.filter(pk=payment.pk).update(state=Payment.State.DECLINED)  # nothing for the reconciler to mend


def test_the_command_says_why_and_fails(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    with pytest.raises(CommandError, match="is open; only a sale that is over can be retired") as refused:
        command("retire", card.slug)
    assert refused.value.returncode == 1
    close_sale(card)
    assert command("retire", card.slug)["retired_at"]
    assert StaffAct.objects.filter(sale_id=card.sale_id, act="retire", actor="olga").count() == 1
    with pytest.raises(CommandError, match="retired already"):
        command("retire", card.slug)


def test_the_control_room_asks_why_and_answers_409(new_sku: Callable[[], str]) -> None:
    card, browser = make_sale(new_sku(), units=1), browser_of("manager")
    act = f"/admin/shop/sale/{card.sale_id}/room/retire/"
    wish = {"reason": "the season is over", "seen_act": "0"}
    refused = browser.post(act, wish)
    assert (refused.status_code, "only a sale that is over" in refused.content.decode()) == (409, True)
    over(card)
    assert browser.post(act, wish).status_code == 302
    (done,) = StaffAct.objects.filter(sale_id=card.sale_id)
    assert (done.act, done.reason) == ("retire", "the season is over")
    room = browser.get(f"/admin/shop/sale/{card.sale_id}/room/").content.decode()
    assert "The sale is retired." in room
    assert "/room/retire/" not in room
    assert browser_of("operator").get(act).status_code == 403


def test_nothing_about_a_retired_sale_can_be_changed(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    close_sale(card)
    retiring.retire(card.slug, actor="olga")
    for act in (sale_control.close, sale_control.resume, sale_control.open_now):
        with pytest.raises(InvalidRequest, match="is retired; nothing about it can be changed"):
            act(card.slug, actor="olga")
    form = browser_of("manager").get(f"/admin/shop/sale/{card.sale_id}/change/")
    data = {name: value for name, value in form.context["adminform"].form.initial.items() if value is not None}
    now = timezone.now()
    for name, moment in (("opens_at", now), ("closes_at", now + timedelta(hours=1))):
        data |= {f"{name}_0": moment.date().isoformat(), f"{name}_1": moment.time().isoformat("seconds")}
    answer = browser_of("manager").post(f"/admin/shop/sale/{card.sale_id}/change/", data)
    assert "This sale is retired" in answer.content.decode()
    assert of_retired(card).state_at(timezone.now()) == "closed"


# what Redis forgets


def test_every_key_of_a_sku_goes_with_its_last_sale(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku())
    road.run(
        ("HSET", keys.hand_outs(card.sku), "x", 1),
        ("SADD", keys.lock_names(), card.sku),
        ("HSET", keys.lock_statistics(card.sku), "holds", 1),
    )
    assert len(keys_left(card.sku)) >= 8
    assert retiring.retire(card.slug, actor="olga", reason="over") == "retired"
    assert keys_left(card.sku) == []


def test_a_scheduled_sale_keeps_its_sku(new_sku: Callable[[], str]) -> None:
    """The control: with a sale that comes, only the old one's part goes."""
    card = sold(new_sku())
    coming = next_sale(card, opens_in=timedelta(hours=1))
    retiring.retire(card.slug, actor="olga")
    left = keys_left(card.sku)
    assert {keys.stock(card.sku), keys.sales(card.sku), keys.skus()} <= set(left)
    (sales,) = road.run(("HKEYS", keys.sales(card.sku)))
    assert {int(field.partition(":")[0]) for field in sales} == {coming.sale_id}


def test_of_a_sku_that_lives_on_the_old_sale_goes_and_the_new_one_stays(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku(), units=5, buyers=3)
    fresh = next_sale(card)
    names = road.queue(fresh, "ann", "bob")
    road.settle_line(fresh)
    road.queue(fresh, "carl")
    retiring.retire(card.slug, actor="olga")
    (records, live) = road.run(("HKEYS", keys.records(card.sku)), ("HKEYS", keys.live_units(card.sku)))
    assert set(names) < set(records)
    assert len(records) == 3
    assert {field.partition(":")[0] for field in live} == {str(fresh.sale_id)}
    road.settle_line(fresh)
    assert_books_balance(fresh)
    reconciler = Reconciler(redis.connect(), stopping=lambda: False)
    assert reconciler.compare(card.sku, sale_ids=[fresh.sale_id]) == []
    assert_books_balance(fresh)


def test_the_books_of_the_new_sale_balance_while_the_old_one_is_forgotten_step_by_step(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = sold(new_sku(), units=40, buyers=40)
    fresh = next_sale(card)
    Sale.objects.filter(pk=card.sale_id).update(retired_at=timezone.now())
    monkeypatch.setattr(forgetting, "PAGE", 10)
    steps = []

    def step() -> None:
        steps.append(int(road.run(("HLEN", keys.records(card.sku)))[0]))
        assert_books_balance(fresh)

    retiring.forget_retired(card.sku, throttle=step)
    assert len(steps) >= 4
    assert steps[-1] == 0


def test_a_request_that_waits_is_never_forgotten(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    names = fill_line(card, buyers=2)
    Sale.objects.filter(pk=card.sale_id).update(retired_at=timezone.now())
    assert not retiring.forget_retired(card.sku)
    assert {place.record.state for place in reading.places(redis.connect(), card.sku, names) if place} == {State.QUEUED}
    road.settle_line(card)
    pay_all(card)
    road.settle_line(card)
    assert retiring.forget_retired(card.sku)
    assert keys_left(card.sku) == []
    assert Order.objects.filter(sale_id=card.sale_id).count() == 2


def test_a_request_that_waits_in_a_sku_that_lives_on_is_never_forgotten(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    names = fill_line(card, buyers=2)
    card = over(card)
    next_sale(card)
    Sale.objects.filter(pk=card.sale_id).update(retired_at=timezone.now())
    assert not retiring.forget_retired(card.sku)
    assert all(reading.places(redis.connect(), card.sku, names))


def test_a_lock_that_somebody_holds_is_left_to_them(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku())
    with Lock(redis.connect(), card.sku, ttl_ms=road.LOCK_TTL_MS):
        assert retiring.retire(card.slug, actor="olga") == "retired; the reconciler lets Redis forget it"
        assert keys.records(card.sku) in keys_left(card.sku)
    reconcile()
    assert keys_left(card.sku) == []


def count_late(sku: str) -> None:
    """Send what a settler counted about its lock."""
    road.run(("HSET", keys.lock_statistics(sku), "holds", 1), ("SADD", keys.lock_names(), sku))


def test_what_a_settler_counts_late_is_forgotten_by_the_reconciler(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku())
    retiring.retire(card.slug, actor="olga")
    count_late(card.sku)
    reconcile()
    assert keys_left(card.sku) == []


def test_what_a_settler_counts_while_a_sku_is_being_forgotten_goes_with_it(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku())
    retiring.mark_retired(card.slug, actor="olga")
    assert retiring.forget_retired(card.sku, throttle=lambda: count_late(card.sku))
    assert keys_left(card.sku) == []


# who retires by itself


def test_the_reconciler_retires_what_ended_long_enough_ago(new_sku: Callable[[], str], settings: Any) -> None:
    card, lately = sold(new_sku()), make_sale(new_sku(), units=1)
    close_sale(lately)
    reconcile()
    assert of_retired(card).retired_at is not None
    assert of_retired(lately).retired_at is None
    assert keys_left(card.sku) == []
    assert StaffAct.objects.get(sale_id=card.sale_id).actor == "reconciler"
    settings.RETIRE_AFTER_SECONDS = 0
    reconcile()
    assert of_retired(lately).retired_at is not None


def test_the_reconciler_leaves_what_is_not_settled(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = fill_line(card, buyers=1)
    road.settle_line(card)
    card = over(card)
    reconcile()
    assert of_retired(card).retired_at is None
    pay(name)
    reconcile()
    assert of_retired(card).retired_at is not None


def test_a_sku_whose_sales_are_retired_is_no_drift_and_never_primed(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku())
    retiring.retire(card.slug, actor="olga")
    assert Reconciler(redis.connect(), stopping=lambda: False).compare(card.sku, sale_ids=[]) == []
    reconcile()
    assert keys_left(card.sku) == []


@pytest.mark.parametrize("locked_again", [False, True])
def test_a_sku_that_was_primed_while_it_was_forgotten_is_looked_at_again(
    new_sku: Callable[[], str], locked_again: bool
) -> None:
    """Also when its lock was taken since, so that its name is in the list of locks."""
    card = make_sale(new_sku(), units=1)
    road.run(("SREM", keys.skus(), card.sku))
    if locked_again:
        road.run(("SADD", keys.lock_names(), card.sku))
    reconcile()
    assert road.run(("SISMEMBER", keys.skus(), card.sku)) == [1]


# who answers


@pytest.fixture
def retired(new_sku: Callable[[], str]) -> SaleCard:
    card = sold(new_sku())
    assert retiring.retire(card.slug, actor="olga") == "retired"
    return of_retired(card)


def test_the_same_ask_gets_its_outcome_and_a_new_one_is_told_the_sale_is_over(retired: SaleCard) -> None:
    order = Order.objects.filter(sale_id=retired.sale_id, state="paid").first()
    assert order
    view = requests.ask(retired, buyer=order.buyer, quantity=1, idempotency_key="")
    assert (view.request_id, view.state, view.seq) == (order.request_id, State.PAID, order.seq)
    with pytest.raises(IdempotencyMismatch):
        requests.ask(retired, buyer=order.buyer, quantity=2, idempotency_key="")
    with pytest.raises(SaleClosed):
        requests.ask(retired, buyer=order.buyer, quantity=1, idempotency_key="another")
    assert keys_left(retired.sku) == []


def test_nobody_primes_a_retired_sale(retired: SaleCard) -> None:
    with pytest.raises(SaleNotPrimed):
        catalogue.prime_card(retired)
    # A caller that read the sale before it was retired finds out when the SKU is read to be primed.
    with pytest.raises(SaleNotPrimed):
        catalogue.prime_card(replace(retired, retired_at=None))
    assert keys_left(retired.sku) == []


def test_without_the_mark_an_ask_of_anybody_primes_it_again(retired: SaleCard) -> None:
    """The control."""
    Sale.objects.filter(pk=retired.sale_id).update(retired_at=None)
    with pytest.raises(SaleClosed):
        requests.ask(of_retired(retired), buyer="somebody", quantity=1, idempotency_key="")
    assert keys.stock(retired.sku) in keys_left(retired.sku)


def test_a_ticket_is_answered_from_the_database_and_primes_nothing(retired: SaleCard) -> None:
    order = Order.objects.filter(sale_id=retired.sale_id).first()
    assert order
    text = sign_ticket(ticket_signer(), Ticket(order.request_id, order.buyer, 1, order.seq))
    view, restored = restoring.restore(text, buyer=order.buyer)
    assert (view.state, restored) == (State(order.state), False)
    lost = road.ask(retired, "somebody").request_id
    text = sign_ticket(ticket_signer(), Ticket(lost, "somebody", 1, 7))
    with pytest.raises(SaleClosed):
        restoring.restore(text, buyer="somebody")
    with pytest.raises(RequestNotFound):
        requests.look_up(lost, buyer="somebody")
    assert keys_left(retired.sku) == []


def test_a_refund_after_it_is_in_the_books_and_not_in_redis(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku(), units=5, buyers=3)
    fresh = next_sale(card)
    retiring.retire(card.slug, actor="olga")
    order = Order.objects.filter(sale_id=card.sale_id, state="paid").first()
    assert order
    refunds.refund_order(order.request_id, actor="olga", reason="it came broken")
    order.refresh_from_db()
    assert order.state == "refunded"
    assert road.run(("HEXISTS", keys.records(card.sku), order.request_id)) == [0]
    figures = reading.figures(redis.connect(), card.sku, sale_id=fresh.sale_id)
    assert figures
    assert figures.version == Stock.objects.get(sku=card.sku).version
    assert_books_balance(fresh)


def test_an_empty_redis_is_primed_without_the_retired_sales(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku(), units=5, buyers=3)
    fresh = next_sale(card)
    retiring.retire(card.slug, actor="olga")
    road.queue(fresh, "ann")
    road.settle_line(fresh)
    road.forget(fresh)
    assert not priming.is_primed(redis.connect(), card.sku)
    catalogue.prime_sale(fresh.slug)
    assert road.run(("HLEN", keys.records(card.sku))) == [1]
    assert_books_balance(fresh)
    assert Reconciler(redis.connect(), stopping=lambda: False).compare(card.sku, sale_ids=[fresh.sale_id]) == []
    (answer,) = road.admit(fresh, road.ask(fresh, "bob"))
    assert answer.code == Code.ADMITTED


def test_a_new_sale_of_a_retired_sku_waits_for_nobody_who_comes_back(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku(), units=5, buyers=3)
    retiring.retire(card.slug, actor="olga")
    with override_settings(RESTORE_GRACE_SECONDS=60):
        fresh = next_sale(card)
        road.queue(fresh, "ann")
        assert road.settle_line(fresh)
        # The control: now it has been on sale before.
        road.forget(fresh)
        catalogue.prime_sale(fresh.slug)
        road.queue(fresh, "bob")
        assert not road.settle_line(fresh)


@pytest.mark.parametrize("first", [0, 1])
def test_ordinals_of_every_sale_of_a_sku_go_on_above_a_jump(new_sku: Callable[[], str], first: int) -> None:
    """Else those who are lost after it would be taken for the decided ones of before."""
    card = sold(new_sku(), units=9, buyers=3)
    fresh = next_sale(card)
    road.queue(fresh, "ann", "bob")
    road.settle_line(fresh)
    road.forget(fresh)
    sales = [card, fresh]
    for each in (sales[first], sales[1 - first]):
        catalogue.prime_sale(each.slug)
    road.queue(fresh, "eve")
    road.settle_line(fresh)
    ordinals = Order.objects.filter(sale_id=fresh.sale_id).order_by("id").values_list("ordinal", flat=True)
    assert list(ordinals) == [1, 2, 2 + catalogue.ORDINAL_JUMP + 1]
    assert_books_balance(fresh)
    # The control: one that is lost now is missed.
    (name,) = road.queue(fresh, "joe")
    road.run(("ZREM", keys.line(card.sku), name), ("HDEL", keys.records(card.sku), name))
    assert "I4" in {each["id"] for each in audit_sale(fresh.slug)["invariants"] if not each["ok"]}
    road.forget(fresh)


def test_its_audit_looks_at_the_database_alone_and_says_so(retired: SaleCard) -> None:
    report = audit_sale(retired.slug)
    assert report["ok"]
    assert "Redis has forgotten it" in report["note"]
    told = {each["id"] for each in report["invariants"]}
    assert {"I1", "I2", "I3", "I7", "I8", "I13", "I20"} <= told
    assert told.isdisjoint({"I4", "I15", "I17", "I18", "I19", "I21"})
    assert report["counts"]["decided"] == 5
    out = StringIO()
    call_command("audit", retired.slug, stdout=out)
    assert "only the invariants of the database" in out.getvalue()
    page = browser_of("viewer").get(f"/admin/shop/sale/{retired.sale_id}/audit/").content.decode()
    assert "only the invariants of the database" in page


def test_its_audit_still_sees_what_is_wrong(retired: SaleCard) -> None:
    """The control: a count that is off is found without Redis."""
    from tests.support.shopkeeping import rewrite

    order = Order.objects.filter(sale_id=retired.sale_id, state="sold_out").first()
    assert order
    rewrite(order.request_id, state="paid")
    assert not audit_sale(retired.slug)["ok"]


def test_it_leaves_the_catalogue_and_the_stock_that_is_live(retired: SaleCard, new_sku: Callable[[], str]) -> None:
    other = make_sale(new_sku(), units=1)
    listed = {card.slug for card in catalogue.list_sales()}
    assert other.slug in listed
    assert retired.slug not in listed
    browser = browser_of("manager")
    table = browser.get("/admin/inventory/stock/live/?format=csv").content.decode()
    assert other.sku in table
    assert retired.sku not in table
    assert retired.sku in browser.get(f"/admin/inventory/stock/live/?format=csv&q={retired.sku}").content.decode()


def test_pages_of_past_sales(retired: SaleCard) -> None:
    client = Client()
    home = client.get("/").content.decode()
    assert retired.slug not in home
    assert "/past/" in home
    found, number = "", 1
    while retired.slug not in found:
        answer = client.get(f"/past/?page={number}")
        assert answer.status_code == 200
        found = answer.content.decode()
        assert found.count('class="card') <= 51
        number += 1
    assert client.get(f"/sales/{retired.slug}/").status_code == 200
    for wrong in ("0", "-1", "x", "", "1.5", "9" * 9):
        assert client.get(f"/past/?page={wrong}").status_code == 400


def test_holds_of_a_past_sale_end_before_it_is_retired(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = fill_line(card, buyers=1)
    road.settle_line(card)
    let_holds_end(name)
    card = over(card)
    with pytest.raises(InvalidRequest, match="an order is held"):
        retiring.retire(card.slug, actor="olga")
