"""Buying in a real browser: one unit and two who want it, and everything a nervous person does to a page meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from shop.models import Order, Payment
from shop.orders.numbers import order_number
from shop.payments import refunds
from shop.sales.catalogue import SaleCard
from tests.journeys.visits import DESKTOP, Visit
from tests.support.shopkeeping import assert_books_balance, let_holds_end, pay_all
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]


def orders_of(card: SaleCard) -> list[Order]:
    return list(Order.objects.filter(sale_id=card.sale_id).order_by("id"))


def test_two_buyers_and_one_unit(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, first, second = open_sale(units=1), visit(), visit(viewport=DESKTOP)
    first.get_one(card)
    first.sees("It is yours")
    second.wait_in_line(card)
    second.sees("No unit is free right now.")
    second.sees("The next may lapse at")
    first.pay()
    first.sees_state("paid")
    first.sees("This page is your receipt")
    order = Order.objects.get(request_id=first.request_id)
    expect(first.page.locator(".receipt code")).to_have_text(order_number(order.pk))
    # Nothing can come back any more: who waited is told at once, without touching anything.
    second.sees_state("sold_out")
    second.sees("Sold out before your turn")
    assert [order.state for order in orders_of(card)] == ["paid", "sold_out"]
    assert_books_balance(card)


# By language: while two wait, when they are held, when the hold ran out, when they are paid for, and when they go back.
OF_TWO = {
    "en-GB": (
        "Not enough units are free right now.", "They are yours", "They were not paid in time",
        "Paid. They are yours.", "the units are not yours any more",
    ),
    "zh-CN": (
        "目前空闲的商品不够。", "它是您的了", "未在时限内付款，已不再为您保留。",
        "已付款，它是您的了。", "款项全部退回，商品不再归您。",
    ),
}  # fmt: skip


def ask_for_two(buyer: Visit, card: SaleCard) -> None:
    buyer.see_sale(card)
    buyer.page.locator("select[name=quantity]").select_option("2")
    buyer.page.locator("form.buy button").click()
    buyer.page.wait_for_url("**/requests/**")


@pytest.mark.parametrize("locale", OF_TWO)
def test_two_units_are_spoken_of_as_two(locale: str, open_sale: MakeSale, visit: OpenVisit) -> None:
    waits, held, lapsed, paid, refunded = OF_TWO[locale]
    card, first, second = open_sale(units=3, limit=2), visit(locale=locale), visit(locale=locale)
    ask_for_two(first, card)
    first.sees_state("held")
    first.sees(held)
    ask_for_two(second, card)
    second.sees_state("waitlisted")
    second.sees(waits)
    let_holds_end(first.request_id)
    second.sees_state("held")
    second.sees(held)
    first.reload()
    first.sees_state("expired")
    first.sees(lapsed)
    pay_all(card)
    second.reload()
    second.sees(paid)
    refunds.refund_order(second.request_id, actor="anna", reason="asked for")
    second.reload()
    second.sees(refunded)
    assert_books_balance(card)


def test_a_browser_without_time_limits_for_its_calls_buys_and_pays(open_sale: MakeSale, visit: OpenVisit) -> None:
    """Those of 2022 and before have no AbortSignal.timeout."""
    card, buyer = open_sale(units=1), visit()
    buyer.page.add_init_script("delete AbortSignal.timeout;")
    buyer.get_one(card)
    buyer.pay()
    buyer.sees_state("paid")
    assert buyer.page.evaluate("AbortSignal.timeout") is None


def test_a_double_click_is_one_request(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=5, limit=3), visit()
    buyer.see_sale(card)
    buyer.page.get_by_role("button", name="Get mine").dblclick()
    buyer.page.wait_for_url("**/requests/**")
    buyer.sees_state("held")
    assert len(orders_of(card)) == 1


def test_two_tabs_are_one_request(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=5, limit=3), visit()
    buyer.see_sale(card)
    other = buyer.context.new_page()
    other.goto(buyer.page.url)
    buyer.press("Get mine")
    buyer.page.wait_for_url("**/requests/**")
    other.get_by_role("button", name="Get mine").click()
    other.wait_for_url("**/requests/**")
    assert other.url == buyer.page.url
    buyer.sees_state("held")
    expect(other.locator("[data-ticket]")).to_have_attribute("data-state", "held")
    assert len(orders_of(card)) == 1


def test_refresh_and_back_keep_the_ticket(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1), visit()
    ticket = buyer.get_one(card)
    for _ in range(3):
        buyer.reload()
    buyer.sees_state("held")
    buyer.page.go_back()
    buyer.page.wait_for_url("**/sales/**")
    buyer.page.go_forward()
    buyer.sees_state("held")
    buyer.see_sale(card)
    buyer.page.get_by_role("link", name="You asked here before").click()
    buyer.page.wait_for_url("**/requests/**")
    assert buyer.request_id == ticket
    assert len(orders_of(card)) == 1


def test_back_and_press_again_is_the_same_request(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=5, limit=3), visit()
    ticket = buyer.get_one(card)
    buyer.page.go_back()
    buyer.page.wait_for_url("**/sales/**")
    # Whether the browser kept the page or loaded it again: the kept form is the first press once more.
    kept = buyer.page.locator("[name=idempotency_key]").input_value() == "first-press"
    buyer.press("Get mine")
    buyer.page.wait_for_url("**/requests/**")
    assert (buyer.request_id == ticket) == kept
    buyer.sees_state("held")


def test_declined_then_paid(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1), visit()
    buyer.get_one(card)
    buyer.pay("Decline")
    buyer.sees("The payment was declined and nothing was charged.")
    buyer.pay()
    buyer.sees_state("paid")
    assert [order.state for order in orders_of(card)] == ["paid"]
    assert_books_balance(card)


def test_a_slow_notice_ends_in_a_receipt_without_a_touch(open_sale: MakeSale, visit: OpenVisit) -> None:
    asks = "**/api/v1/requests/*"
    for _ in range(10):  # again on a machine on which the shop is told before the page is there
        card, buyer = open_sale(units=1), visit()
        buyer.get_one(card)
        buyer.context.route(asks, lambda route: route.abort())  # it has not heard yet
        buyer.pay("Pay, and tell the shop seconds later")
        went = buyer.page.get_by_text("You went to pay.")
        expect(went.or_(buyer.page.get_by_text("This page is your receipt")).first).to_be_visible()
        if went.is_visible():
            break
    else:
        pytest.fail("the machine was too slow to see the page before the notice")
    buyer.context.unroute(asks)
    buyer.sees_state("paid")


def test_paying_too_late_gives_the_money_back(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, late, next_one = open_sale(units=1), visit(), visit()
    late.get_one(card)
    next_one.wait_in_line(card)
    late.press("Pay €")
    late.page.wait_for_url("**/sandbox/pay/**")
    (order,) = orders_of(card)
    let_holds_end(order.request_id)
    next_one.sees_state("held")
    late.page.get_by_role("button", name="Pay €").first.click()
    late.page.wait_for_url("**/requests/**")
    late.sees_state("refunded")
    late.sees("The payment came after the hold had run out")
    wait_until(
        lambda: Payment.objects.filter(order=order, state="refunded").exists(),
        what="the money went back",
    )
    assert_books_balance(card)


def test_without_script_everything_works(open_sale: MakeSale, visit: OpenVisit) -> None:
    card = open_sale(units=1)
    first, second = visit(java_script_enabled=False), visit(java_script_enabled=False)
    first.join(card)
    first.sees("It is yours")
    second.join(card)
    second.sees("No unit is free right now.")
    first.page.locator(".acts summary").click()
    first.press("Give it back for good")
    first.sees("You gave it back")
    second.sees("It is yours")  # by the page's own refresh
    second.press("Pay €")
    second.page.wait_for_url("**/sandbox/pay/**")
    second.page.get_by_role("button", name="Pay €").first.click()
    second.sees("This page is your receipt")
    assert [order.state for order in orders_of(card)] == ["cancelled", "paid"]


def test_without_script_no_countdown_stands_still(open_sale: MakeSale, visit: OpenVisit) -> None:
    """The moment itself is said. The control is the same page with script."""
    for has_script in (True, False):
        buyer = visit(java_script_enabled=has_script)
        buyer.join(open_sale(units=1))
        buyer.sees("It is yours")
        buyer.sees("Yours until")
        expect(buyer.page.locator(".timer")).to_have_count(1)
        expect(buyer.page.locator(".timer")).to_be_visible(visible=has_script)


def test_leaving_the_line(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, first, second = open_sale(units=1), visit(), visit()
    first.get_one(card)
    second.wait_in_line(card)
    second.page.locator(".acts summary").click()
    second.press("Leave the line for good")
    second.sees_state("cancelled")
    second.sees("You left the line")
    second.page.get_by_role("link", name="Ask again").click()
    second.press("Join the line")
    second.sees_state("waitlisted")


def test_by_keyboard_alone(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1), visit(viewport=DESKTOP)
    buyer.see_sale(card)
    buyer.page.keyboard.press("Tab")
    expect(buyer.page.get_by_role("link", name="Skip to content")).to_be_focused()
    buyer.page.keyboard.press("Enter")
    for _ in range(3):
        if buyer.page.evaluate("document.activeElement.textContent") == "Get mine":
            break
        buyer.page.keyboard.press("Tab")
    buyer.page.keyboard.press("Enter")
    buyer.page.wait_for_url("**/requests/**")
    buyer.sees_state("held")
    buyer.page.get_by_role("button", name="Pay €").focus()
    buyer.page.keyboard.press("Enter")
    buyer.page.wait_for_url("**/sandbox/pay/**")
