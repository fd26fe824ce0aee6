"""A sale that is over and settled is retired, by staff or by the reconciler; any other is refused, and says why.
Uses the real servers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from io import StringIO
from itertools import count
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone

from inventory import redis
from inventory.exceptions import InvalidRequest
from inventory.line import forgetting
from inventory.redis import keys
from shop.access import codes
from shop.models import AccessCode, CodeUse, Order, Payment, Sale, StaffAct
from shop.orders import holds
from shop.payments import notices
from shop.sales import priming
from shop.staff import line_actions, retiring, sale_control
from tests.support import road
from tests.support.past_sales import keys_left, next_sale, of_retired, over, reconcile, sold
from tests.support.shopkeeping import close_sale, fill_line, let_holds_end, make_sale, pay
from tests.support.staff import browser_of
from workers.reconciler.loop import Reconciler

pytestmark = pytest.mark.usefixtures("shop_database")


def command(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command("sale", *arguments, "--actor", "olga", "--json", stdout=out)
    row: dict[str, Any] = json.loads(out.getvalue())
    return row


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
    priming.prime_sale(card.slug)
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


def test_uses_of_codes_and_revoked_networks_go_with_a_retired_sale(new_sku: Callable[[], str]) -> None:
    """What is left of a code stays counted. The control is a sale that goes on."""
    card, other = make_sale(new_sku(), units=1), make_sale(new_sku(), units=1)
    for each in (card, other):
        codes.make_codes(each.sale_id, number=1, uses=3, counts_units=False, batch="of a test")
        code = AccessCode.objects.get(sale_id=each.sale_id)
        AccessCode.objects.filter(pk=code.pk).update(left=2)
        CodeUse.objects.create(code=code, request_id=f"of {each.sku}", uses=1)
        sale_control.revoke_network(each.slug, network="192.0.2.77", actor="olga", reason="one script")
    close_sale(card)
    retiring.retire(card.slug, actor="olga")
    uses = [CodeUse.objects.filter(code__sale_id=each.sale_id).count() for each in (card, other)]
    revoked = [bool(Sale.objects.get(pk=each.sale_id).revoked_networks) for each in (card, other)]
    assert (uses, revoked) == ([0, 1], [False, True])
    assert AccessCode.objects.get(sale_id=card.sale_id).left == 2


def test_sales_that_were_retired_before_lose_both_with_the_upgrade(new_sku: Callable[[], str]) -> None:
    """The control is a sale that goes on."""
    card, other = make_sale(new_sku(), units=1), make_sale(new_sku(), units=1)
    close_sale(card)
    retiring.retire(card.slug, actor="olga")
    for each in (card, other):
        codes.make_codes(each.sale_id, number=1, uses=1, counts_units=False, batch="of a test")
        code = AccessCode.objects.get(sale_id=each.sale_id)
        CodeUse.objects.create(code=code, request_id=f"of {each.sku}", uses=1)
        Sale.objects.filter(pk=each.sale_id).update(revoked_networks="a-mark")
    for operation in import_module("shop.migrations.0041_retired_sales_keep_no_uses").Migration.operations:
        with connection.cursor() as cursor:
            cursor.execute(operation.sql)
    assert [CodeUse.objects.filter(code__sale_id=each.sale_id).count() for each in (card, other)] == [0, 1]
    assert [Sale.objects.get(pk=each.sale_id).revoked_networks for each in (card, other)] == ["", "a-mark"]


def test_holds_of_a_past_sale_end_before_it_is_retired(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    (name,) = fill_line(card, buyers=1)
    road.settle_line(card)
    let_holds_end(name)
    card = over(card)
    with pytest.raises(InvalidRequest, match="an order is held"):
        retiring.retire(card.slug, actor="olga")


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
