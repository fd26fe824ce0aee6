"""The quantity that a buyer chose stays chosen when the sale page follows the sale to another state, and the request
asks for so many. On a phone and on a desk. Each control takes a guard out of sale.js.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from shop.models import Order, Sale
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.journeys.visits import DESKTOP, PATIENCE_MS, PHONE, Visit, take_all
from tests.support.http_calls import Caller
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
SCRIPT = Path(__file__).resolve().parents[2] / "shop" / "static" / "shop" / "sale.js"
# What puts the choice back; without it every new form begins with one.
CHOICE = "if (option.value === chosen) option.selected = true;"
FOCUS = "if (isFocused) select?.focus({ preventScroll: true });"
# An open sale looks again after at most so long (static/shop/sale.js): five seconds and a fifth.
LOOKS_MS = 6_100
LOOKS = [{"viewport": PHONE}, {"viewport": DESKTOP, "locale": "zh-CN"}]
BUTTON, QUANTITY = "form.buy button", "form.buy [name=quantity]"
in_both_looks = pytest.mark.parametrize("terms", LOOKS, ids=["phone", "desktop-zh"])


def without(guard: str, buyer: Visit) -> None:
    """Let this browser get a sale.js that lacks one of its statements."""
    text = SCRIPT.read_text()
    assert text.count(guard) == 1
    altered = text.replace(guard, ";")
    buyer.context.route("**/sale*.js", lambda route: route.fulfill(body=altered, content_type="text/javascript"))


def choose_three(card: SaleCard, buyer: Visit) -> None:
    """Choose three units, and then tap next to the form: it has no focus that would protect it."""
    buyer.page.clock.install()
    buyer.see_sale(card)
    buyer.page.evaluate("delete AbortSignal.timeout")  # it goes by the page's clock, which the test turns on
    buyer.page.locator(QUANTITY).select_option("3")
    buyer.page.locator("h1").click()
    assert buyer.page.evaluate("document.activeElement.tagName") != "SELECT"


def look(buyer: Visit, state: str) -> None:
    """Let the page look again and find the sale in `state`."""
    sale = buyer.page.locator("[data-sale]")

    def found() -> bool:
        buyer.page.clock.run_for(LOOKS_MS)
        buyer.page.wait_for_timeout(100)
        return sale.get_attribute("data-state") == state

    wait_until(found, timeout_seconds=PATIENCE_MS / 1000)


def pause_and_resume(card: SaleCard, buyer: Visit) -> None:
    sale_control.pause(card.slug, actor="anna", reason="A fault at packing.")
    look(buyer, "paused")
    expect(buyer.page.locator(QUANTITY)).to_have_count(0)
    sale_control.resume(card.slug, actor="anna")
    look(buyer, "open")


def test_the_form_comes_back_after_a_pause_for_one_whose_focus_is_on_a_link(
    open_sale: MakeSale, visit: OpenVisit
) -> None:
    card, buyer = open_sale(units=5, limit=4), visit()
    choose_three(card, buyer)
    sale_control.pause(card.slug, actor="anna", reason="A fault at packing.")
    look(buyer, "paused")
    buyer.page.locator("[data-live=buy] a").focus()
    sale_control.resume(card.slug, actor="anna")
    look(buyer, "open")
    expect(buyer.page.locator(BUTTON)).to_be_enabled()


@in_both_looks
def test_it_outlives_a_pause(open_sale: MakeSale, visit: OpenVisit, terms: dict[str, object]) -> None:
    card, buyer = open_sale(units=5, limit=4), visit(**terms)
    choose_three(card, buyer)
    pause_and_resume(card, buyer)
    expect(buyer.page.locator(QUANTITY)).to_have_value("3")
    buyer.page.locator(BUTTON).click()
    buyer.page.wait_for_url("**/requests/**")
    wait_until(lambda: Order.objects.filter(request_id=buyer.request_id).exists(), what="it is decided")
    assert Order.objects.get(request_id=buyer.request_id).quantity == 3


@in_both_looks
def test_it_stays_when_the_last_unit_is_held(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller, terms: dict[str, object]
) -> None:
    """So does an access code, which is half typed: it lies outside of what a look replaces."""
    card, buyer = open_sale(units=1, limit=4), visit(**terms)
    Sale.objects.filter(pk=card.sale_id).update(codes_required=True)
    page = f"/sales/{card.slug}/"
    wait_until(lambda: b'name="code"' in whole_shop.get(page).body, timeout_seconds=PATIENCE_MS / 1000)
    choose_three(card, buyer)
    buyer.page.locator("[name=code]").fill("KITE-12")
    take_all(card)
    look(buyer, "all_held")
    expect(buyer.page.locator(QUANTITY)).to_have_value("3")
    expect(buyer.page.locator("[name=code]")).to_have_value("KITE-12")
    expect(buyer.page.locator("[name=code]")).to_be_focused()


@pytest.mark.parametrize("is_guarded", [True, False], ids=["as it is", "control"])
def test_focus_stays_on_it_when_a_sale_is_postponed(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller, is_guarded: bool
) -> None:
    """Then the form is replaced even while somebody uses it."""
    card, buyer = open_sale(units=5, limit=4), visit()
    if not is_guarded:
        without(FOCUS, buyer)
    choose_three(card, buyer)
    buyer.page.locator(QUANTITY).focus()
    # The page comes from the shop as it is; only its state is one that the shop says of a sale to come.
    opens = open_sale(units=5, limit=4, opens_in_seconds=600)
    other = whole_shop.get(f"/sales/{opens.slug}/").body
    buyer.context.route(f"**/sales/{card.slug}/", lambda route: route.fulfill(body=other, content_type="text/html"))
    look(buyer, "scheduled")
    expect(buyer.page.locator(QUANTITY)).to_have_value("3")
    assert (buyer.page.evaluate("document.activeElement.name") == "quantity") is is_guarded


def test_without_the_guard_it_falls_back_to_one(open_sale: MakeSale, visit: OpenVisit) -> None:
    """The control."""
    card, buyer = open_sale(units=5, limit=4), visit()
    without(CHOICE, buyer)
    choose_three(card, buyer)
    pause_and_resume(card, buyer)
    expect(buyer.page.locator(QUANTITY)).to_have_value("1")
