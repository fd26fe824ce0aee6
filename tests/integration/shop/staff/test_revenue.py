"""Revenue per sale and per day: refunds subtracted on their own day, currencies kept apart, minor units as they are.
And the list of sales that shows it. Real servers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from inventory.redis import keys
from shop.models import Order, OrderEvent, Sale
from shop.payments import refunds
from shop.sales import catalogue, priming
from shop.sales.catalogue import SaleCard
from shop.staff.lists import revenue
from shop.staff.lists.revenue_page import COLUMNS
from tests.support import road
from tests.support.query_plans import pages_read
from tests.support.shopkeeping import make_sale, pay
from tests.support.staff import browser_of, count_queries
from tests.support.waiting import wait_until
from workers.embedded.server import free_port

pytestmark = pytest.mark.usefixtures("shop_database")

PAGE, SALES = reverse("revenue"), reverse("admin:shop_sale_changelist")
TODAY, YESTERDAY = 0, 1


@pytest.fixture(autouse=True)
def one_day() -> None:
    """Begin no test in the last half minute of a day: each of them asks more than once which day it is."""
    wait_until(lambda: (timezone.now() + timedelta(seconds=30)).date() == timezone.now().date(), what="it is midnight")


@pytest.fixture
def new_card(new_sku: Callable[[], str]) -> Callable[..., SaleCard]:
    """Return a function that makes a sale with a price in a currency."""

    def make(*, price: str = "15.00", currency: str = "EUR", units: int = 5) -> SaleCard:
        card = make_sale(new_sku(), units=units)
        Sale.objects.filter(pk=card.sale_id).update(price=Decimal(price), currency=currency)
        priming.prime_sale(card.slug)
        return catalogue.find_sale(card.slug)

    return make


@pytest.fixture
def viewer() -> Client:
    return browser_of("viewer")


def sell(card: SaleCard, *buyers: str) -> list[Order]:
    names = road.queue(card, *(f"{buyer}-{card.sku}" for buyer in buyers))
    road.settle_line(card)
    pay(*names)
    return [Order.objects.get(request_id=name) for name in names]


def refund(order: Order) -> None:
    refunds.refund_order(order.request_id, actor="test", reason="a test", ask_now=False)


def move_back(order: Order, *, to_state: str, days: int) -> None:
    """Let a change of an order have happened some days ago; its history is never changed but by this test."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shop_orderevent DISABLE TRIGGER event_rows_never_change")
        cursor.execute("GRANT UPDATE ON shop_orderevent TO CURRENT_USER")
        OrderEvent.objects.filter(order=order, to_state=to_state).update(at=timezone.now() - timedelta(days=days))
        cursor.execute("ALTER TABLE shop_orderevent ENABLE TRIGGER event_rows_never_change")
        cursor.execute("REVOKE UPDATE ON shop_orderevent FROM CURRENT_USER")


def money_of(card: SaleCard, *, days_back: int = 3) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Return (day, currency) → what was taken, given back and is left of one sale."""
    today = timezone.now().date()
    rows = [row for row in revenue.read_rows(today - timedelta(days=days_back), today) if row.sale_id == card.sale_id]
    return {
        (str(row.day), row.currency): (str(row.money.taken), str(row.money.returned), str(row.money.net))
        for row in rows
    }


def csv_rows(browser: Client, card: SaleCard) -> list[dict[str, str]]:
    answer: Any = browser.get(PAGE, {"format": "csv"})
    assert answer.status_code == 200
    head, *rows = csv.reader(io.StringIO(b"".join(answer.streaming_content).decode(), newline=""))
    assert tuple(head) == COLUMNS
    return [dict(zip(head, row, strict=True)) for row in rows if row[1] == card.slug]


def test_a_refund_is_subtracted_on_its_own_day(new_card: Callable[..., SaleCard]) -> None:
    card = new_card()
    first, second, third = sell(card, "ann", "bob", "eve")
    refund(second)
    refund(third)
    move_back(second, to_state="paid", days=1)
    day = {back: str(timezone.now().date() - timedelta(days=back)) for back in (TODAY, YESTERDAY)}
    assert money_of(card) == {
        (day[TODAY], "EUR"): ("30.00", "30.00", "0.00"),
        (day[YESTERDAY], "EUR"): ("15.00", "0", "15.00"),
    }
    (earned,) = revenue.of_sales([card.sale_id])[card.sale_id]
    assert earned == ("EUR", Decimal("15.00"), 1)
    assert money_of(card, days_back=0).keys() == {(day[TODAY], "EUR")}
    assert first.pk


def test_a_hold_that_was_not_paid_and_money_in_vain_earn_nothing(new_card: Callable[..., SaleCard]) -> None:
    card = new_card()
    road.queue(card, f"ann-{card.sku}")
    road.settle_line(card)
    assert money_of(card) == {}
    assert revenue.of_sales([card.sale_id]) == {}


def test_currencies_are_never_added_to_each_other(viewer: Client, new_card: Callable[..., SaleCard]) -> None:
    card = new_card()
    (euro,) = sell(card, "ann")
    Sale.objects.filter(pk=card.sale_id).update(price=Decimal("1500"), currency="JPY")
    priming.prime_sale(card.slug)
    (yen,) = sell(catalogue.find_sale(card.slug), "bob")
    assert (euro.currency, yen.currency) == ("EUR", "JPY")
    today = str(timezone.now().date())
    assert money_of(card) == {(today, "EUR"): ("15.00", "0", "15.00"), (today, "JPY"): ("1500.00", "0", "1500.00")}
    shown = {row["currency"]: row for row in csv_rows(viewer, card)}
    assert (shown["EUR"]["revenue"], shown["JPY"]["revenue"]) == ("15.00", "1500")
    page = viewer.get(PAGE).content.decode()
    assert "¥1,500" in page
    assert "¥1,500.00" not in page
    row = viewer.get(SALES, {"q": card.slug}).content.decode()
    assert '<td class="field-revenue">€15.00 + ¥1,500</td>' in row


def test_the_page_refuses_wrong_days_with_a_sentence(viewer: Client) -> None:
    for wrong in ({"from_day": "soon"}, {"from_day": "2026-02-01", "until_day": "2026-01-01"},
                  {"from_day": "2020-01-01", "until_day": "2026-01-01"}):  # fmt: skip
        answer = viewer.get(PAGE, wrong)
        assert answer.status_code == 400, wrong
        assert "errorlist" in answer.content.decode()
    assert viewer.get(PAGE, {"from_day": "9999-12-31", "until_day": "9999-12-31"}).status_code == 200
    assert browser_of("none").get(PAGE).status_code == 403


def test_a_page_of_revenue_costs_the_same_for_few_and_many(viewer: Client, new_card: Callable[..., SaleCard]) -> None:
    sell(new_card(), "ann")
    viewer.get(PAGE)
    few = count_queries(lambda: viewer.get(PAGE))
    for _ in range(4):
        sell(new_card(), "ann", "bob")
    assert count_queries(lambda: viewer.get(PAGE)) == few


def test_revenue_is_read_by_its_own_index() -> None:
    money = OrderEvent.objects.extra(where=["(to_state = 'paid' OR from_state = 'paid')"]).filter(
        at__gte=timezone.now() + timedelta(days=400)
    )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # however few rows other tests have left
        assert "event_of_money" in money.explain()
        assert pages_read(money) <= 10


def test_the_list_of_sales_is_newest_first_with_units_line_and_revenue(
    viewer: Client, new_card: Callable[..., SaleCard]
) -> None:
    older, card = new_card(units=3), new_card(units=3)
    title = f"Kite {card.sku}"  # so that the list is of these two, whatever other tests have left
    Sale.objects.filter(pk__in=[older.sale_id, card.sale_id]).update(title=title)
    Sale.objects.filter(pk=older.sale_id).update(opens_at=timezone.now() - timedelta(hours=1))
    sell(card, "ann")
    road.queue(card, f"bob-{card.sku}")
    road.settle_line(card)
    road.queue(card, f"eve-{card.sku}")
    answer = viewer.get(SALES, {"q": title})
    assert [sale.slug for sale in answer.context["cl"].result_list] == [card.slug, older.slug]
    row = viewer.get(SALES, {"q": card.slug}).content.decode()
    for name, value in (
        ("state", "open"),
        ("free", 1),
        ("held", 1),
        ("sold", 1),
        ("in_line", 1),
        ("revenue", "€15.00"),
    ):
        assert f'<td class="field-{name}">{value}</td>' in row, name
    first = row.index('<td class="field-room_link')
    assert row.index(f'href="{reverse("admin:shop_sale_room", args=[card.sale_id])}"') - first < 60
    assert reverse("admin:shop_sale_change", args=[card.sale_id]) in row


def test_the_list_of_sales_is_shown_without_redis(viewer: Client, new_card: Callable[..., SaleCard]) -> None:
    card = new_card()
    with override_settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"):
        row = viewer.get(SALES, {"q": card.slug}).content.decode()
    assert '<td class="field-in_line">?</td>' in row
    assert '<td class="field-free">5</td>' in row


def test_a_sale_whose_line_is_damaged_hides_no_other_line_in_the_list(
    viewer: Client, new_card: Callable[..., SaleCard]
) -> None:
    damaged, card = new_card(), new_card()
    title = f"Kite {card.sku}"
    Sale.objects.filter(pk__in=[damaged.sale_id, card.sale_id]).update(title=title)
    road.run(("SET", keys.line(damaged.sku), "no sorted set"))
    rows = viewer.get(SALES, {"q": title}).content.decode()
    road.run(("DEL", keys.line(damaged.sku)))
    assert [rows.count(f'<td class="field-in_line">{waiting}</td>') for waiting in ("?", 0)] == [1, 1]


def test_the_days_of_the_page_are_written_as_a_browsers_calendar_takes_them(viewer: Client) -> None:
    """In Chinese too, whose own way to write a day leaves the calendar empty."""
    viewer.cookies["language"] = "zh-hans"
    today = timezone.now().date()
    assert f'<input type="date" name="until_day" value="{today:%Y-%m-%d}"' in viewer.get(PAGE).content.decode()
