"""The delivery address in a real browser: asked for before the payment, kept through errors and a lost answer, changed,
shown on the receipt. With script and without, on a phone and on a desk, in both languages. And the time that is left on
the payment page, and a quantity that stays when the language changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from shop.models import DeliveryAddress, Sale
from shop.sales.catalogue import SaleCard
from tests.journeys.broken_networks import lose_answers
from tests.journeys.visits import DESKTOP, PHONE, Visit
from tests.support.http_calls import Caller
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
LI = {
    "name": "李雷",
    "lines": "朝阳区建国路 88 号\n3 号楼 1204 室",
    "postcode": "100022",
    "city": "北京市",
    "country": "中国",
}
DELIVERY = "**/requests/*/delivery/"
TERMS = [
    {},
    {"locale": "zh-CN", "viewport": DESKTOP},
    {"java_script_enabled": False, "viewport": DESKTOP},
    {"locale": "zh-CN", "java_script_enabled": False},
]


@pytest.fixture
def shipping(open_sale: MakeSale) -> MakeSale:
    """Return a function that makes a sale whose goods are sent."""

    def make(**terms: Any) -> SaleCard:
        card = open_sale(**terms)
        Sale.objects.filter(pk=card.sale_id).update(ships=True)
        return card

    return make


@pytest.mark.parametrize("terms", TERMS, ids=["phone", "desktop-zh", "desktop-no-script", "phone-zh-no-script"])
def test_an_address_is_given_changed_and_stands_on_the_receipt(
    shipping: MakeSale, visit: OpenVisit, terms: dict[str, Any]
) -> None:
    card, buyer = shipping(units=1), visit(**terms)
    has_script = terms.get("java_script_enabled", True)
    pay = "支付 €" if "locale" in terms else "Pay €"
    ticket = buyer.get_one(card)
    expect(buyer.page.get_by_role("button", name=pay)).to_have_count(0)
    if has_script:
        buyer.check_page()
    assert buyer.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    buyer.picture(f"delivery-asked-{len(terms)}-{has_script}")
    buyer.give_address(LI)
    expect(buyer.page.get_by_role("button", name=pay)).to_be_visible()
    buyer.page.locator(".delivery summary").click()
    buyer.page.locator(".delivery [name=name]").fill("韩梅梅")
    buyer.page.locator(".delivery form:has(textarea) button").click()
    expect(buyer.page.locator(".delivery address")).to_contain_text("韩梅梅")
    if has_script:
        buyer.check_page()
    buyer.picture(f"delivery-kept-{len(terms)}-{has_script}")
    buyer.press(pay)
    buyer.page.wait_for_url("**/sandbox/pay/**")
    expect(buyer.page.locator(".timer")).to_be_visible()
    buyer.picture(f"payment-page-{len(terms)}-{has_script}")
    buyer.press(pay)
    buyer.page.wait_for_url(f"**/requests/{ticket}/")
    buyer.reload()
    buyer.sees_state("paid")
    expect(buyer.page.locator(".delivery address")).to_contain_text("3 号楼 1204 室")
    buyer.picture(f"delivery-receipt-{len(terms)}-{has_script}")


def test_a_wrong_field_is_said_in_place_and_nothing_typed_is_lost(shipping: MakeSale, visit: OpenVisit) -> None:
    card, buyer = shipping(units=1), visit()
    ticket = buyer.get_one(card)
    for name, text in {**LI, "lines": "一\n二\n三\n四\n五"}.items():
        buyer.page.locator(f".delivery [name={name}]").fill(text)
    buyer.page.locator(".delivery form button").click()
    buyer.sees("Use four lines at most.")
    buyer.check_page()
    buyer.picture("delivery-refused")
    expect(buyer.page.locator(".delivery [name=city]")).to_have_value("北京市")
    assert not DeliveryAddress.objects.filter(request_id=ticket).exists()
    buyer.give_address(LI)
    expect(buyer.page.get_by_role("button", name="Pay €")).to_be_visible()


def test_an_address_whose_answer_was_lost_is_kept_once(
    shipping: MakeSale, visit: OpenVisit, whole_shop: Caller
) -> None:
    card, buyer = shipping(units=1), visit()
    ticket = buyer.get_one(card)
    sent = lose_answers(buyer, whole_shop, DELIVERY, times=2)
    buyer.give_address(LI)
    wait_until(lambda: buyer.page.title() and len(sent) >= 3, what="it was sent until it was answered")
    assert len(set(sent)) == 1
    assert DeliveryAddress.objects.filter(request_id=ticket).count() == 1


def test_the_payment_page_says_when_the_hold_is_over(open_sale: MakeSale, visit: OpenVisit) -> None:
    """What it counts down to is the end that the hold had when the payment was begun."""
    card, buyer = open_sale(units=1, hold_seconds=600), visit()
    buyer.page.clock.install()
    buyer.get_one(card)
    buyer.press("Pay €")
    buyer.page.wait_for_url("**/sandbox/pay/**")
    over = buyer.page.get_by_text("The hold has ended:")
    expect(over).to_be_hidden()
    buyer.check_page()
    buyer.page.clock.fast_forward(601_000)
    expect(over).to_be_visible()


@pytest.mark.parametrize("has_script", [True, False])
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_quantity_stays_when_the_language_changes(
    open_sale: MakeSale, visit: OpenVisit, viewport: dict[str, int], has_script: bool
) -> None:
    card, buyer = open_sale(units=9, limit=5), visit(viewport=viewport, java_script_enabled=has_script)
    buyer.see_sale(card)
    buyer.page.locator("select[name=quantity]").select_option("4")
    buyer.press("简体中文")
    expect(buyer.page.locator("html")).to_have_attribute("lang", "zh-Hans")
    expect(buyer.page.locator("select[name=quantity]")).to_have_value("4")
    buyer.press("English")
    expect(buyer.page.locator("html")).to_have_attribute("lang", "en")
    expect(buyer.page.locator("select[name=quantity]")).to_have_value("4")
    buyer.press("Get mine")
    buyer.page.wait_for_url("**/requests/**")
    buyer.sees_state("held")
    buyer.sees("4 × €15.00")


def test_the_language_changes_after_the_form_is_gone(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=9), visit()
    buyer.see_sale(card)
    buyer.page.evaluate("document.querySelector('form.buy').remove()")
    buyer.press("简体中文")
    expect(buyer.page.locator("html")).to_have_attribute("lang", "zh-Hans")
    assert buyer.page.url.endswith(f"/sales/{card.slug}/")
