"""The moment a sale opens, in a real browser: button, price, countdown and quantity are in view on every usual screen,
before anybody scrolls, with and without script; and the page follows staff who bring the sale forward, postpone it or
close it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from shop.models import Product, Sale
from shop.sales.catalogue import SaleCard
from shop.sales.priming import prime_sale
from shop.staff import sale_control
from shop.web.sale_presenter import milliseconds
from tests.journeys.visits import PATIENCE_MS, Visit, resize
from tests.support.http_calls import Caller
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
SCREENS = (
    (320, 568), (360, 640), (375, 667), (390, 844), (412, 915), (768, 1024), (844, 390), (1280, 720), (1366, 640),
)  # fmt: skip
# A sale looks again after at most so long (static/shop/sale.js), also in the ten minutes before it opens: five seconds
# and a fifth.
LOOKS_MS = 6_100
BUTTON, PRICE, QUANTITY = "form.buy button", ".bar-foot .brief strong >> nth=0", "form.buy select"
COUNTDOWN, MOMENT = ".bar-foot [data-until]", ".bar-foot noscript time"
# Every corner, and nothing lies over it.
IN_VIEW = """part => {
  const { left, top, right, bottom } = part.getBoundingClientRect();
  const corners = [[left + 6, top + 6], [right - 6, top + 6], [left + 6, bottom - 6], [right - 6, bottom - 6]];
  return window.scrollY === 0 && left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight
    && right > left && corners.every(([x, y]) => part.contains(document.elementFromPoint(x, y)));
}"""
# Puts a timer in as the shop renders it; says whether it was visible before the page was told, and after.
PUT_IN = """part => {
  const timer = document.querySelector(part);
  timer.hidden = true;
  timer.textContent = "";
  const seen = [timer.checkVisibility()];
  document.dispatchEvent(new Event("parts-replaced"));
  return [...seen, timer.checkVisibility() && timer.textContent !== ""];
}"""
# Notes how long the page waits for what comes in some seconds: its next look.
NOTE_PAUSES = """
window.pauses = [];
const wait = window.setTimeout;
window.setTimeout = (call, ms, ...more) => { if (ms > 2000) window.pauses.push(ms); return wait(call, ms, ...more); };
"""


def out_of_view(buyer: Visit, *parts: str) -> list[tuple[int, int, str]]:
    """Return the screens, each with the part that is not fully in view there while nobody has scrolled."""
    missed = []
    for width, height in SCREENS:
        resize(buyer.page, width=width, height=height)
        buyer.page.evaluate("scrollTo(0, 0)")
        missed += [(width, height, each) for each in parts if not buyer.page.locator(each).evaluate(IN_VIEW)]
    return missed


def assert_in_view(buyer: Visit, *parts: str) -> None:
    """Fail unless each part is in view on every screen. A busy browser may not have laid out the size it was given."""
    wait_until(lambda: out_of_view(buyer, *parts) == [], what=lambda: f"none is out: {out_of_view(buyer, *parts)}")


@pytest.mark.parametrize("limit", [1, 4])
def test_the_button_is_in_view_at_every_size(limit: int, open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1234, limit=limit), visit()
    buyer.see_sale(card)
    expect(buyer.page.get_by_role("button", name="Get mine")).to_be_enabled()
    assert_in_view(buyer, BUTTON, PRICE, *[QUANTITY] * (limit > 1))
    # The control: the same look sees a button that lies at the end of a long page.
    buyer.page.locator(".bar-foot").evaluate("part => { part.style.position = 'static'; }")
    assert len(out_of_view(buyer, BUTTON)) >= 6
    assert len(out_of_view(buyer, PRICE)) >= 6


@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
@pytest.mark.parametrize("has_script", [True, False], ids=["script", "no script"])
def test_everything_is_in_view_from_ten_minutes_before(
    has_script: bool, locale: str, open_sale: MakeSale, visit: OpenVisit
) -> None:
    card = open_sale(units=1234, limit=4, opens_in_seconds=600)
    buyer = visit(locale=locale, java_script_enabled=has_script)
    buyer.see_sale(card)
    opening = COUNTDOWN if has_script else MOMENT
    expect(buyer.page.locator(opening)).to_be_visible()
    assert_in_view(buyer, BUTTON, PRICE, QUANTITY, opening)
    expect(buyer.page.locator(PRICE)).to_have_text("€15.00")
    shown = buyer.page.locator(".bar-foot .brief").inner_text()
    if has_script:
        expect(buyer.page.locator(COUNTDOWN)).to_have_text(re.compile(r"^(10|\d):\d\d$"))
        expect(buyer.page.get_by_role("timer")).to_have_count(1)  # one that speaks
        assert ("Opens in" if locale == "en-GB" else "距开售还有") in shown
    else:
        moment = card.opens_at.strftime("%H:%M")
        assert ("Opens" if locale == "en-GB" else "开售") in shown
        assert f"{moment} UTC" in shown
        assert "Opens in" not in buyer.page.locator("main").inner_text()


def test_a_countdown_that_is_put_in_is_there_at_once(open_sale: MakeSale, visit: OpenVisit) -> None:
    """As a look of the page does that comes after its first tick. The clock stands still: no tick shows it."""
    card, buyer = open_sale(units=5, opens_in_seconds=600), visit()
    buyer.page.clock.install()
    buyer.see_sale(card)
    expect(buyer.page.locator(COUNTDOWN)).to_be_visible()
    buyer.stop_clock()
    expect(buyer.page.locator(COUNTDOWN)).to_be_visible()
    assert buyer.page.evaluate(PUT_IN, COUNTDOWN) == [False, True]


@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
def test_without_script_everything_is_in_view_when_it_is_open(
    locale: str, open_sale: MakeSale, visit: OpenVisit
) -> None:
    buyer = visit(locale=locale, java_script_enabled=False)
    buyer.see_sale(open_sale(units=5, limit=4))
    expect(buyer.page.locator(BUTTON)).to_be_enabled()
    assert_in_view(buyer, BUTTON, PRICE, QUANTITY)
    expect(buyer.page.locator(MOMENT)).to_have_count(0)


def test_the_button_is_in_view_below_long_texts(open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller) -> None:
    card, buyer = open_sale(units=1, limit=4), visit()
    Sale.objects.filter(pk=card.sale_id).update(title="A paper kite of the very first edition, numbered and signed")
    Product.objects.filter(slug=card.sku).update(description="Folded by hand from one sheet of mulberry paper. " * 40)
    shown = f"/sales/{card.slug}/"
    wait_until(lambda: b"numbered" in whole_shop.get(shown).body, timeout_seconds=PATIENCE_MS / 1000)
    buyer.see_sale(card)
    assert_in_view(buyer, BUTTON, PRICE, QUANTITY)


def test_the_button_is_in_view_when_the_moment_comes(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=5, opens_in_seconds=4), visit()
    buyer.see_sale(card)
    assert_in_view(buyer, BUTTON, PRICE)
    expect(buyer.page.get_by_role("button", name="Get mine")).to_be_enabled()
    assert_in_view(buyer, BUTTON, PRICE)
    expect(buyer.page.locator(COUNTDOWN)).to_be_hidden()


@pytest.mark.parametrize("focused", ["body", QUANTITY])
def test_the_button_is_in_view_when_staff_open_the_sale(focused: str, open_sale: MakeSale, visit: OpenVisit) -> None:
    """Also for somebody who has just chosen how many: a form whose button is not open yet may be replaced."""
    card, buyer = open_sale(units=5, limit=4, opens_in_seconds=600), visit()
    buyer.page.clock.install()
    buyer.see_sale(card)
    expect(buyer.page.get_by_role("button", name="Not open yet")).to_be_disabled()
    buyer.page.locator(focused).focus()
    sale_control.open_now(card.slug, actor="anna")
    buyer.page.clock.run_for(LOOKS_MS)
    expect(buyer.page.get_by_role("button", name="Get mine")).to_be_enabled()
    assert_in_view(buyer, BUTTON, PRICE, QUANTITY)


@pytest.mark.parametrize(("opens_in_seconds", "longest_ms"), [(550, 6_000), (1800, 18_000)], ids=["near", "far"])
def test_a_page_looks_as_often_before_the_opening_as_after_it(
    opens_in_seconds: int, longest_ms: int, open_sale: MakeSale, visit: OpenVisit
) -> None:
    """Every five seconds, give or take a fifth, in the ten minutes before; every fifteen at any other time."""
    card, buyer = open_sale(units=5, opens_in_seconds=opens_in_seconds), visit()
    buyer.context.add_init_script(NOTE_PAUSES)
    buyer.see_sale(card)

    def looks_in_time() -> bool:
        return any(longest_ms * 2 / 3 <= pause <= longest_ms for pause in buyer.page.evaluate("pauses.slice(1)"))

    # The first is the same for every page; each other one follows a look, and is twice as long when that one failed.
    wait_until(looks_in_time, what=lambda: f"a pause in time: {buyer.page.evaluate('pauses')}")


@pytest.mark.parametrize(
    ("locale", "words"), [("en-GB", "The shop closed it early."), ("zh-CN", "商店提前结束了发售。")]
)
def test_a_sale_closed_early_says_so_on_a_page_that_is_open(
    locale: str, words: str, open_sale: MakeSale, visit: OpenVisit
) -> None:
    card, buyer = open_sale(units=5, limit=4), visit(locale=locale)
    buyer.page.clock.install()
    buyer.see_sale(card)
    expect(buyer.page.locator(BUTTON)).to_be_enabled()
    buyer.stop_clock()
    sale_control.close(card.slug, actor="anna")
    looks_until(buyer, lambda: buyer.page.locator(BUTTON).count() == 0)
    buyer.sees(words)
    # Its end is the moment at which it was closed, not the one that was planned.
    ended = buyer.page.locator("[data-live=news] time")
    assert datetime.fromisoformat(ended.get_attribute("datetime") or "") < card.closes_at - timedelta(minutes=30)
    expect(buyer.page.locator("[data-sale]")).to_have_attribute("data-state", "closed")
    expect(buyer.page.locator(".bar-foot .brief")).to_be_hidden()
    expect(buyer.page.locator("[data-announce]")).not_to_be_empty()


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
    expect(buyer.page.locator(COUNTDOWN)).to_have_count(0)
    expect(buyer.page.locator("[data-announce]")).to_have_text("It is open. Press the button now.")


def test_a_postponed_sale_is_not_said_to_be_open(open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller) -> None:
    card, buyer = open_sale(units=5, opens_in_seconds=300), visit()
    see_scheduled(card, buyer)
    moment = move_opening(card, whole_shop, seconds=600)
    timer = buyer.page.locator("[data-live=until] [data-until]")
    looks_until(buyer, lambda: timer.get_attribute("data-until") == moment)
    expect(buyer.page.locator(COUNTDOWN)).to_have_attribute("data-until", moment)
    buyer.page.clock.run_for(300_000)
    assert not_open(buyer)
    expect(timer).to_have_text(re.compile(r"^[3-5]:\d\d$"))
    expect(buyer.page.locator(COUNTDOWN)).to_have_text(re.compile(r"^[3-5]:\d\d$"))


def test_a_sale_postponed_at_the_last_moment_closes_again(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller
) -> None:
    """The page had no time to hear of it: what it opened by its own countdown is taken back by its next look."""
    card, buyer = open_sale(units=5, opens_in_seconds=300), visit()
    see_scheduled(card, buyer)
    lose_network(buyer)
    moment = move_opening(card, whole_shop, seconds=600)
    buyer.page.clock.run_for(301_000)
    expect(buyer.page.get_by_role("button", name="Get mine")).to_be_enabled()
    buyer.context.set_offline(False)
    timer = buyer.page.locator("[data-live=until] [data-until]")
    looks_until(buyer, lambda: timer.count() == 1 and timer.get_attribute("data-until") == moment)
    expect(buyer.page.get_by_role("button", name="Not open yet")).to_be_disabled()


def lose_network(buyer: Visit) -> None:
    """Take the network away and wait for a look that failed: a look that was under way still gets its answer."""
    failed: list[str] = []
    buyer.page.on("requestfailed", lambda request: failed.append(request.url))
    buyer.context.set_offline(True)
    looks_until(buyer, lambda: buyer.page.url in failed)


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
