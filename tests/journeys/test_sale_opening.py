"""The moment a sale opens, in a real browser: the button is in view on every usual screen, before anybody scrolls, and
the page follows staff who bring the sale forward or postpone it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from shop.models import Product, Sale
from shop.sales.catalogue import SaleCard, prime_sale
from shop.staff import sale_control
from shop.web.sale_presenter import milliseconds
from tests.journeys.visits import PATIENCE_MS, Visit
from tests.support.http_calls import Caller
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
SCREENS = (
    (320, 568), (360, 640), (390, 844), (412, 915), (768, 1024), (844, 390), (1280, 720), (1366, 640),
)  # fmt: skip
# A scheduled sale looks again after at most so long (static/shop/sale.js): fifteen seconds and a fifth.
SCHEDULED_LOOKS_MS = 18_100
# Every corner of the button, and nothing lies over it.
IN_VIEW = """button => {
  const { left, top, right, bottom } = button.getBoundingClientRect();
  const corners = [[left + 6, top + 6], [right - 6, top + 6], [left + 6, bottom - 6], [right - 6, bottom - 6]];
  return window.scrollY === 0 && left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight
    && corners.every(([x, y]) => button.contains(document.elementFromPoint(x, y)));
}"""


def out_of_view(buyer: Visit) -> list[tuple[int, int]]:
    """Return the screens on which the button is not fully in view while nobody has scrolled."""
    button = buyer.page.locator("form.buy button")
    missed = []
    for width, height in SCREENS:
        buyer.page.set_viewport_size({"width": width, "height": height})
        buyer.page.evaluate("scrollTo(0, 0)")
        if not button.evaluate(IN_VIEW):
            missed.append((width, height))
    return missed


@pytest.mark.parametrize("limit", [1, 4])
def test_the_button_is_in_view_at_every_size(limit: int, open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1234, limit=limit), visit()
    buyer.see_sale(card)
    expect(buyer.page.get_by_role("button", name="Get mine")).to_be_enabled()
    assert out_of_view(buyer) == []
    # The control: the same look sees a button that lies at the end of a long page.
    buyer.page.locator("[data-live=buy]").evaluate("part => { part.style.position = 'static'; }")
    assert len(out_of_view(buyer)) >= 6


def test_the_button_is_in_view_below_long_texts(open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller) -> None:
    card, buyer = open_sale(units=1, limit=4), visit()
    Sale.objects.filter(pk=card.sale_id).update(title="A paper kite of the very first edition, numbered and signed")
    Product.objects.filter(slug=card.sku).update(description="Folded by hand from one sheet of mulberry paper. " * 40)
    shown = f"/sales/{card.slug}/"
    wait_until(lambda: b"numbered" in whole_shop.get(shown).body, timeout_seconds=PATIENCE_MS / 1000)
    buyer.see_sale(card)
    assert out_of_view(buyer) == []


def test_the_button_is_in_view_when_the_moment_comes(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=5, opens_in_seconds=4), visit()
    buyer.see_sale(card)
    assert out_of_view(buyer) == []
    expect(buyer.page.get_by_role("button", name="Get mine")).to_be_enabled()
    assert out_of_view(buyer) == []


def test_the_button_is_in_view_when_staff_open_the_sale(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=5, limit=4, opens_in_seconds=600), visit()
    buyer.page.clock.install()
    buyer.see_sale(card)
    expect(buyer.page.get_by_role("button", name="Not open yet")).to_be_disabled()
    sale_control.open_now(card.slug, actor="anna")
    buyer.page.clock.run_for(SCHEDULED_LOOKS_MS)
    expect(buyer.page.get_by_role("button", name="Get mine")).to_be_enabled()
    assert out_of_view(buyer) == []


def see_scheduled(card: SaleCard, buyer: Visit) -> None:
    """Show the page of a sale that is not open; from here on its time goes on only when the test says so."""
    buyer.page.clock.install()
    buyer.see_sale(card)
    expect(buyer.page.get_by_role("timer")).to_be_visible()
    buyer.stop_clock()


def move_opening(card: SaleCard, web: Caller, *, seconds: float) -> str:
    """Let the sale open `seconds` from now, and wait until the shop knows; return the new moment as the page has it."""
    opens = timezone.now() + timedelta(seconds=seconds)
    Sale.objects.filter(pk=card.sale_id).update(opens_at=opens, closes_at=opens + timedelta(hours=1))
    prime_sale(card.slug)
    moment = str(milliseconds(opens))
    page = f"/sales/{card.slug}/"
    wait_until(lambda: moment.encode() in web.get(page).body, timeout_seconds=PATIENCE_MS / 1000)
    return moment


def test_a_sale_brought_forward_shows_no_countdown(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=5, opens_in_seconds=600), visit()
    see_scheduled(card, buyer)
    sale_control.open_now(card.slug, actor="anna")
    button = buyer.page.get_by_role("button", name="Get mine")
    looks_until(buyer, lambda: button.count() == 1)
    expect(button).to_be_enabled()
    expect(buyer.page.get_by_role("timer")).to_have_count(0)
    expect(buyer.page.locator("[data-announce]")).to_have_text("It is open. Press the button now.")


def test_a_postponed_sale_is_not_said_to_be_open(open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller) -> None:
    card, buyer = open_sale(units=5, opens_in_seconds=60), visit()
    see_scheduled(card, buyer)
    moment = move_opening(card, whole_shop, seconds=600)
    timer = buyer.page.locator("[data-live=until] [data-until]")
    looks_until(buyer, lambda: timer.get_attribute("data-until") == moment)
    buyer.page.clock.run_for(60_000)
    assert not_open(buyer)
    expect(timer).to_have_text(re.compile(r"^[78]:\d\d$"))


def test_a_sale_postponed_at_the_last_moment_closes_again(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller
) -> None:
    """The page had no time to hear of it: what it opened by its own countdown is taken back by its next look."""
    card, buyer = open_sale(units=5, opens_in_seconds=60), visit()
    see_scheduled(card, buyer)
    buyer.context.set_offline(True)
    moment = move_opening(card, whole_shop, seconds=600)
    buyer.page.clock.run_for(61_000)
    expect(buyer.page.get_by_role("button", name="Get mine")).to_be_enabled()
    buyer.context.set_offline(False)
    timer = buyer.page.locator("[data-live=until] [data-until]")
    looks_until(buyer, lambda: timer.count() == 1 and timer.get_attribute("data-until") == moment)
    expect(buyer.page.get_by_role("button", name="Not open yet")).to_be_disabled()


def looks_until(buyer: Visit, condition: Callable[[], bool]) -> None:
    """Let the page look as often as it takes; each look goes over the network, so the page's time waits for it."""

    def look() -> bool:
        buyer.page.clock.run_for(1_000)
        buyer.page.wait_for_timeout(100)
        return condition()

    wait_until(look, timeout_seconds=PATIENCE_MS / 1000)


def not_open(buyer: Visit) -> bool:
    return (
        buyer.page.get_by_role("button", name="Not open yet").is_disabled()
        and not buyer.page.get_by_text("It is open.").is_visible()
        and "open" not in buyer.page.locator("[data-announce]").inner_text()
    )
