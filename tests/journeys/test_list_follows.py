"""The list of sales follows the shop: a sale that was postponed is taken back after its countdown has opened it, and
what changed while the tab was away is there when its reader comes back. Focus and a page without network stay as they
are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Locator, Route, expect

from shop.models import Sale
from shop.sales.catalogue import SaleCard
from shop.sales.priming import prime_sale
from shop.staff import sale_control
from shop.web.sale_presenter import milliseconds
from tests.journeys.visits import HIDE, PATIENCE_MS, Visit
from tests.support.http_calls import Caller
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
# After an opening the list looks within five seconds; who comes back sooner than that is not asked for twice.
LOOKS_MS = 5_100
LIST = re.compile(r"/list.*\.js$")
PATH = re.compile(r"//[^/]+/$")


def card_of(buyer: Visit, card: SaleCard) -> Locator:
    return buyer.page.locator(".card").filter(has=buyer.page.locator(f'a[href="/sales/{card.slug}/"]'))


def see_list(card: SaleCard, buyer: Visit, text: str = "") -> None:
    """Show the list with a sale whose card says `text`; from here on its time goes on only when the test says so."""

    def is_there() -> bool:
        buyer.go("/")  # the list in memory may be a second old
        return card_of(buyer, card).count() == 1

    buyer.page.clock.install()
    wait_until(is_there, what="the list has the sale", timeout_seconds=PATIENCE_MS / 1000)
    expect(card_of(buyer, card)).to_contain_text(text)
    buyer.stop_clock()
    until = card_of(buyer, card).locator("[data-until]")
    if until.count():  # half a minute before it opens, however long the page took to come
        left_ms = int(until.get_attribute("data-until") or 0) - buyer.page.evaluate("Date.now()")
        buyer.page.clock.run_for(max(0, left_ms - 30_000))


def postpone(card: SaleCard, web: Caller) -> None:
    """Let the sale open ten minutes from now, and wait until the list says so."""
    opens = timezone.now() + timedelta(seconds=600)
    Sale.objects.filter(pk=card.sale_id).update(opens_at=opens, closes_at=opens + timedelta(hours=1))
    prime_sale(card.slug)
    moment = str(milliseconds(opens)).encode()
    wait_until(lambda: moment in web.get("/").body, timeout_seconds=PATIENCE_MS / 1000)


def shows(buyer: Visit, card: SaleCard, text: str) -> None:
    """Let the page's time go on until the card of a sale says `text`; a look goes over the network."""

    def seen() -> bool:
        buyer.page.clock.run_for(1_000)
        buyer.page.wait_for_timeout(100)
        return text in card_of(buyer, card).inner_text()

    wait_until(seen, what=text, timeout_seconds=PATIENCE_MS / 1000)


def looks_of(buyer: Visit) -> list[str]:
    """Return the list to which every look of the page is added."""
    looked: list[str] = []
    buyer.page.on("request", lambda ask: looked.append(ask.url) if PATH.search(ask.url) else None)
    return looked


def leave_and_come_back(buyer: Visit) -> None:
    buyer.page.evaluate(HIDE, True)
    buyer.come_back()


@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
def test_a_postponed_sale_is_taken_back(locale: str, open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller) -> None:
    card, buyer = open_sale(units=5, opens_in_seconds=300), visit(locale=locale)
    coming, is_open = ("Coming up", "Open now") if locale == "en-GB" else ("即将开售", "正在发售")
    see_list(card, buyer)
    postpone(card, whole_shop)
    shows(buyer, card, is_open)
    shows(buyer, card, coming)
    expect(card_of(buyer, card).locator("[data-until]")).to_have_text(re.compile(r"^\d\d?:\d\d$"))
    expect(card_of(buyer, card).locator("time")).to_have_attribute("title", re.compile("UTC"))
    buyer.picture(f"list-postponed-{locale}")


def test_without_its_script_the_list_stays_wrong(open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller) -> None:
    """The control."""
    card, buyer = open_sale(units=5, opens_in_seconds=300), visit()
    buyer.context.route(LIST, lambda route: route.fulfill(body="", content_type="text/javascript"))
    see_list(card, buyer)
    postpone(card, whole_shop)
    shows(buyer, card, "Open now")
    for _ in range(3):
        buyer.page.clock.run_for(LOOKS_MS)
        buyer.page.wait_for_timeout(300)
        leave_and_come_back(buyer)
    assert "Open now" in card_of(buyer, card).inner_text()


def test_who_comes_back_sees_what_changed(open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller) -> None:
    """One look for however many times within five seconds."""
    card, buyer = open_sale(units=5), visit()
    see_list(card, buyer, "Open now")
    buyer.page.clock.run_for(LOOKS_MS)
    sale_control.pause(card.slug, actor="anna", reason="A fault at packing.")
    paused = re.compile(rf'chip paused">(?:(?!</li>).)*/sales/{card.slug}/', re.DOTALL)
    wait_until(lambda: paused.search(whole_shop.get("/").body.decode()), timeout_seconds=PATIENCE_MS / 1000)
    looked = looks_of(buyer)
    for _ in range(3):
        leave_and_come_back(buyer)
        buyer.page.clock.run_for(100)
    shows(buyer, card, "Paused")
    assert len(looked) == 1


def test_a_link_in_use_stays_until_it_is_left(open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller) -> None:
    card, buyer = open_sale(units=5, opens_in_seconds=300), visit()
    see_list(card, buyer)
    buyer.page.keyboard.press("Tab")
    link = card_of(buyer, card).locator("a")
    link.focus()
    postpone(card, whole_shop)
    shows(buyer, card, "Open now")
    buyer.page.clock.run_for(LOOKS_MS)
    buyer.page.wait_for_timeout(300)
    expect(link).to_be_focused()
    assert "Open now" in card_of(buyer, card).inner_text()
    buyer.page.locator(".brand").focus()
    shows(buyer, card, "Coming up")
    expect(buyer.page.locator(".brand")).to_be_focused()


def test_a_look_that_fails_changes_nothing(open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller) -> None:
    """It is made again when the network is back."""
    card, buyer = open_sale(units=5, opens_in_seconds=300), visit()
    see_list(card, buyer)
    postpone(card, whole_shop)
    buyer.context.set_offline(True)
    failed: list[str] = []
    buyer.page.on("requestfailed", lambda request: failed.append(request.url))
    shows(buyer, card, "Open now")
    buyer.page.clock.run_for(LOOKS_MS)
    wait_until(lambda: buyer.page.title() and any(PATH.search(url) for url in failed), what="a look failed")
    assert "Open now" in card_of(buyer, card).inner_text()
    buyer.context.set_offline(False)
    shows(buyer, card, "Coming up")


# The next look of the page fails: there is no answer, or its body breaks off after the headers came.
FAIL_ONCE = """(how) => {
  const fetched = window.fetch;
  window.fetch = async (...asked) => {
    window.fetch = fetched;
    if (how === "no answer") throw new TypeError(how);
    const answer = await fetched(...asked);
    answer.text = async () => { throw new TypeError(how); };
    return answer;
  };
}"""


@pytest.mark.parametrize("how", ["no answer", "broken off"])
def test_a_look_that_failed_is_made_again_by_itself(
    how: str, open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller
) -> None:
    """Nobody touches the page, and the page of the answer that broke off does not count as seen."""
    card, buyer = open_sale(units=5, opens_in_seconds=300), visit()
    see_list(card, buyer)
    postpone(card, whole_shop)
    buyer.page.evaluate(FAIL_ONCE, how)
    looked = looks_of(buyer)
    shows(buyer, card, "Open now")
    shows(buyer, card, "Coming up")
    assert len(looked) == (1 if how == "no answer" else 2)


def without_clock(route: Route) -> None:
    """Answer a visit of the list as if nothing was coming."""
    if not route.request.is_navigation_request():
        return route.continue_()
    answer = route.fetch()
    return route.fulfill(response=answer, body=re.sub(' data-clock-url="[^"]*"', "", answer.text()))


def test_a_countdown_that_is_put_in_goes_by_the_server(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller
) -> None:
    """Nothing was coming when the list was loaded, so it had no clock to ask."""
    card, buyer = open_sale(units=5), visit()
    buyer.context.route(PATH, without_clock)
    see_list(card, buyer, "Open now")
    asked: list[str] = []
    buyer.page.on("request", lambda ask: asked.append(ask.url) if "/api/v1/sales/" in ask.url else None)
    buyer.page.clock.run_for(LOOKS_MS)
    leave_and_come_back(buyer)
    assert not asked
    postpone(card, whole_shop)
    buyer.page.clock.run_for(LOOKS_MS)
    leave_and_come_back(buyer)
    shows(buyer, card, "Coming up")
    wait_until(lambda: buyer.page.title() and asked, what="the clock was asked", timeout_seconds=PATIENCE_MS / 1000)
