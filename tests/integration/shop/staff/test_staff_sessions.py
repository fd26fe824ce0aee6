"""Sessions of staff end, and money and stock ask for the password again. Real servers, the real admin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from secrets import token_hex

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.cache import caches
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from inventory.models import Stock
from shop.accounts import sessions
from shop.models import Order, StaffAct
from shop.sales.catalogue import SaleCard
from shop.staff.actions import ROOM_ACTS
from shop.staff.orders import ORDER_ACTS
from tests.support import road
from tests.support.shopkeeping import make_sale, pay

pytestmark = pytest.mark.usefixtures("shop_database")
PASSWORD = "a long and secret password"
ADMIN, LIVE = "/admin/", "/admin/inventory/stock/live/"


@pytest.fixture
def staff(shop_database: None) -> Iterator[Client]:
    """Return a browser in which somebody new of the staff has just logged in. What failed before is forgotten."""
    caches["logins"].clear()
    # The strength of a hash is not what is looked at here.
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        name = f"olga-{token_hex(4)}"
        User.objects.create_superuser(name, password=PASSWORD)
        browser = Client()
        browser.login_name = name  # type: ignore[attr-defined]
        assert browser.post("/admin/login/", {"username": name, "password": PASSWORD, "next": ADMIN}).status_code == 302
        yield browser
    caches["logins"].clear()


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=3)


def name_of(browser: Client) -> str:
    """Return the name under which a browser has logged in last."""
    return browser.login_name  # type: ignore[attr-defined,no-any-return]


def move_back(browser: Client, *, key: str, seconds: float) -> None:
    """Make something that the session remembers longer ago; when it ends by itself stays as it is."""
    ends_at = ends(browser)
    session = browser.session
    session[key] -= seconds
    session.save()
    row_of(browser).update(expire_date=ends_at)


def row_of(browser: Client):  # type: ignore[no-untyped-def]
    return Session.objects.filter(pk=browser.cookies[settings.SESSION_COOKIE_NAME].value)


def ends(browser: Client):  # type: ignore[no-untyped-def]
    return row_of(browser).get().expire_date


def test_a_session_ends_after_its_hours_however_much_it_is_used(staff: Client) -> None:
    """The control: ten minutes before, it goes on."""
    move_back(staff, key=sessions.BEGAN_AT, seconds=settings.STAFF_SESSION_SECONDS - 600)
    assert staff.get(ADMIN).status_code == 200
    move_back(staff, key=sessions.BEGAN_AT, seconds=600)
    for path in (ADMIN, LIVE, "/admin/second-factor/"):
        assert staff.get(path)["Location"].startswith("/admin/login/"), path
    assert staff.get("/api/v1/about").status_code == 401
    assert staff.get("/admin/login/").status_code == 200
    assert settings.SESSION_COOKIE_NAME not in staff.cookies or not staff.cookies[settings.SESSION_COOKIE_NAME].value
    assert StaffAct.objects.filter(act="logout", actor=name_of(staff)).exists()


def test_a_logout_that_is_loaded_again_leads_back_and_logs_nobody_out(staff: Client) -> None:
    """A browser loads the address again when its press was refused."""
    assert staff.get("/admin/logout/")["Location"] == ADMIN
    assert staff.get(ADMIN).status_code == 200


def test_a_logout_after_the_end_leads_back_to_the_first_page(staff: Client) -> None:
    move_back(staff, key=sessions.BEGAN_AT, seconds=settings.STAFF_SESSION_SECONDS)
    assert staff.post("/admin/logout/")["Location"] == ADMIN
    page = staff.get(ADMIN, follow=True)
    assert page.redirect_chain[-1][0] == f"/admin/login/?next={ADMIN}"
    again = {"username": name_of(staff), "password": PASSWORD, "next": ADMIN}
    assert staff.post("/admin/login/", again, follow=True).status_code == 200


def test_a_session_of_before_there_were_ends_is_over(staff: Client) -> None:
    session = staff.session
    del session[sessions.BEGAN_AT]
    session.save()
    assert staff.get(ADMIN)["Location"].startswith("/admin/login/")


def test_a_session_ends_when_nobody_uses_it(staff: Client) -> None:
    assert 0 < (ends(staff) - timezone.now()).total_seconds() <= settings.SESSION_COOKIE_AGE
    assert staff.get(ADMIN).status_code == 200
    row_of(staff).update(expire_date=timezone.now() - timedelta(seconds=1))
    assert staff.get(ADMIN)["Location"].startswith("/admin/login/")


def test_use_moves_the_end_and_what_a_page_asks_by_itself_does_not(staff: Client) -> None:
    """A live page that lies open on an empty desk must not keep its reader logged in."""
    move_back(staff, key=sessions.USED_AT, seconds=600)
    row_of(staff).update(expire_date=(before := timezone.now() + timedelta(minutes=30)))
    for asked in (
        staff.get(LIVE, {"format": "json"}, headers={"Accept": "application/json"}),
        staff.get(LIVE, {"watch": "1"}),
    ):
        assert asked.status_code == 200
        assert ends(staff) == before
    assert staff.get(LIVE).status_code == 200
    assert ends(staff) > before


def test_pages_do_not_write_the_session_each_time(staff: Client) -> None:
    move_back(staff, key=sessions.USED_AT, seconds=-3600)  # just now, however slow this machine is
    before = ends(staff)
    for _ in range(3):
        staff.get(ADMIN)
    assert ends(staff) == before


def paid_order(card: SaleCard) -> Order:
    (name,) = road.queue(card, f"ann-{card.sku}")
    road.settle_line(card)
    pay(name)
    return Order.objects.get(request_id=name)


def test_a_refund_asks_for_the_password_again(staff: Client, card: SaleCard) -> None:
    order = paid_order(card)
    path, form = reverse("admin:shop_order_act", args=[order.pk, "refund"]), {"reason": "broken on arrival"}
    assert 'name="password"' in staff.get(path).content.decode()
    for guess in ({}, {"password": ""}, {"password": "a guess"}):
        answer = staff.post(path, form | guess)
        assert answer.status_code == 200
        assert "a guess" not in answer.content.decode()
        order.refresh_from_db()
        assert order.state == "paid"
    assert staff.post(path, form | {"password": PASSWORD}).status_code == 302
    order.refresh_from_db()
    assert order.state == "refunded"


def test_strangers_who_lock_the_account_do_not_stop_a_refund(staff: Client, card: SaleCard) -> None:
    """A session counts its own guesses: ten wrong ones of it, and it waits, whatever strangers do."""
    order = paid_order(card)
    path, form = reverse("admin:shop_order_act", args=[order.pk, "refund"]), {"reason": "broken on arrival"}
    guess = {"username": name_of(staff), "password": "a guess"}
    statuses = [Client().post("/admin/login/", guess).status_code for _ in range(settings.AXES_FAILURE_LIMIT + 1)]
    assert statuses[-1] == 429
    wrong = [staff.post(path, form | {"password": "a guess"}).status_code for _ in range(settings.AXES_FAILURE_LIMIT)]
    assert wrong == [200] * (settings.AXES_FAILURE_LIMIT - 1) + [429]
    assert staff.post(path, form | {"password": PASSWORD}).status_code == 429  # the control: its own do count
    caches["logins"].clear()
    for _ in range(settings.AXES_FAILURE_LIMIT + 1):
        Client().post("/admin/login/", guess)
    assert Client().post("/admin/login/", guess | {"password": PASSWORD}).status_code == 429
    assert staff.post(path, form | {"password": PASSWORD}).status_code == 302
    order.refresh_from_db()
    assert order.state == "refunded"


@pytest.mark.parametrize("name", ["adjust", "restock"])
@pytest.mark.parametrize("where", ["room", "list"])
def test_stock_asks_for_the_password_again(staff: Client, card: SaleCard, name: str, where: str) -> None:
    form = {"units": "2", "reason": "found in the back", "seen_act": "0"}
    path = reverse("admin:shop_sale_room_act", args=[card.sale_id, name])
    if where == "list":
        path = reverse("admin:shop_sale_changelist")
        form |= {"action": name, "_selected_action": str(card.sale_id), "confirm": "yes"}
    for guess in ({}, {"password": "a guess"}):
        assert 'name="password"' in staff.post(path, form | guess).content.decode()
        assert Stock.objects.get(sku=card.sku).total == 3
    assert staff.post(path, form | {"password": PASSWORD}).status_code == 302
    assert Stock.objects.get(sku=card.sku).total == 5


def test_for_a_few_minutes_the_password_is_not_asked_again(staff: Client, card: SaleCard) -> None:
    path = reverse("admin:shop_sale_room_act", args=[card.sale_id, "restock"])
    assert staff.post(path, {"units": "1", "reason": "one", "seen_act": "0", "password": PASSWORD}).status_code == 302
    move_back(staff, key=sessions.PASSWORD_AT, seconds=-3600)  # just now, however slow this machine is
    assert 'name="password"' not in staff.get(path).content.decode()
    move_back(staff, key=sessions.PASSWORD_AT, seconds=3600 + settings.PASSWORD_AGAIN_SECONDS)
    assert 'name="password"' in staff.get(path).content.decode()


def test_who_asks_is_only_what_moves_money_or_stock(staff: Client, card: SaleCard) -> None:
    """The control: the other acts have no such field."""
    asking = {name for name, act in (ROOM_ACTS | ORDER_ACTS).items() if act.asks_password}
    assert asking == {"refund", "void", "sent", "adjust", "restock"}
    path = reverse("admin:shop_sale_room_act", args=[card.sale_id, "pause"])
    assert 'name="password"' not in staff.get(path).content.decode()
    assert staff.post(path, {"reason": "a fault", "seen_act": "0"}).status_code == 302


def test_guesses_in_a_session_that_was_stolen_end(staff: Client, card: SaleCard) -> None:
    path = reverse("admin:shop_sale_room_act", args=[card.sale_id, "restock"])
    form = {"units": "1", "reason": "one", "seen_act": "0"}
    wrong = form | {"password": "a guess"}
    statuses = [staff.post(path, wrong).status_code for _ in range(settings.AXES_FAILURE_LIMIT)]
    assert statuses == [200] * (settings.AXES_FAILURE_LIMIT - 1) + [429]
    assert staff.post(path, form | {"password": PASSWORD}).status_code == 429
    assert Stock.objects.get(sku=card.sku).total == 3
