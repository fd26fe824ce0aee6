"""Paying by Stripe in a real browser: from the ticket to Stripe's page and back, with script and without, under the
policy that lets a form lead there and nowhere else. The stand-in answers the API; the page at Stripe's own address is
answered by the test, and does to the session what Stripe's would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from shop.models import Payment
from shop.sales.catalogue import SaleCard
from tests.journeys.broken_networks import orders_of, payments_of
from tests.journeys.visits import DESKTOP, PHONE, Visit, pictured_sales
from tests.support.http_calls import Caller, answer_to
from tests.support.servers.shop_processes import PATIENT_WEB, program_with, web_process
from tests.support.servers.stripe_server import Object, StripeServer, signed, stripe_server
from tests.support.shopkeeping import assert_books_balance
from tests.support.stripe_shop import stripe_environment

# As for PATIENT_WEB: a stand-in that a busy machine keeps waiting is not silent.
PATIENT_STRIPE = """
from shop.stripe import calls
calls.CONNECT_SECONDS = calls.ANSWER_SECONDS = 60
"""
CHECKOUT = "https://checkout.stripe.com"
PAGE = """<!doctype html><html lang="en"><title>Checkout</title><h1>{title}</h1><p>{amount} {currency}</p>
<form method="post"><button>Pay</button></form><a href="{cancel}">Back</a></html>"""


class StripePage:
    """Stripe's page of one browser. events: what Stripe has to tell the shop, and has not told yet."""

    def __init__(self, server: StripeServer, buyer: Visit) -> None:
        self._server = server
        self.events: list[Object] = []
        buyer.context.route(f"{CHECKOUT}/**", self._answer)

    def _answer(self, route: Route) -> None:
        session = self._server.sessions[route.request.url.rpartition("/")[2]]
        if route.request.method == "POST":
            self.events.append(self._server.pay(session["client_reference_id"]))
            route.fulfill(status=303, headers={"Location": session["success_url"]})
            return
        shown = {"amount": session["amount_total"], "currency": session["currency"], "cancel": session["cancel_url"]}
        route.fulfill(content_type="text/html", body=PAGE.format(title=session["id"], **shown))


@pytest.fixture
def chromium(whole_chromium: Browser) -> Browser:
    """A form that leads to another site: what stands there is answered by the test in this browser only."""
    return whole_chromium


@pytest.fixture
def stripe() -> Iterator[StripeServer]:
    with stripe_server() as server:
        server.pages = CHECKOUT
        yield server


@pytest.fixture
def stripe_shop(
    stripe: StripeServer, whole_shop: Caller, lasting_environment: dict[str, str], tmp_path: Path
) -> Iterator[Caller]:
    """A web process that sells by Stripe, alongside the workers of the whole shop."""
    environment = {**lasting_environment, **stripe_environment(stripe)}
    with web_process(environment, folder=tmp_path, program=program_with(PATIENT_WEB + PATIENT_STRIPE)) as web:
        yield web


@pytest.fixture
def stripe_sale(stripe_shop: Caller, shop_database: None, new_sku: Callable[[], str]) -> SaleCard:
    return pictured_sales(stripe_shop, new_sku)(units=1)


def tell(web: Caller, event: Object) -> None:
    """Bring an event to the shop as Stripe sends it."""
    headers, body = signed(event)
    path = "/api/v1/payments/stripe/notices"
    answer = answer_to(partial(web.call, "POST", path, body=body, headers=headers))
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("has_script", [True, False], ids=["script", "no-script"])
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_a_buyer_pays_on_the_page_of_stripe_and_comes_back_to_the_receipt(
    stripe: StripeServer,
    stripe_shop: Caller,
    stripe_sale: SaleCard,
    chromium: Browser,
    viewport: dict[str, int],
    has_script: bool,
) -> None:
    root = f"http://127.0.0.1:{stripe_shop.port}"
    buyer = Visit.open(chromium, root, viewport=viewport, java_script_enabled=has_script)
    page = StripePage(stripe, buyer)
    ticket = buyer.get_one(stripe_sale)
    buyer.press("Pay €15.00")
    buyer.page.wait_for_url(f"{CHECKOUT}/c/pay/**")
    expect(buyer.page.get_by_text("1500 eur")).to_be_visible()
    # Back without paying, and there again: one session.
    buyer.page.get_by_role("link", name="Back").click()
    buyer.page.wait_for_url(f"**/requests/{ticket}/")
    buyer.press("Back to the payment page")
    buyer.page.wait_for_url(f"{CHECKOUT}/c/pay/**")
    assert len(stripe.sessions) == 1
    buyer.press("Pay")
    buyer.page.wait_for_url(f"**/requests/{ticket}/")
    buyer.sees("You went to pay.")
    assert payments_of(stripe_sale) == ["pending"]
    (event,) = page.events
    for _ in range(2):  # Stripe may tell the same twice
        tell(stripe_shop, event)
    if not has_script:
        buyer.reload()
    buyer.sees_state("paid")
    buyer.sees("This page is your receipt")
    assert (orders_of(stripe_sale), payments_of(stripe_sale)) == (["paid"], ["captured"])
    assert Payment.objects.get(order__request_id=ticket).provider == "stripe"
    assert_books_balance(stripe_sale)
    buyer.close()
    assert buyer.faults == []
