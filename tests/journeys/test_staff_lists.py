"""Staff in a real browser with lists: everything of an order and a sale is seen at 1280 px, many are refunded at once,
and what is shown leaves as CSV. Pictures of each page are kept.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import expect

from shop.models import Order
from shop.orders.numbers import order_number
from shop.sales.catalogue import SaleCard
from tests.journeys.visits import DESKTOP, Visit
from tests.support import road
from tests.support.shopkeeping import pay
from tests.support.staff import browser_of
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]


@pytest.fixture
def staff(visit: OpenVisit) -> Callable[..., Visit]:
    """Return a function that opens the browser of somebody of the staff, signed in."""

    def open_one(role: str = "manager", **terms: Any) -> Visit:
        signed_in = browser_of(role).cookies[settings.SESSION_COOKIE_NAME].value
        opened = visit(**{"viewport": DESKTOP, **terms})
        cookie = {"name": settings.SESSION_COOKIE_NAME, "value": signed_in, "url": opened.root}
        opened.context.add_cookies([cookie])
        return opened

    return open_one


def bought(card: SaleCard, *buyers: str) -> list[Order]:
    names = road.queue(card, *(f"{buyer}-{card.sku}" for buyer in buyers))
    wait_until(lambda: Order.objects.filter(request_id__in=names, state="held").count() == len(names))
    pay(*names)
    return [Order.objects.get(request_id=name) for name in names]


def fits(staff_member: Visit) -> bool:
    """Say whether the whole width of a list is seen without scrolling."""
    return bool(
        staff_member.page.evaluate(
            "[document.documentElement, document.querySelector('#changelist .results')]"
            ".every(each => each.scrollWidth <= each.clientWidth)"
        )
    )


def test_orders_are_found_refunded_together_and_exported(open_sale: MakeSale, staff: Callable[..., Visit]) -> None:
    card, manager = open_sale(units=5), staff()
    orders = bought(card, "ann", "bob", "eve")
    manager.go(f"/admin/shop/order/?sale__id__exact={card.sale_id}")
    manager.check_page(preload=False)
    manager.picture("order-list")
    assert fits(manager)
    page = manager.page
    page.locator("#searchbar").fill(order_number(orders[0].pk))
    manager.press("Search")
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    expect(page.locator("#result_list tbody tr")).to_contain_text(order_number(orders[0].pk))
    manager.go(f"/admin/shop/order/?sale__id__exact={card.sale_id}")
    for order in orders[:2]:
        page.locator(f"input[name=_selected_action][value='{order.pk}']").check()
    page.locator("select[name=action]").select_option("refund")
    manager.press("Go")
    manager.sees("2 orders, 2 units, €30.00.")
    manager.check_page(preload=False)
    manager.picture("bulk-refund")
    page.get_by_label("Reason").select_option("faulty")
    manager.press("Refund several orders")
    manager.sees("2 orders are done. €30.00 goes back.")
    manager.check_page(preload=False)
    assert [Order.objects.get(pk=order.pk).state for order in orders] == ["refunded", "refunded", "paid"]
    manager.go(f"/admin/shop/order/?sale__id__exact={card.sale_id}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export as CSV").click()
    assert re.fullmatch(r"orders-\w+\.csv", download.value.suggested_filename)
    with open(download.value.path(), newline="") as file:
        rows = list(csv.DictReader(file))
    states = dict(zip(orders, ("refunded", "refunded", "paid"), strict=True))
    assert {row["order_number"]: row["state"] for row in rows} == {
        order_number(order.pk): state for order, state in states.items()
    }


def test_sales_and_revenue_are_seen_whole(open_sale: MakeSale, staff: Callable[..., Visit]) -> None:
    card, viewer = open_sale(units=5), staff("viewer")
    bought(card, "ann")
    viewer.go(f"/admin/shop/sale/?q={card.slug}")
    row = viewer.page.locator("#result_list tbody tr")
    for name, text in (("free", "4"), ("held", "0"), ("sold", "1"), ("revenue", "€15.00")):
        expect(row.locator(f"td.field-{name}")).to_have_text(text)
    viewer.check_page(preload=False)
    viewer.picture("sale-list")
    assert fits(viewer)
    row.get_by_role("link").first.click()
    viewer.sees("The sale is open.")
    viewer.go("/admin/shop/revenue/")
    expect(viewer.page.get_by_role("region", name="Revenue per sale")).to_contain_text(card.slug)
    viewer.check_page(preload=False)
    viewer.picture("revenue")
