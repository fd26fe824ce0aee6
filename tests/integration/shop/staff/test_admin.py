"""Proves the admin: staff see every counter, nobody writes stock or orders, lists cost a fixed number of queries.
Uses the real servers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from secrets import token_hex
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from structlog.testing import capture_logs

from inventory.exceptions import RedisUnavailable
from inventory.ledger import load_stock
from inventory.models import Stock, StockMovement
from shop.admin import SaleAdmin
from shop.models import Order, Product, Sale
from shop.sales import priming
from shop.staff.sale_form import SaleForm
from tests.support.staff import browser_of, count_queries

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def staff() -> Client:
    """Return a browser with a superuser in it: what even they cannot do, nobody can."""
    client = Client()
    client.force_login(User.objects.create_superuser(f"staff-{token_hex(4)}"))
    return client


@pytest.fixture
def make_stock(new_sku: Callable[[], str]) -> Callable[..., Stock]:
    """Return a function that makes a SKU with units and as many movements."""

    def make(*, loads: int = 1) -> Stock:
        sku = new_sku()
        with transaction.atomic(), connection.cursor() as cursor:
            for number in range(loads):
                load_stock(cursor, sku=sku, units=1, actor="test", reason=f"load number {number}.")
        return Stock.objects.get(sku=sku)

    return make


@pytest.fixture
def make_sale(make_stock: Callable[..., Stock]) -> Callable[[], Sale]:
    """Return a function that makes a sale that is open now."""

    def make() -> Sale:
        stock, now = make_stock(), timezone.now()
        product = Product.objects.create(slug=stock.sku, title="Paper kite", list_price="20.00", stock=stock)
        times = {"opens_at": now - timedelta(hours=1), "closes_at": now + timedelta(hours=1)}
        return Sale.objects.create(slug=stock.sku, product=product, stock=stock, title="Paper kite", price=15, **times)

    return make


def make_order(sale: Sale, *, buyer: str = "somebody") -> Order:
    return Order.objects.create(
        request_id=f"{sale.pk}-{token_hex(8)}",
        sale=sale,
        buyer=buyer,
        quantity=1,
        buyer_limit=1,
        seq=1,
        state="sold_out",
        unit_price=sale.price,
        currency="EUR",
    )


def form_of(sale: Sale | None = None, **changes: Any) -> dict[str, Any]:
    """Return what the sale form sends."""
    now = timezone.now()
    data = {
        "title": "Paper kite",
        "price": "15.00",
        "currency": "EUR",
        "opens_at_0": now.date(),
        "opens_at_1": now.strftime("%H:%M:%S"),
        "closes_at_0": (now + timedelta(days=1)).date(),
        "closes_at_1": "12:00:00",
        "per_buyer_limit": 2,
        "hold_seconds": 600,
        "line_capacity": 200,
    }
    return {**data, **changes}


def queries_of(browser: Client, path: str) -> int:
    """Return how many statements a page costs; it must be shown."""
    return count_queries(lambda: show(browser, path))


def show(browser: Client, path: str) -> None:
    assert browser.get(path).status_code == 200


def test_stock_shows_its_counters_and_last_movements_newest_first(
    staff: Client, make_stock: Callable[..., Stock]
) -> None:
    stock = make_stock(loads=60)
    text = staff.get(f"/admin/inventory/stock/{stock.pk}/change/").content.decode()
    assert text.index("load number 59.") < text.index("load number 10.")
    assert "load number 9." not in text
    assert 'name="available"' not in text


def test_nobody_writes_stock_or_movements(staff: Client, make_stock: Callable[..., Stock]) -> None:
    stock = make_stock()
    assert staff.get("/admin/inventory/stock/add/").status_code == 403
    assert staff.post("/admin/inventory/stock/add/", {"sku": "x", "total": 5}).status_code == 403
    assert staff.post(f"/admin/inventory/stock/{stock.pk}/change/", {"available": 99}).status_code == 403
    assert staff.post(f"/admin/inventory/stock/{stock.pk}/delete/", {"post": "yes"}).status_code == 403
    staff.post("/admin/inventory/stock/", {"action": "delete_selected", "_selected_action": stock.pk, "post": "yes"})
    again = Stock.objects.get(pk=stock.pk)
    assert (again.total, again.available, again.version) == (stock.total, stock.available, stock.version)
    assert StockMovement.objects.filter(stock=stock).count() == 1


def test_stock_is_found_by_sku_and_filtered_by_state(staff: Client, make_stock: Callable[..., Stock]) -> None:
    stock = make_stock()
    assert stock.sku in staff.get("/admin/inventory/stock/", {"q": stock.sku}).content.decode()
    for state, shown in (("selling", True), ("all_held", False), ("sold_out", False)):
        answer = staff.get("/admin/inventory/stock/", {"q": stock.sku, "state": state})
        assert (answer.context["cl"].result_count == 1) == shown


def test_orders_are_read_only_and_found_by_id_and_buyer(staff: Client, make_sale: Callable[[], Sale]) -> None:
    buyer = token_hex(8)
    order = make_order(make_sale(), buyer=buyer)
    for wanted in (order.request_id, buyer):
        assert staff.get("/admin/shop/order/", {"q": wanted}).context["cl"].result_count == 1
    assert staff.get("/admin/shop/order/add/").status_code == 403
    assert staff.get(f"/admin/shop/order/{order.pk}/change/").status_code == 200
    assert staff.post(f"/admin/shop/order/{order.pk}/change/", {"state": "paid"}).status_code == 403
    assert staff.post(f"/admin/shop/order/{order.pk}/delete/", {"post": "yes"}).status_code == 403


def test_a_new_sale_takes_the_stock_of_its_product_and_is_primed(
    staff: Client, make_stock: Callable[..., Stock], monkeypatch: pytest.MonkeyPatch
) -> None:
    primed: list[str] = []
    monkeypatch.setattr(priming, "prime_sale", primed.append)
    stock = make_stock()
    product = Product.objects.create(slug=stock.sku, title="Paper kite", list_price="20.00", stock=stock)
    answer = staff.post("/admin/shop/sale/add/", form_of(product=product.pk, slug=stock.sku))
    assert answer.status_code == 302, answer.context["errors"]
    assert Sale.objects.get(slug=stock.sku).stock == stock
    assert primed == [stock.sku]


def test_an_overlapping_sale_is_refused_on_the_form(staff: Client, make_sale: Callable[[], Sale]) -> None:
    first = make_sale()
    answer = staff.post("/admin/shop/sale/add/", form_of(product=first.product_id, slug=f"{first.slug}-b"))
    assert answer.status_code == 200
    assert Sale.objects.filter(stock=first.stock).count() == 1


@pytest.mark.parametrize("closes_in", [timedelta(days=-1), timedelta(seconds=-1), timedelta()])
@pytest.mark.parametrize("seen_version", ["1", "7", ""])
def test_a_sale_that_closes_before_it_opens_is_refused_with_a_sentence(
    staff: Client, make_sale: Callable[[], Sale], closes_in: timedelta, seen_version: str
) -> None:
    sale = make_sale()
    opens = timezone.now() + timedelta(days=3)
    closes = opens + closes_in
    dates = {"opens_at_0": opens.date(), "opens_at_1": opens.strftime("%H:%M:%S")}
    dates |= {"closes_at_0": closes.date(), "closes_at_1": closes.strftime("%H:%M:%S")}
    added = staff.post("/admin/shop/sale/add/", form_of(product=sale.product_id, slug=f"{sale.slug}-b", **dates))
    changed = staff.post(f"/admin/shop/sale/{sale.pk}/change/", form_of(seen_version=seen_version, **dates))
    for answer in (added, changed):
        assert answer.status_code == 200
        assert answer.context["adminform"].form.errors["closes_at"] == ["The sale must close after it opens."]
        assert "sale_ends_after_it_begins" not in answer.content.decode()
    assert list(Sale.objects.filter(stock=sale.stock).values_list("opens_at", "closes_at")) == [
        (sale.opens_at, sale.closes_at)
    ]


def closing(sale: Sale, closes: datetime, **changes: Any) -> dict[str, Any]:
    """Return what the form of `sale` sends with another end; the rest of its window is as it was."""
    moments = {"opens_at": sale.opens_at, "closes_at": closes}
    dates = {f"{name}_0": moment.date() for name, moment in moments.items()}
    times = {f"{name}_1": moment.strftime("%H:%M:%S") for name, moment in moments.items()}
    return form_of(seen_version=sale.revision, **dates, **times, **changes)


def test_the_form_ends_no_sale_that_is_not_over(staff: Client, make_sale: Callable[[], Sale]) -> None:
    sale, path = make_sale(), "/admin/shop/sale/{}/change/".format
    answer = staff.post(path(sale.pk), closing(sale, timezone.now() - timedelta(minutes=1)))
    (said,) = answer.context["adminform"].form.errors["closes_at"]
    assert said == "The sale would be over at once. To end one that runs, use Close."
    assert Sale.objects.get(pk=sale.pk).closes_at == sale.closes_at
    # The controls: an earlier end that is still to come, and a sale that is over and keeps its end.
    sooner = timezone.now() + timedelta(minutes=1)
    assert staff.post(path(sale.pk), closing(sale, sooner)).status_code == 302
    over = make_sale()
    Sale.objects.filter(pk=over.pk).update(closes_at=timezone.now() - timedelta(seconds=1))
    over.refresh_from_db()
    assert staff.post(path(over.pk), closing(over, over.closes_at, title="Silk kite")).status_code == 302
    assert Sale.objects.get(pk=over.pk).title == "Silk kite"


@pytest.mark.parametrize("seconds", [-1800, 10], ids=["over", "over before it is saved"])
def test_the_end_of_a_sale_that_is_over_stays(staff: Client, make_sale: Callable[[], Sale], seconds: int) -> None:
    over = make_sale()
    path, ended = f"/admin/shop/sale/{over.pk}/change/", timezone.now() + timedelta(seconds=seconds)
    Sale.objects.filter(pk=over.pk).update(closes_at=ended)
    over.refresh_from_db()
    for closes in (ended - timedelta(minutes=1), ended + timedelta(minutes=1)):
        (said,) = staff.post(path, closing(over, closes)).context["adminform"].form.errors["closes_at"]
        assert said == "This sale is over, or is within seconds, and its buyers are told so. Duplicate it instead."
    # The control: with the end that the form shows it is saved, and keeps its microseconds.
    assert staff.post(path, closing(over, ended, title="Silk kite")).status_code == 302
    over.refresh_from_db()
    assert (over.title, over.closes_at) == ("Silk kite", ended)


def test_the_control_without_that_look_a_constraint_of_the_database_is_named(
    staff: Client, make_sale: Callable[[], Sale], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SaleForm, "_check_window", lambda form, data: None)
    sale = make_sale()
    dates = {"closes_at_0": timezone.now().date() - timedelta(days=2)}
    answer = staff.post("/admin/shop/sale/add/", form_of(product=sale.product_id, slug=f"{sale.slug}-b", **dates))
    assert "closes_at" not in answer.context["adminform"].form.errors
    assert "sale_ends_after_it_begins" in answer.content.decode()


@pytest.mark.parametrize("missing", ["product", "slug", "opens_at_0", "closes_at_1", "price", "per_buyer_limit"])
def test_a_field_left_empty_is_said_on_the_form(staff: Client, make_stock: Callable[..., Stock], missing: str) -> None:
    stock = make_stock()
    product = Product.objects.create(slug=stock.sku, title="Paper kite", list_price="20.00", stock=stock)
    answer = staff.post("/admin/shop/sale/add/", {**form_of(product=product.pk, slug=stock.sku), missing: ""})
    assert answer.status_code == 200
    assert answer.context["errors"]


def test_a_change_is_primed_and_keeps_product_stock_and_slug(
    staff: Client, make_sale: Callable[[], Sale], monkeypatch: pytest.MonkeyPatch
) -> None:
    primed: list[str] = []
    monkeypatch.setattr(priming, "prime_sale", primed.append)
    sale, other = make_sale(), make_sale()
    change = form_of(title="Silk kite", slug="other", product=other.product_id, stock=other.stock_id, seen_version=1)
    answer = staff.post(f"/admin/shop/sale/{sale.pk}/change/", change)
    assert answer.status_code == 302, answer.context["errors"]
    again = Sale.objects.get(pk=sale.pk)
    assert (again.title, again.slug, again.product_id, again.stock_id) == (
        "Silk kite",
        sale.slug,
        sale.product_id,
        sale.stock_id,
    )
    assert primed == [sale.slug]


@pytest.mark.parametrize("error", [RedisUnavailable, OperationalError], ids=["Redis is away", "another one primes"])
def test_staff_are_told_when_the_line_could_not_be_reached(
    staff: Client, make_sale: Callable[[], Sale], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def away(_slug: str) -> None:
        raise error

    monkeypatch.setattr(priming, "prime_sale", away)
    sale = make_sale()
    form = form_of(title="Silk kite", seen_version=1)
    with capture_logs() as told:
        answer = staff.post(f"/admin/shop/sale/{sale.pk}/change/", form, follow=True)
    assert "the line could not be reached" in answer.content.decode()
    assert [each["sale"] for each in told if each.get("action") == "tell_failed"] == [sale.slug]
    assert Sale.objects.get(pk=sale.pk).title == "Silk kite"


def test_a_sale_is_never_deleted(staff: Client, make_sale: Callable[[], Sale]) -> None:
    sale = make_sale()
    assert staff.post(f"/admin/shop/sale/{sale.pk}/delete/", {"post": "yes"}).status_code == 403


@pytest.mark.parametrize(
    "path",
    ["/admin/inventory/stock/", "/admin/shop/product/", "/admin/shop/sale/", "/admin/shop/order/", "/admin/"],
)
def test_lists_cost_the_same_for_one_row_and_for_many(staff: Client, make_sale: Callable[[], Sale], path: str) -> None:
    make_order(make_sale())
    queries_of(staff, path)  # the first page of a process also learns its content types
    few = queries_of(staff, path)
    for _ in range(8):
        make_order(make_sale())
    assert queries_of(staff, path) == few


def test_the_stock_page_costs_the_same_for_one_movement_and_for_sixty(
    staff: Client, make_stock: Callable[..., Stock]
) -> None:
    one, sixty = make_stock(), make_stock(loads=60)
    # The first page of a process also learns its content types, which are kept from then on.
    queries_of(staff, f"/admin/inventory/stock/{one.pk}/change/")
    few = queries_of(staff, f"/admin/inventory/stock/{one.pk}/change/")
    assert queries_of(staff, f"/admin/inventory/stock/{sixty.pk}/change/") == few


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"request_key__startswith": "a"}, 400),
        ({"email_list__contains": "a"}, 400),
        ({"stock__sku": "a"}, 400),
        ({"opens_at__year": "9999"}, 400),
        ({"opens_at__year": "9999", "opens_at__month": "12"}, 400),
        ({"opens_at__year__gt": "99999"}, 400),
        ({"opens_at__contains": "\0"}, 400),
        ({"switch__exact": "paused"}, 200),
        ({"opens_at__gte": "2020-01-01 00:00:00+00:00", "opens_at__lt": "2100-01-01 00:00:00+00:00"}, 200),
        ({"opens_at__year": "2026", "opens_at__month": "1", "opens_at__day": "2"}, 200),
        ({"retired_at__isempty": "1"}, 200),
        ({"q": "kite", "o": "1"}, 200),
    ],
)
def test_the_list_of_sales_is_asked_by_its_filters_alone(query: dict[str, str], status: int) -> None:
    assert browser_of("viewer").get("/admin/shop/sale/", query).status_code == status


def test_every_list_refuses_a_value_that_the_database_cannot_read(staff: Client) -> None:
    for model in admin.site._registry:
        page = reverse(f"admin:{model._meta.label_lower.replace('.', '_')}_changelist")
        assert staff.get(page, {f"{model._meta.pk.name}__contains": "\0"}).status_code == 400, page


def test_a_list_that_fails_without_a_filter_is_a_fault(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("of our own")

    monkeypatch.setattr(SaleAdmin, "get_changelist_instance", fail)
    assert staff.get("/admin/shop/sale/", {"opens_at__year": "2026"}).status_code == 400
    for without in ({}, {"q": "kite", "p": "2", "o": "1"}):
        with pytest.raises(ValueError, match="of our own"):
            staff.get("/admin/shop/sale/", without)
