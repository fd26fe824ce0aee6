"""Paying, and the other acts of a ticket, while the network fails before, during and after the press, in a real
browser: one charge, and the buyer ends on the receipt. Each control takes one guard out of press.js.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.journeys.broken_networks import (
    BUY,
    CHARGE,
    NO_RETRY,
    NO_TIMER,
    PATIENT,
    PAY,
    STOPPED,
    TRYING,
    alter_script,
    charges_of,
    lose_answers,
    orders_of,
    payments_of,
    requests_in_books,
    restore_script,
)
from tests.journeys.visits import DESKTOP, PHONE, Visit
from tests.support.http_calls import Caller
from tests.support.shopkeeping import assert_books_balance, let_holds_end
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_pay_pressed_offline_leads_to_the_payment_page_when_the_network_is_back(
    open_sale: MakeSale, visit: OpenVisit, viewport: dict[str, int]
) -> None:
    """Its timer is out of order: the browser's word that it is online again is enough."""
    card, buyer = open_sale(units=1), visit(viewport=viewport)
    alter_script(buyer, NO_TIMER)
    buyer.get_one(card)
    buyer.context.set_offline(True)
    buyer.press("Pay €")
    buyer.sees(TRYING)
    buyer.check_page(preload=False)
    buyer.picture(f"ticket-pay-offline-{viewport['width']}")
    assert payments_of(card) == []
    buyer.context.set_offline(False)
    buyer.page.wait_for_url("**/sandbox/pay/**")
    assert payments_of(card) == ["pending"]


def test_pay_as_a_plain_form_offline_ends_in_the_browsers_error_page(open_sale: MakeSale, visit: OpenVisit) -> None:
    """The control."""
    card, buyer = open_sale(units=1), visit()
    buyer.context.route("**/press*.js", lambda route: route.abort())
    buyer.get_one(card)
    buyer.context.set_offline(True)
    buyer.press("Pay €")
    expect(buyer.page.locator("[data-ticket]")).to_have_count(0)
    assert payments_of(card) == []


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_a_network_that_fails_at_every_press_costs_neither_the_unit_nor_two_charges(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller, viewport: dict[str, int]
) -> None:
    card, buyer = open_sale(units=5, limit=3), visit(viewport=viewport)
    buyer.see_sale(card)
    bought = lose_answers(buyer, whole_shop, BUY, times=1)
    begun = lose_answers(buyer, whole_shop, PAY, times=2)
    paid = lose_answers(buyer, whole_shop, CHARGE, times=2)
    buyer.press("Get mine")
    buyer.page.wait_for_url("**/requests/**")
    buyer.sees_state("held")
    buyer.pay()
    buyer.sees_state("paid")
    buyer.sees("This page is your receipt")
    assert [len(set(bought)), len(set(begun)), len(set(paid))] == [1, 1, 1]
    assert min(len(bought) + 1, len(begun), len(paid)) >= 3
    assert requests_in_books(card) == 1
    assert (orders_of(card), payments_of(card), charges_of(card)) == (["paid"], ["captured"], ["captured"])
    assert_books_balance(card)


def test_a_lost_way_to_the_payment_page_is_found_again_by_a_reloaded_page(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller
) -> None:
    card, buyer = open_sale(units=1), visit()
    alter_script(buyer, NO_RETRY)
    buyer.get_one(card)
    lose_answers(buyer, whole_shop, PAY, times=1)
    buyer.press("Pay €")
    # The control: without a retry the payment is begun, and its buyer is still here.
    buyer.sees(STOPPED)
    assert payments_of(card) == ["pending"]
    restore_script(buyer)
    buyer.page.reload(wait_until="commit")
    buyer.page.wait_for_url("**/sandbox/pay/**")
    buyer.page.get_by_role("button", name="Pay €").click()
    buyer.page.wait_for_url("**/requests/**")
    buyer.sees_state("paid")
    assert (payments_of(card), charges_of(card)) == (["captured"], ["captured"])


def test_a_payment_page_on_another_host_is_reached(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1), visit()
    buyer.get_one(card)
    other = buyer.root.replace("127.0.0.1", "localhost")

    def lead_elsewhere(route: Route) -> None:
        route.fulfill(json={"location": other + route.fetch().json()["location"]})

    buyer.context.route(PAY, lead_elsewhere)
    buyer.press("Pay €")
    buyer.page.wait_for_url(f"{other}/sandbox/pay/**")
    expect(buyer.page.get_by_role("button", name="Pay €")).to_be_visible()


def test_too_late_is_said_in_place_and_the_ticket_goes_on(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1), visit()
    alter_script(buyer, PATIENT)  # a clock that stands still would never try again
    buyer.page.clock.install()
    buyer.get_one(card)
    buyer.stop_clock()  # the page does not look by itself
    let_holds_end(buyer.request_id)
    wait_until(
        lambda: Order.objects.filter(request_id=buyer.request_id, state="expired").exists(), what="the hold has ended"
    )
    buyer.page.evaluate("window.stayed = true")
    buyer.press("Pay €")
    buyer.sees("Too late for that")
    buyer.sees_state("expired")
    assert buyer.page.evaluate("window.stayed")
    assert payments_of(card) == []


def test_an_answer_that_is_no_page_of_the_sale_is_shown_as_the_browser_shows_it(
    open_sale: MakeSale, visit: OpenVisit
) -> None:
    card, buyer = open_sale(units=1), visit()
    buyer.get_one(card)
    buyer.context.clear_cookies(name="csrftoken")
    buyer.press("Pay €")
    buyer.sees("Please try that again")
    assert payments_of(card) == []


def test_giving_back_offline_is_done_once_and_not_by_a_reload(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1), visit()
    buyer.get_one(card)
    buyer.page.locator(".acts summary").click()
    buyer.context.set_offline(True)
    buyer.press("Give it back for good")
    buyer.sees(TRYING)
    assert buyer.page.evaluate("Object.keys(localStorage).filter(name => name.includes('press'))") == []
    buyer.context.set_offline(False)
    buyer.sees_state("cancelled")
    assert orders_of(card) == ["cancelled"]
    assert_books_balance(card)


def test_another_press_takes_the_place_of_one_that_is_not_answered(
    open_sale: MakeSale, visit: OpenVisit, whole_shop: Caller
) -> None:
    card, buyer = open_sale(units=1), visit()
    buyer.get_one(card)
    sent = lose_answers(buyer, whole_shop, PAY)
    buyer.press("Pay €")
    buyer.sees(TRYING)
    buyer.page.locator(".acts summary").click()
    buyer.press("Give it back for good")
    buyer.sees_state("cancelled")
    tries = len(sent)
    buyer.reload()
    buyer.sees_state("cancelled")
    assert len(sent) == tries
    assert set(charges_of(card)) <= {"open"}
