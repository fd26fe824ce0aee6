"""Many orders refunded or cancelled at once: the preview is what happens, a second press does nothing twice, one that
fails keeps no other back, and nobody acts without right, reason and password. Real servers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from django.urls import reverse

from inventory.models import Stock
from inventory.postgres import TwoKeyAdvisoryLock
from shop.accounts import sessions
from shop.models import Order, OrderEvent, Payment, StaffAct
from shop.sales.catalogue import SaleCard
from shop.staff.lists import bulk_acts, order_acts
from shop.staff.lists.bulk_acts import BulkReason, Obstacle
from tests.support import paying, road
from tests.support.shopkeeping import assert_books_balance, make_sale, pay
from tests.support.staff import browser_of

pytestmark = pytest.mark.usefixtures("shop_database")

LIST = reverse("admin:shop_order_changelist")
BUYERS = ("ann", "bob", "eve", "dan")


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=10)


@pytest.fixture
def manager() -> Client:
    return browser_of("manager")


def held(card: SaleCard, *buyers: str) -> list[Order]:
    names = road.queue(card, *(f"{buyer}-{card.sku}" for buyer in buyers))
    road.settle_line(card)
    return [Order.objects.get(request_id=name) for name in names]


def bought(card: SaleCard, *buyers: str) -> list[Order]:
    orders = held(card, *buyers)
    pay(*(each.request_id for each in orders))
    return orders


def preview(browser: Client, name: str, orders: list[Order]) -> Any:
    return browser.post(LIST, {"action": name, "_selected_action": [each.pk for each in orders]})


def press(browser: Client, name: str, chosen: list[Order], **values: Any) -> Any:
    form = {"orders": ",".join(str(each.pk) for each in chosen), "why": BulkReason.FAULTY.value, "note": "", **values}
    return browser.post(reverse("admin:shop_order_bulk", args=[name]), form)


def states(orders: list[Order]) -> list[str]:
    found = dict(Order.objects.filter(pk__in=[each.pk for each in orders]).values_list("pk", "state"))
    return [found[each.pk] for each in orders]


def obstacles(answer: Any) -> dict[int, str]:
    return {each.order.pk: each.obstacle for each in answer.context["failed"]}


def test_the_preview_says_how_many_how_much_and_which_cannot(manager: Client, card: SaleCard) -> None:
    paid, waiting = bought(card, "ann", "bob"), held(card, "eve")
    answer = preview(manager, "refund", [*paid, *waiting])
    shown = answer.content.decode()
    assert "<strong>2 orders, 2 units, €30.00.</strong>" in shown
    assert "1 order cannot" in shown
    assert [(each.order.pk, each.obstacle) for each in answer.context["plan"].unable] == [
        (waiting[0].pk, Obstacle.NOT_PAID.label)
    ]
    assert answer.context["form"].initial["orders"] == ",".join(str(each.pk) for each in paid)
    assert states([*paid, *waiting]) == ["paid", "paid", "held"]  # a preview changes nothing


def test_a_bulk_refund_gives_back_units_and_money_with_its_reason(manager: Client, card: SaleCard) -> None:
    orders = bought(card, "ann", "bob")
    answer = press(manager, "refund", orders, note="cracked glaze")
    assert [each.order.pk for each in answer.context["done"]] == [each.pk for each in orders]
    assert "2 orders are done. €30.00 goes back." in " ".join(answer.content.decode().split())
    assert states(orders) == ["refunded", "refunded"]
    for order in orders:
        assert OrderEvent.objects.filter(order=order).last().reason == "faulty: cracked glaze"
        # The payments worker asks the provider for it, as for every refund that is due.
        assert Payment.objects.get(order=order).state == Payment.State.REFUND_DUE
    assert Stock.objects.get(sku=card.sku).available == 10
    acts = StaffAct.objects.filter(sale_id=card.sale_id, act="refund_order")
    assert set(acts.values_list("reason", flat=True)) == {"faulty: cracked glaze"}
    assert acts.count() == 2
    assert_books_balance(card)


def test_a_bulk_cancel_frees_every_unit(card: SaleCard) -> None:
    orders = held(card, "ann", "bob", "eve")
    answer = press(browser_of("operator"), "cancel", orders)
    assert len(answer.context["done"]) == 3
    assert states(orders) == ["cancelled"] * 3
    assert Stock.objects.get(sku=card.sku).available == 10
    assert_books_balance(card)


@pytest.mark.parametrize("name", bulk_acts.BULK_ACTS)
def test_pressed_twice_it_acts_once(manager: Client, card: SaleCard, name: str) -> None:
    orders = (bought if name == "refund" else held)(card, "ann", "bob")
    first, second = press(manager, name, orders), press(manager, name, orders)
    assert len(first.context["done"]) == 2
    assert second.context["done"] == []
    assert set(obstacles(second).values()) == {Obstacle.DONE_ALREADY.label}
    assert StaffAct.objects.filter(sale_id=card.sale_id, act=f"{name}_order").count() == 2
    assert_books_balance(card)


def test_two_presses_at_the_same_time_are_one(manager: Client, card: SaleCard) -> None:
    orders = held(card, "ann")
    with road.own_connection() as other:
        other.execute("SELECT pg_advisory_lock(%s, 0)", [TwoKeyAdvisoryLock.BULK_ACT])
        answer = press(manager, "cancel", orders)
        assert "Another bulk act is under way" in answer.content.decode()
        assert states(orders) == ["held"]
    assert len(press(manager, "cancel", orders).context["done"]) == 1  # the control: it was only that


def test_it_goes_on_past_one_that_fails_and_says_so(
    manager: Client, card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = held(card, *BUYERS)
    trouble = {orders[0].pk: OperationalError("the row is locked"), orders[2].pk: RuntimeError("a fault")}
    real = order_acts.ORDER_ACTS["cancel"]

    def failing(order: Order, **values: Any) -> str:
        if order.pk in trouble:
            raise trouble.pop(order.pk)
        return real.service(order, **values)

    monkeypatch.setitem(order_acts.ORDER_ACTS, "cancel", real._replace(service=failing))
    answer = press(manager, "cancel", orders)
    assert states(orders) == ["held", "cancelled", "held", "cancelled"]
    assert obstacles(answer) == {orders[0].pk: Obstacle.BUSY.label, orders[2].pk: Obstacle.FAULT.label}
    assert "2 orders are done." in answer.content.decode()
    # What is left stands in the form, and the next press does it.
    left = answer.context["form"].initial["orders"]
    assert left == f"{orders[0].pk},{orders[2].pk}"
    assert len(press(manager, "cancel", orders, orders=left).context["done"]) == 2
    assert states(orders) == ["cancelled"] * 4
    assert_books_balance(card)


def test_what_is_not_reached_in_time_is_said(manager: Client, card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = held(card, "ann", "bob")
    monkeypatch.setattr(bulk_acts, "BUDGET_SECONDS", 0.0)
    assert set(obstacles(press(manager, "cancel", orders)).values()) == {Obstacle.NOT_REACHED.label}
    assert states(orders) == ["held", "held"]


def test_a_payment_that_changed_after_the_preview_is_left_alone(manager: Client, card: SaleCard) -> None:
    (order,) = held(card, "ann")
    assert preview(manager, "cancel", [order]).context["plan"].able
    pay(order.request_id)
    assert obstacles(press(manager, "cancel", [order])) == {order.pk: Obstacle.NOT_HELD.label}
    assert states([order]) == ["paid"]


@pytest.mark.parametrize(
    "wrong",
    [{"why": ""}, {"why": "because"}, {"orders": ""}, {"orders": "1,x"}, {"orders": "9" * 40}, {"orders": "1,,2"},
     {"orders": ",".join(map(str, range(1, 502)))}, {"note": "x" * 151}],
)  # fmt: skip
def test_a_wrong_form_changes_nothing(manager: Client, card: SaleCard, wrong: dict[str, str]) -> None:
    orders = held(card, "ann")
    answer = press(manager, "cancel", orders, **wrong)
    assert answer.status_code == 200
    assert answer.context["form"].errors
    assert states(orders) == ["held"]


def test_who_may_not_is_refused_and_offered_nothing(card: SaleCard) -> None:
    orders = held(card, "ann")
    for role, name in (("viewer", "cancel"), ("viewer", "refund"), ("operator", "refund")):
        browser = browser_of(role)
        assert press(browser, name, orders).status_code == 403
        assert preview(browser, name, orders).status_code == 403
        assert f'value="{name}"' not in browser.get(LIST).content.decode()
    assert 'value="cancel"' in browser_of("operator").get(LIST).content.decode()  # the control
    assert states(orders) == ["held"]
    manager = browser_of("manager")
    assert press(manager, "burn", orders).status_code == 404
    assert manager.get(reverse("admin:shop_order_bulk", args=["cancel"])).status_code == 302


def test_money_asks_for_the_password_again(card: SaleCard) -> None:
    orders, manager = bought(card, "ann"), browser_of("manager")
    session = manager.session
    del session[sessions.PASSWORD_AT]
    session.save()
    answer = press(manager, "refund", orders)
    assert answer.context["form"].errors["password"]
    assert press(manager, "refund", orders, password="wrong").context["form"].errors["password"]
    assert states(orders) == ["paid"]


def test_too_many_at_once_are_refused(manager: Client, card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    from shop.staff.lists import bulk_page

    monkeypatch.setattr(bulk_page, "MAX_AT_ONCE", 1)
    answer = manager.post(LIST, {"action": "cancel", "_selected_action": [o.pk for o in held(card, "ann", "bob")]},
                          follow=True)  # fmt: skip
    assert "At most 1 orders at once" in answer.content.decode()


def test_an_order_paid_without_a_captured_payment_cannot_be_refunded(manager: Client, card: SaleCard) -> None:
    (order,) = held(card, "ann")
    with paying.quiet_sandbox():
        payment = paying.begin(order.request_id)
        assert paying.hear(paying.happen(payment, "captured")) == "paid"
        Payment.objects.filter(pk=payment.pk).update(state=Payment.State.REFUND_DUE)
    (planned,) = preview(manager, "refund", [order]).context["plan"].unable
    assert planned.obstacle == Obstacle.NO_PAYMENT.label
    Payment.objects.filter(pk=payment.pk).update(state=Payment.State.CAPTURED)
    assert preview(manager, "refund", [order]).context["plan"].able
