"""Sold out, and one comes back: somebody stands by in a real browser, another one gives theirs back, and it is held and
paid. On a phone, with script and without, in both languages.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from shop.models import Order
from shop.payments import refunds
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.journeys.visits import PHONE, Visit, take_all
from tests.support import road
from tests.support.shopkeeping import assert_books_balance, pay
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
WORDS = {
    "en-GB": ("Sold out", "Stand by", "Nothing is reserved.", "Every unit is paid for.", "Pay €", "Paid. It is yours."),
    "zh-CN": ("已售罄", "登记递补", "不为您保留任何商品。", "每一件都已付款", "支付 €", "已付款，它是您的了。"),
}


def sold_out_sale(make: MakeSale) -> tuple[SaleCard, str]:
    """Return a sale whose only unit is paid for, and the request that has it."""
    card = make(units=1)
    name = take_all(card)
    wait_until(lambda: Order.objects.filter(request_id=name, state="held").exists())
    pay(name)
    return card, name


@pytest.mark.parametrize("locale", WORDS)
@pytest.mark.parametrize("script", [True, False], ids=["script", "none"])
def test_who_stands_by_gets_the_unit_that_comes_back(
    locale: str, script: bool, open_sale: MakeSale, visit: OpenVisit
) -> None:
    card, owner = sold_out_sale(open_sale)
    one = visit(viewport=PHONE, locale=locale, java_script_enabled=script)
    over, stand_by, nothing_reserved, all_paid, pay_now, paid = WORDS[locale]
    look_until(one, card, over, script=script)
    one.page.get_by_role("button", name=stand_by, exact=True).click()
    one.page.wait_for_url("**/requests/**")
    one.sees_state("standby")
    one.sees(nothing_reserved)
    one.sees(all_paid)
    expect(one.page.locator("[data-beyond]")).to_be_hidden()
    if script:
        one.check_page()
    one.picture(f"ticket-standby-{locale}{'' if script else '-none'}")
    refunds.refund_order(owner, actor="anna", reason="asked for")
    one.sees_state("held")  # by itself, with script and without
    one.press(pay_now)
    one.page.wait_for_url("**/sandbox/pay/**")
    one.page.locator("form.buy button").first.click()
    one.page.wait_for_url("**/requests/**")
    one.sees_state("paid")
    one.sees(paid)
    assert_books_balance(card)


def look_until(one: Visit, card: SaleCard, word: str, *, script: bool) -> None:
    """Look at the sale until it is sold out for this browser too; without script the page does not change by itself."""

    def seen() -> bool:
        one.see_sale(card)
        return one.page.locator("[data-sale]").get_attribute("data-state") == "sold_out"

    wait_until(seen)
    one.sees(word)
    one.picture(f"sale-standby-{one.page.locator('html').get_attribute('lang')}{'' if script else '-none'}")


def test_a_full_line_offers_standby_and_another_buyer_who_gives_back_ends_it(
    open_sale: MakeSale, visit: OpenVisit
) -> None:
    """The line is full while one unit is held: the page says so, and its button asks for standby."""
    card, holder, late = open_sale(units=1, line_capacity=0), visit(), visit(viewport=PHONE)
    holder.get_one(card)
    road.queue(card, "waiting-0000000000000000")
    late.see_sale(card)
    late.page.locator("form.buy button").click()
    late.sees("The line is full right now")
    late.picture("sale-line-full")
    late.press("Stand by")
    late.page.wait_for_url("**/requests/**")
    late.sees_state("standby")
    late.sees("Held and not paid yet:")
    holder.page.locator(".acts summary").click()
    holder.page.locator(".acts details button").click()
    holder.sees_state("cancelled")
    # First the one who waited in line, then the one on standby.
    wait_until(lambda: Order.objects.filter(buyer="waiting-0000000000000000", state="held").exists())
    late.sees_state("standby")
    sale_control.restock(card.slug, units=1, actor="anna")
    late.sees_state("held")
    late.pay()
    late.sees_state("paid")
    assert_books_balance(card)


def test_at_the_close_each_is_told(open_sale: MakeSale, visit: OpenVisit) -> None:
    (card, _), one = sold_out_sale(open_sale), visit()
    look_until(one, card, "Sold out", script=True)
    one.press("Stand by")
    one.page.wait_for_url("**/requests/**")
    one.sees_state("standby")
    sale_control.close(card.slug, actor="anna")
    one.sees_state("sold_out")
    one.sees("No unit came back for you")
    one.picture("ticket-standby-over")
    assert_books_balance(card)
