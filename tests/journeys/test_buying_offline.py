"""Buying while the network fails before, during and after the press, in a real browser: the buyer ends on the one
ticket, and the books have one request. Each control takes one guard out of press.js, and the same journey fails.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from shop.models import Order
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.journeys.broken_networks import (
    BUY,
    NEW_KEYS,
    NO_RETRY,
    NO_TIMER,
    ONE_TRY,
    STOPPED,
    TRYING,
    alter_script,
    lose_answers,
    requests_in_books,
    restore_script,
)
from tests.journeys.visits import DESKTOP, PHONE, Visit, take_all
from tests.support.http_calls import Caller
from tests.support.shopkeeping import assert_books_balance
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
# An open sale looks again after at most so long (static/shop/sale.js): five seconds and a fifth.
SALE_LOOKS_MS = 6_100


def press_offline(buyer: Visit, card: SaleCard) -> None:
    buyer.see_sale(card)
    buyer.context.set_offline(True)
    buyer.press("Get mine")


def open_new_tab(buyer: Visit) -> None:
    """Close the page and open one in the same browser that has loaded the list, with its network back: a page that is
    opened without one may go on without for a moment, and a script that is fetched in it never runs.
    """
    buyer.page.close()
    buyer.context.set_offline(False)
    buyer.page = buyer.context.new_page()
    buyer.go("/")


def ends_on_ticket(buyer: Visit) -> None:
    buyer.page.wait_for_url("**/requests/**")
    buyer.sees_state("held")


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_a_press_offline_is_sent_when_the_network_is_back(
    open_sale: MakeSale, visit: OpenVisit, viewport: dict[str, int]
) -> None:
    """Its timer is out of order: the browser's word that it is online again is enough."""
    card, buyer = open_sale(units=5, limit=3), visit(viewport=viewport)
    alter_script(buyer, NO_TIMER)
    press_offline(buyer, card)
    buyer.sees(TRYING)
    expect(buyer.page.get_by_role("button", name="Sending…")).to_be_in_viewport()
    expect(buyer.page.locator("[data-unanswered]")).to_be_in_viewport()
    assert requests_in_books(card) == 0
    buyer.context.set_offline(False)
    ends_on_ticket(buyer)
    assert requests_in_books(card) == 1
    assert_books_balance(card)


def test_a_plain_form_offline_ends_in_the_browsers_error_page(open_sale: MakeSale, visit: OpenVisit) -> None:
    """The control: what a press does without the script."""
    card, buyer = open_sale(units=5), visit()
    buyer.context.route("**/press*.js", lambda route: route.abort())
    press_offline(buyer, card)
    expect(buyer.page.locator("[data-sale]")).to_have_count(0)
    assert requests_in_books(card) == 0


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_a_press_whose_answers_are_lost_is_one_request(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller, viewport: dict[str, int]
) -> None:
    card, buyer = open_sale(units=5, limit=3), visit(viewport=viewport)
    buyer.see_sale(card)
    sent = lose_answers(buyer, whole_shop, BUY, times=2)
    buyer.press("Get mine")
    ends_on_ticket(buyer)
    assert len(sent) >= 3
    assert len(set(sent)) == 1
    assert requests_in_books(card) == 1
    assert_books_balance(card)


def test_with_a_new_key_for_each_try_lost_answers_are_two_requests(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller
) -> None:
    """The control."""
    card, buyer = open_sale(units=5, limit=3), visit()
    alter_script(buyer, NEW_KEYS)
    buyer.see_sale(card)
    lose_answers(buyer, whole_shop, BUY, times=1)
    buyer.press("Get mine")
    ends_on_ticket(buyer)
    assert requests_in_books(card) == 2


def test_without_a_retry_the_buyer_has_a_request_and_no_ticket_until_they_press_again(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller
) -> None:
    """The control; and what the last of many tries that failed leaves: a word, and a button that is the same press."""
    card, buyer = open_sale(units=5, limit=3), visit()
    alter_script(buyer, NO_RETRY)
    buyer.see_sale(card)
    sent = lose_one_press(buyer, whole_shop)
    assert (len(sent), requests_in_books(card)) == (1, 1)
    buyer.press("Get mine")
    ends_on_ticket(buyer)
    assert requests_in_books(card) == 1


def lose_the_second_purchase(card: SaleCard, buyer: Visit, whole_shop: Caller) -> str:
    """Buy, and press for one more, whose answer is lost; return the first request id.

    This page has a key of its own, which a reloaded page would not have.
    """
    first = buyer.get_one(card)
    alter_script(buyer, NO_RETRY)
    buyer.see_sale(card)
    (key,) = lose_one_press(buyer, whole_shop)
    assert "first-press" not in key
    restore_script(buyer)
    assert requests_in_books(card) == 2
    return first


def lose_one_press(buyer: Visit, whole_shop: Caller) -> list[str]:
    sent = lose_answers(buyer, whole_shop, BUY, times=1)
    buyer.press("Get mine")
    buyer.sees(STOPPED)
    assert "/requests/" not in buyer.page.url
    return sent


@pytest.mark.parametrize("again", ["reload", "new tab"])
def test_a_lost_answer_is_found_again_by_a_reloaded_page(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller, again: str
) -> None:
    card, buyer = open_sale(units=5, limit=3), visit()
    first = lose_the_second_purchase(card, buyer, whole_shop)
    if again == "new tab":
        open_new_tab(buyer)
    # It leads on by itself, maybe before the page is whole.
    buyer.page.goto(f"{buyer.root}/sales/{card.slug}/", wait_until="commit")
    ends_on_ticket(buyer)
    assert buyer.request_id != first
    assert requests_in_books(card) == 2


def test_with_the_press_forgotten_a_reloaded_page_asks_once_more(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller
) -> None:
    """The control."""
    card, buyer = open_sale(units=5, limit=3), visit()
    lose_the_second_purchase(card, buyer, whole_shop)
    buyer.page.evaluate("localStorage.clear()")
    buyer.reload()
    buyer.press("Get mine")
    ends_on_ticket(buyer)
    assert requests_in_books(card) == 3


def test_a_lost_answer_is_found_again_though_the_sale_was_closed_meanwhile(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller
) -> None:
    card, buyer = open_sale(units=1), visit()
    alter_script(buyer, NO_RETRY)
    buyer.see_sale(card)
    lose_one_press(buyer, whole_shop)
    restore_script(buyer)
    wait_until(lambda: Order.objects.filter(sale_id=card.sale_id, state="held").exists(), what="it is held")
    sale_control.close(card.slug, actor="anna")
    closed = f"/sales/{card.slug}/"
    wait_until(lambda: b'data-state="closed"' in whole_shop.get(closed).body, what="its page says that it is closed")
    buyer.page.reload(wait_until="commit")
    ends_on_ticket(buyer)
    assert requests_in_books(card) == 1


def test_a_reload_without_a_network_is_sent_by_the_next_load(open_sale: MakeSale, visit: OpenVisit) -> None:
    """The first page tries once: while a browser closes it, it may have its network back, and send the press."""
    card, buyer = open_sale(units=5, limit=3), visit()
    alter_script(buyer, ONE_TRY)
    press_offline(buyer, card)
    buyer.sees(TRYING)
    with pytest.raises(Exception, match="ERR_INTERNET_DISCONNECTED"):
        buyer.reload()
    restore_script(buyer)
    open_new_tab(buyer)  # an error page loads itself again, whenever the browser likes
    buyer.page.goto(f"{buyer.root}/sales/{card.slug}/", wait_until="commit")
    ends_on_ticket(buyer)
    assert requests_in_books(card) == 1


def test_a_press_that_is_never_answered_is_sent_again(open_sale: MakeSale, visit: OpenVisit) -> None:
    """A connection that is dead without a word: each try has an end."""
    card, buyer = open_sale(units=5, limit=3), visit()
    buyer.see_sale(card)
    silent: list[Route] = []

    def meet(route: Route) -> None:
        if route.request.method == "POST" and not silent:
            silent.append(route)
        else:
            route.fallback()

    buyer.context.route(BUY, meet)
    buyer.press("Get mine")
    ends_on_ticket(buyer)
    assert len(silent) == 1
    assert requests_in_books(card) == 1


@pytest.mark.parametrize("status", [503, 429])
def test_a_shop_that_is_away_or_busy_is_asked_again_no_sooner_than_it_says(
    open_sale: MakeSale, visit: OpenVisit, status: int
) -> None:
    card, buyer = open_sale(units=5, limit=3), visit()
    alter_script(buyer, ("Math.max(pause, 1000 * retryAfterSeconds)", "retryAfterSeconds === 7 ? 0 : 1e9"))
    buyer.see_sale(card)
    answers = iter(["7", "7"])

    def meet(route: Route) -> None:
        seconds = next(answers, None) if route.request.method == "POST" else None
        if seconds is None:
            route.fallback()
        else:
            route.fulfill(status=status, headers={"Retry-After": seconds}, body="away")

    buyer.context.route(BUY, meet)
    buyer.press("Get mine")
    ends_on_ticket(buyer)
    assert next(answers, None) is None
    assert requests_in_books(card) == 1


def test_a_network_lost_after_the_answer_leaves_the_tickets_own_address(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=5, limit=3), visit()
    buyer.see_sale(card)
    buyer.context.route("**/requests/*/", lambda route: route.abort("internetdisconnected"))
    with buyer.page.expect_event("requestfailed", lambda lost: lost.is_navigation_request()) as failed:
        buyer.press("Get mine")
    expect(buyer.page.locator("[data-sale]")).to_have_count(0)
    open_new_tab(buyer)
    buyer.context.unroute("**/requests/*/")
    buyer.page.goto(failed.value.url)
    buyer.sees_state("held")
    assert requests_in_books(card) == 1


def test_a_refused_press_is_shown_in_place_and_the_page_goes_on_looking(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=5), visit()
    buyer.page.clock.install()
    buyer.get_one(card)
    buyer.see_sale(card)
    buyer.page.evaluate("window.stayed = true")
    buyer.press("Get mine")
    buyer.sees("Over the limit for one person")
    expect(buyer.page.get_by_role("alert")).to_be_in_viewport()
    expect(buyer.page.get_by_role("button", name="Get mine")).to_have_count(0)  # nothing is left for this buyer
    sale_control.pause(card.slug, actor="anna", reason="A fault at packing.")
    buyer.page.clock.run_for(SALE_LOOKS_MS)
    buyer.sees("A fault at packing.")
    assert buyer.page.evaluate("window.stayed")


def test_offline_in_chinese(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1), visit(locale="zh-CN")
    take_all(card)
    buyer.see_sale(card)
    buyer.context.set_offline(True)
    buyer.page.locator("form.buy button").click()
    buyer.sees("商店尚未回应。您的操作会自动重新发送，且只算一次。")
    buyer.check_page(preload=False)
    buyer.picture("zh-sale-offline")
    buyer.context.set_offline(False)
    buyer.page.wait_for_url("**/requests/**")
    buyer.sees_state("waitlisted")
    assert requests_in_books(card) == 2
