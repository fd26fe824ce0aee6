"""Each role may do what it needs and no more: no button without its right, 403 behind it, also for the list's actions.
Real servers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group
from django.urls import reverse

from inventory.states import Reason
from shop.models import Order, Payment, Sale, StaffAct
from shop.orders import mails
from shop.sales.catalogue import SaleCard
from shop.staff import actions, control_room
from shop.staff.actions import ACTS, ROOM_ACTS
from shop.staff.orders import ORDER_ACTS
from tests.support import road
from tests.support.shopkeeping import make_sale, pay
from tests.support.staff import ROLES, browser_of

pytestmark = pytest.mark.usefixtures("shop_database")

OPERATOR_DOES = {"pause", "resume", "retry", "reconcile"}
MAY = {"viewer": set(), "operator": OPERATOR_DOES, "manager": set(ROOM_ACTS), "none": set()}
MAILS = {"mail", "forget"}
MAY_WITH_ORDERS = {
    "viewer": set(),
    "operator": {"cancel"} | MAILS,
    "manager": {"cancel", "refund", "void", "sent"} | MAILS,
}
VALUES = {"reason": "because a test says so", "units": "1", "seen_act": "0"}


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=3)


def room(card: SaleCard) -> str:
    return reverse("admin:shop_sale_room", args=[card.sale_id])


def act_of(card: SaleCard, name: str) -> str:
    return reverse("admin:shop_sale_room_act", args=[card.sale_id, name])


def order_act(order: Order, name: str) -> str:
    return reverse("admin:shop_order_act", args=[order.pk, name])


def an_order(card: SaleCard, *, paid: bool) -> Order:
    (name,) = road.queue(card, f"buyer-{card.sku}-{paid}")
    road.settle_line(card)
    if paid:
        pay(name)
    return Order.objects.get(request_id=name)


@pytest.mark.parametrize("name", ROOM_ACTS)
@pytest.mark.parametrize("role", [*ROLES, "none"])
def test_each_act_of_the_room_asks_for_its_right(card: SaleCard, role: str, name: str) -> None:
    browser, allowed = browser_of(role), name in MAY[role]
    assert browser.get(act_of(card, name)).status_code == (200 if allowed else 403)
    answer = browser.post(act_of(card, name), VALUES)
    if not allowed:
        assert answer.status_code == 403
        assert not StaffAct.objects.filter(sale_id=card.sale_id).exists()
    else:
        # Done, refused with a reason (there is nothing to resume), or asked again for a letter that does not exist.
        assert answer.status_code in (200, 302, 409)


@pytest.mark.parametrize("role", ROLES)
def test_a_room_shows_the_buttons_that_work(
    card: SaleCard, role: str, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = browser_of(role)

    def buttons(of: SaleCard) -> set[str]:
        shown = browser.get(room(of)).content.decode()
        return {name for name in ROOM_ACTS if act_of(of, name) in shown}

    # It is open, and nothing is dead.
    assert buttons(card) == MAY[role] - {"open_now", "resume", "retire", "retry", "discard"}
    coming = make_sale(new_sku(), units=1, opens_in_seconds=600)
    paused = make_sale(new_sku(), units=1, operator_state="paused")
    assert ("open_now" in buttons(coming)) == ("open_now" in MAY[role])
    assert ("resume" in buttons(paused)) == ("resume" in MAY[role])
    over = make_sale(new_sku(), units=1, operator_state="closed")
    assert ("retire" in buttons(over)) == ("retire" in MAY[role])
    # Everything that is left out here is left out by its right alone.
    monkeypatch.setattr(control_room, "FITS", {})
    assert buttons(card) == MAY[role]


def test_who_has_no_role_sees_no_room_and_no_stock(card: SaleCard) -> None:
    browser = browser_of("none")
    live = reverse("admin:shop_sale_room_live", args=[card.sale_id])
    for address in (room(card), live, reverse("stock-live")):
        assert browser.get(address).status_code == 403


def test_it_is_the_right_that_refuses(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with the check switched off a viewer pauses the sale."""
    for module in (control_room, actions):
        monkeypatch.setattr(module, "may", lambda _user, _act: True)
    assert browser_of("viewer").post(act_of(card, "pause"), VALUES).status_code == 302
    assert StaffAct.objects.get(sale_id=card.sale_id).act == "pause"


@pytest.mark.parametrize("name", ACTS)
@pytest.mark.parametrize("role", ROLES)
def test_the_lists_actions_ask_for_the_same_rights(card: SaleCard, role: str, name: str) -> None:
    browser, allowed = browser_of(role), name in MAY[role]
    address = reverse("admin:shop_sale_changelist")
    shown = browser.get(address, {"q": card.slug}).content.decode()
    assert (f'<option value="{name}">' in shown) == allowed
    values = {"action": name, "_selected_action": card.sale_id, "confirm": "yes", "units": "1", "reason": "a test"}
    assert browser.post(address, values).status_code == (302 if allowed else 403)
    if not allowed:
        assert not StaffAct.objects.filter(sale_id=card.sale_id).exists()


@pytest.mark.parametrize("name", ORDER_ACTS)
@pytest.mark.parametrize("role", ROLES)
def test_each_act_on_an_order_asks_for_its_right(card: SaleCard, role: str, name: str) -> None:
    order = an_order(card, paid=name in ("refund", "sent"))
    if name == "sent":
        failed = {"state": Payment.State.REFUND_DUE, "reason": Reason.REFUND_FAILED}
        Payment.objects.filter(order=order).update(**failed)
    if name in MAILS:
        mails.keep_address(order.request_id, f"{role}@example.com", language="en", root="http://testserver")
    browser, allowed = browser_of(role), name in MAY_WITH_ORDERS[role]
    shown = browser.get(reverse("admin:shop_order_change", args=[order.pk])).content.decode()
    assert (order_act(order, name) in shown) == allowed
    assert browser.get(order_act(order, name)).status_code == (200 if allowed else 403)
    assert browser.post(order_act(order, name), {"reason": "a test"}).status_code == (302 if allowed else 403)
    was = order.state
    order.refresh_from_db()
    assert (order.state != was) == (allowed and name not in MAILS | {"sent"})


@pytest.mark.parametrize("role", ROLES)
def test_only_managers_set_up_sales(card: SaleCard, role: str) -> None:
    browser = browser_of(role)
    assert browser.get("/admin/shop/sale/add/").status_code == (200 if role == "manager" else 403)
    assert browser.get(f"/admin/shop/sale/{card.sale_id}/change/").status_code == 200
    saved = browser.post(f"/admin/shop/sale/{card.sale_id}/change/", {"title": "Mine"})
    assert saved.status_code == (200 if role == "manager" else 403)  # 200: the form says what is missing


def test_who_may_only_look_sees_no_empty_row_of_what_the_form_alone_has(card: SaleCard) -> None:
    product = Sale.objects.get(pk=card.sale_id).product_id
    for address in (f"/admin/shop/sale/{card.sale_id}/change/", f"/admin/shop/product/{product}/change/"):
        seen, changed = (browser_of(role).get(address).content.decode() for role in ("viewer", "manager"))
        assert [name for name in ("field-seen", "field-upload", "keep_terms_as") if name in seen] == []
        assert "field-title" in seen
        assert "field-seen" in changed  # the control


def test_no_role_may_write_the_books() -> None:
    for role in ROLES:
        rights = Group.objects.get(name=role).permissions.values_list("content_type__model", "codename")
        writes = {(model, code) for model, code in rights if code.split("_")[0] in ("add", "change", "delete")}
        assert {model for model, code in writes if code != "change_stock"} <= {"product", "sale", "termstemplate"}, role
        assert {code for _, code in rights if code.startswith("delete_")} <= {"delete_termstemplate"}, role


def test_a_right_is_named_as_django_names_it() -> None:
    """Made by the migration before Django's own step, each is still the one that Django would have made."""
    names = dict(Group.objects.get(name="manager").permissions.values_list("codename", "name"))
    assert names["view_stockmovement"] == "Can view stock movement"
    assert names["force_release_lock"] == "Can take a lock away from its holder"
    assert names["view_staffact"] == "Can view staff act"
