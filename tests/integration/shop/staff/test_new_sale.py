"""Proves the form of a sale: from nothing to a sale in one step, or nothing at all and the reason at its field.
Uses the real servers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from secrets import token_hex
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ValidationError
from django.db import connections
from django.test import Client, override_settings
from django.utils import timezone

from inventory.models import Stock, StockMovement
from shop.models import Product, Sale
from shop.sales import catalogue
from shop.staff import retiring, sale_control, sale_form
from shop.staff.sale_form import SaleForm
from shop.staff.setup.terms import BOUNDS
from tests.support.past_sales import next_sale, over
from tests.support.shopkeeping import make_sale
from tests.support.staff import browser_of

pytestmark = pytest.mark.usefixtures("shop_database")
ADD = "/admin/shop/sale/add/"


@pytest.fixture
def manager() -> Client:
    """Return a browser of a manager who has just given the password again."""
    return browser_of("manager")


def filled(new: str, /, **changes: Any) -> dict[str, Any]:
    """Return what the form sends for a new product and its sale."""
    now = timezone.now()
    data = {
        "title": "Tea set",
        "slug": f"{new}-drop",
        "product": "",
        "sku": new,
        "units": 12,
        "list_price": "90.00",
        "tagline": "Six cups",
        "description": "",
        "picture": "shop/products/teapot.svg",
        "price": "49.00",
        "currency": "eur",
        "opens_at_0": now.date(),
        "opens_at_1": now.strftime("%H:%M:%S"),
        "closes_at_0": (now + timedelta(days=1)).date(),
        "closes_at_1": "12:00:00",
        "per_buyer_limit": 2,
        "hold_seconds": 600,
        "line_capacity": 200,
    }
    return {**data, **changes}


def test_one_form_makes_product_stock_and_sale(manager: Client, new_sku: Callable[[], str]) -> None:
    sku = new_sku()
    answer = manager.post(ADD, filled(sku))
    assert answer.status_code == 302, answer.context["errors"]
    sale = Sale.objects.select_related("stock", "product").get(slug=f"{sku}-drop")
    assert (sale.stock.sku, sale.stock.total, sale.stock.available) == (sku, 12, 12)
    assert (sale.product.slug, sale.product.title, sale.product.picture) == (sku, "Tea set", "shop/products/teapot.svg")
    assert (sale.currency, sale.product.stock_id) == ("EUR", sale.stock_id)
    assert (sale.title_zh, sale.product.tagline_zh, sale.ships) == ("", "", False)
    (movement,) = StockMovement.objects.filter(stock=sale.stock)
    assert (movement.kind, movement.delta) == ("load", 12)
    assert movement.actor.startswith("manager-")
    # It is in Redis too: buyers can ask.
    assert catalogue.find_sale(sale.slug).available == 12


def test_the_form_takes_texts_in_chinese_and_that_goods_are_shipped(
    manager: Client, new_sku: Callable[[], str]
) -> None:
    """The control is the sale of the test before: without them it has none, and ships nothing."""
    sku = new_sku()
    chinese = {"title_zh": "茶具", "tagline_zh": "六只杯子", "description_zh": "一壶六杯。"}
    assert manager.post(ADD, filled(sku, ships="on", **chinese)).status_code == 302
    sale = Sale.objects.select_related("product").get(slug=f"{sku}-drop")
    assert (sale.title_zh, sale.product.tagline_zh, sale.product.description_zh) == tuple(chinese.values())
    assert sale.ships
    page = manager.get("/admin/shop/sale/", {"q": sku}).content.decode()
    assert "ships=True" in page
    Sale.objects.filter(pk=sale.pk).update(ships=False)
    assert "ships" not in manager.get("/admin/shop/sale/", {"q": sku}).content.decode()


def test_a_list_price_left_empty_is_the_price(manager: Client, new_sku: Callable[[], str]) -> None:
    sku = new_sku()
    assert manager.post(ADD, filled(sku, list_price="")).status_code == 302
    assert str(Product.objects.get(slug=sku).list_price) == "49.00"


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("units", {"units": 0}),
        ("units", {"units": -5}),
        ("units", {"units": ""}),
        ("units", {"units": "a dozen"}),
        ("units", {"units": 2_000_000_000}),
        ("sku", {"sku": ""}),
        ("sku", {"sku": "Tea Set"}),
        ("sku", {"sku": "-tea"}),
        ("sku", {"sku": "x" * 41}),
        ("slug", {"slug": ""}),
        ("title", {"title": ""}),
        ("picture", {"picture": "shop/products/none.svg"}),
        ("picture", {"picture": "../../etc/passwd"}),
        ("list_price", {"list_price": "-1"}),
        ("price", {"price": "free"}),
        ("price", {"price": "-1"}),
        ("price", {"price": "1500.50", "currency": "JPY"}),
        ("currency", {"currency": "zz"}),
        ("currency", {"currency": "XTS"}),
        ("per_buyer_limit", {"per_buyer_limit": 0}),
        ("per_buyer_limit", {"per_buyer_limit": 5_000}),
        ("hold_seconds", {"hold_seconds": 1}),
        ("hold_seconds", {"hold_seconds": 2_000_000_000}),
        ("line_capacity", {"line_capacity": -1}),
        ("line_capacity", {"line_capacity": 2_000_000_000}),
        ("closes_at", {"closes_at_0": "2100-01-01"}),
        ("closes_at", {"closes_at_0": "2020-01-01"}),
        ("closes_at", {"opens_at_0": "2020-01-01", "closes_at_0": "2020-01-02"}),
        ("opens_at", {"opens_at_1": "soon"}),
        ("tagline", {"tagline": "x" * 400}),
        ("title_zh", {"title_zh": "x" * 400}),
        ("per_network_limit", {"per_network_limit": -1}),
        ("per_network_limit", {"per_network_limit": 3_000_000_000}),
        ("pass_mode", {"pass_mode": "perhaps"}),
        ("pass_rush", {"pass_rush": -1}),
        ("pass_rush", {"pass_rush": 3_000_000_000}),
        ("email_mode", {"email_mode": "perhaps"}),
        ("public_at", {"public_at_0": "2100-01-01", "public_at_1": "10:00"}),
        ("keep_terms_as", {"keep_terms_as": "x" * 400}),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_written(
    manager: Client, new_sku: Callable[[], str], field: str, changes: dict[str, Any]
) -> None:
    sku = new_sku()
    answer = manager.post(ADD, filled(sku, **changes))
    assert answer.status_code == 200
    assert list(answer.context["adminform"].form.errors) == [field]
    assert not Stock.objects.filter(sku=sku).exists()
    assert not Product.objects.filter(slug=sku).exists()
    assert not Sale.objects.filter(slug=f"{sku}-drop").exists()


REASONS = {
    "units": "a sale needs something to sell",
    "per_buyer_limit": "nobody can ask for less, or for more at once.",
    "hold_seconds": "payment providers end within a day",
    "line_capacity": "takes memory of Redis.",
    "price": "the shop would pay its buyers.",
    "list_price": "the shop would pay its buyers.",
    "closes_at": "Redis keeps its whole line for as long.",
}
BEYOND: dict[str, tuple[dict[str, Any], ...]] = {
    "units": ({"units": 0}, {"units": 1_000_001}),
    "per_buyer_limit": ({"per_buyer_limit": 0}, {"per_buyer_limit": 1_001}),
    "hold_seconds": ({"hold_seconds": 4}, {"hold_seconds": 23 * 3600 + 1}),
    "line_capacity": ({"line_capacity": 1_000_001},),
    "price": ({"price": "-0.01"},),
    "list_price": ({"list_price": "-0.01"},),
    "closes_at": ({"closes_at_0": "2100-01-01"},),
}


@pytest.mark.parametrize("field", REASONS)
def test_every_bound_says_its_reason(manager: Client, new_sku: Callable[[], str], field: str) -> None:
    for changes in BEYOND[field]:
        form = filled(new_sku(), **changes)
        ((reason,),) = manager.post(ADD, form).context["adminform"].form.errors.values()
        assert REASONS[field] in reason
        ((chinese,),) = (
            manager.post(ADD, form, headers={"Accept-Language": "zh"}).context["adminform"].form.errors.values()
        )
        assert not re.search("[a-z]{3}", chinese.replace("Redis", ""))


@pytest.mark.parametrize("name", BOUNDS)
def test_what_lies_on_a_bound_is_taken(name: str) -> None:
    """The control: one step further is refused."""
    bounds = BOUNDS[name]
    for value, beyond in ((bounds.minimum, bounds.minimum - 1), (bounds.maximum, bounds.maximum + 1)):
        bounds.check(value)
        with pytest.raises(ValidationError):
            bounds.check(beyond)


def test_a_sku_that_exists_gets_no_units(manager: Client, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=3)
    answer = manager.post(ADD, filled(card.sku, slug=f"{card.sku}-b"))
    assert list(answer.context["adminform"].form.errors) == ["sku"]
    assert Stock.objects.get(sku=card.sku).total == 3


def test_of_two_clicks_one_makes_the_sale_and_one_is_told(new_sku: Callable[[], str]) -> None:
    sku = new_sku()
    name = f"manager-{token_hex(4)}"
    user = User.objects.create_superuser(name)

    def click(form: dict[str, Any]) -> int:
        client = browser_of(user=user)
        try:
            return client.post(ADD, form).status_code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(click, [filled(sku)] * 2)) == [200, 302]
    assert Stock.objects.get(sku=sku).total == 12


def test_a_product_and_a_new_one_are_one_too_many(manager: Client, new_sku: Callable[[], str]) -> None:
    card, sku = make_sale(new_sku(), units=3), new_sku()
    product = Product.objects.get(slug=card.sku)
    later = (timezone.now() + timedelta(days=5)).date()
    dates = {"opens_at_0": later, "closes_at_0": later + timedelta(days=1)}
    answer = manager.post(ADD, filled(sku, product=product.pk, **dates))
    assert set(answer.context["adminform"].form.errors) == {
        "sku", "units", "list_price", "tagline", "picture",
    }  # fmt: skip
    only = {"sku": "", "units": "", "list_price": "", "tagline": "", "picture": ""}
    assert manager.post(ADD, filled(sku, product=product.pk, **dates, **only)).status_code == 302
    assert Sale.objects.get(slug=f"{sku}-drop").stock.sku == card.sku
    assert Stock.objects.get(sku=card.sku).total == 3


def test_an_overlap_is_told_by_the_name_of_the_other_sale(
    manager: Client, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card, sku = make_sale(new_sku(), units=3), new_sku()
    product = Product.objects.get(slug=card.sku)
    only = {"product": product.pk, "sku": "", "units": "", "list_price": "", "tagline": "", "picture": ""}
    answer = manager.post(ADD, filled(sku, **only))
    ((reason,),) = answer.context["adminform"].form.errors.values()
    assert reason.startswith(f"{card.slug} sells the same units from ")
    assert "sales_of_one_sku_never_overlap" not in answer.content.decode()
    # The control: without the look of the form the database refuses it, by the name of its constraint.
    monkeypatch.setattr(SaleForm, "_check_overlap", lambda *_: None)
    assert "sales_of_one_sku_never_overlap" in manager.post(ADD, filled(sku, **only)).content.decode()
    assert Sale.objects.filter(stock__sku=card.sku).count() == 1


def test_the_overlap_is_looked_for_once_the_stock_is_locked(
    manager: Client, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two clicks on Save waits for the first, and finds its sale."""
    card, sku, lock_stock = over(make_sale(new_sku(), units=3)), new_sku(), sale_form.lock_stock
    only = {"product": Product.objects.get(slug=card.sku).pk, "sku": "", "units": "", "list_price": "", "tagline": ""}

    def wait_for_the_first(cursor: Any, *, sku: str) -> None:
        next_sale(card)
        lock_stock(cursor, sku=sku)

    monkeypatch.setattr(sale_form, "lock_stock", wait_for_the_first)
    answer = manager.post(ADD, filled(sku, **only, picture=""))
    ((reason,),) = answer.context["adminform"].form.errors.values()
    assert reason.startswith(f"{card.slug}-again sells the same units from ")


def window_of(opens: datetime, closes: datetime) -> dict[str, Any]:
    """Return the fields of a form for a window."""
    moments = {"opens_at": opens, "closes_at": closes}
    dates = {f"{name}_0": moment.date() for name, moment in moments.items()}
    return dates | {f"{name}_1": moment.strftime("%H:%M:%S") for name, moment in moments.items()}


@pytest.mark.parametrize("retires", [False, True])
def test_a_planned_sale_that_is_closed_frees_its_window(
    retires: bool, manager: Client, new_sku: Callable[[], str]
) -> None:
    card, sku = make_sale(new_sku(), units=3, opens_in_seconds=3600, closes_in_seconds=7200), new_sku()
    product = Product.objects.get(slug=card.sku)
    form = filled(sku, product=product.pk, units="", list_price="", tagline="", picture="") | {"sku": ""}
    form |= window_of(card.opens_at, card.closes_at)
    # The control: while it is planned, nobody else has its window.
    (reason,) = manager.post(ADD, form).context["adminform"].form.errors["opens_at"]
    assert reason.startswith(f"{card.slug} sells the same units")
    sale_control.close(card.slug, actor="olga")
    if retires:
        retiring.retire(card.slug, actor="olga", reason="planned by mistake")
    assert manager.post(ADD, form).status_code == 302
    assert catalogue.find_sale(f"{sku}-drop").state_at(card.opens_at) == "open"
    assert catalogue.find_sale(card.slug).state_at(card.opens_at) == "closed"


def test_without_the_right_to_change_stock_only_products_there_are_can_be_sold(new_sku: Callable[[], str]) -> None:
    sku = new_sku()
    user = User.objects.create_user(f"editor-{token_hex(4)}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["add_sale", "view_sale", "add_product"]))
    client = browser_of(user=user)
    assert 'name="units"' not in client.get(ADD).content.decode()
    answer = client.post(ADD, filled(sku))
    assert list(answer.context["adminform"].form.errors) == ["product"]
    assert not Stock.objects.filter(sku=sku).exists()
    user.user_permissions.add(Permission.objects.get(codename="change_stock", content_type__app_label="shop"))
    assert client.post(ADD, filled(sku)).status_code == 302
    assert Stock.objects.get(sku=sku).total == 12


def test_what_a_sale_has_already_may_stay(manager: Client, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=3, hold_seconds=2)
    sale = Sale.objects.get(slug=card.slug)
    form = manager.get(f"/admin/shop/sale/{sale.pk}/change/").context["adminform"].form
    data = {name: form.initial.get(name) for name in form.fields if not name.endswith("_at")} | {"title": "Kite"}
    for name in ("opens_at", "closes_at"):
        moment = getattr(sale, name)
        data |= {f"{name}_0": moment.date(), f"{name}_1": moment.strftime("%H:%M:%S")}
    answer = manager.post(f"/admin/shop/sale/{sale.pk}/change/", data)
    assert answer.status_code == 302, answer.context["errors"]
    assert Sale.objects.get(pk=sale.pk).title == "Kite"


def test_a_sale_is_the_beginning_of_another(manager: Client, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=3, limit=4, line_capacity=0, network_limit=0)
    page = manager.get("/admin/shop/sale/", {"q": card.sku})
    (sale,) = page.context["cl"].result_list
    link = page.content.decode().split('href="/admin/shop/sale/add/?')[-1].split('"')[0].replace("&amp;", "&")
    form = manager.get(f"{ADD}?{link}").context["adminform"].form
    assert (str(form["product"].value()), str(form["per_buyer_limit"].value())) == (str(sale.product_id), "4")
    assert (form["title"].value(), form["slug"].value()) == ("Paper kite", None)
    # 0 is no missing value: without it a sale for one office would refuse most of it.
    assert (str(form["per_network_limit"].value()), str(form["line_capacity"].value())) == ("0", "0")


def test_the_list_shows_the_newest_sale_first_with_its_units(manager: Client, new_sku: Callable[[], str]) -> None:
    sku = new_sku()
    make_sale(f"{sku}-old"[:40], units=3, opens_in_seconds=-500)
    make_sale(f"{sku}-new"[:40], units=7)
    page = manager.get("/admin/shop/sale/", {"q": sku})
    assert [sale.stock.sku for sale in page.context["cl"].result_list] == [f"{sku}-new", f"{sku}-old"]
    assert '<td class="field-free">7</td>' in page.content.decode()


@pytest.mark.parametrize("sends_mails", [True, False])
def test_only_a_shop_that_sends_mails_asks_for_an_email(
    sends_mails: bool, manager: Client, new_sku: Callable[[], str]
) -> None:
    sku = new_sku()
    with override_settings(MAIL_ON=sends_mails):
        answer = manager.post(ADD, filled(sku, email_mode="once"))
    assert answer.status_code == (302 if sends_mails else 200)
    assert list(Sale.objects.filter(slug=f"{sku}-drop").values_list("email_mode", flat=True)) == ["once"] * sends_mails
    if not sends_mails:
        assert b"nobody could get a code" in answer.content
