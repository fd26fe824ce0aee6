"""Buying by Stripe over HTTP, at a real web process that has its keys: the call, the press, the signed events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.desk import Desk, open_desk
from tests.support.http_calls import Answer, Caller
from tests.support.servers.shop_processes import web_process
from tests.support.servers.stripe_server import Object, StripeServer, signed, stripe_server
from tests.support.shopkeeping import assert_books_balance
from tests.support.shown_sales import shown_sales
from tests.support.stripe_shop import payment_of, stripe_environment
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
SECRET = "a" * 32  # of a form: the cookie and the field must agree
NOTICES = "/api/v1/payments/stripe/notices"


@pytest.fixture
def stripe() -> Iterator[StripeServer]:
    with stripe_server() as server:
        yield server


@pytest.fixture
def desk(
    stripe: StripeServer, process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> Iterator[Desk]:
    """A sale of two units with two buyers, at a web process that sells by Stripe."""
    with web_process(process_environment | stripe_environment(stripe), folder=tmp_path) as web:
        yield open_desk(web, shown_sales(web, new_sku), units=2, buyers=2)


def send(web: Caller, event: Object, **more: object) -> Answer:
    headers, body = signed(event, **more)
    return web.call("POST", NOTICES, body=body, headers=headers)


def patiently(call: Callable[[], Answer]) -> Answer:
    """Make a call that may be repeated until it is not 503: to a busy machine Stripe's answer may come too late."""
    return wait_until(lambda: (answer := call()).status != 503 and answer, what="Stripe answers")


def form_action(answer: Answer) -> str:
    """Return where the forms of a page may lead."""
    rules = answer.headers["content-security-policy"].split(";")
    return next(rule.strip() for rule in rules if rule.strip().startswith("form-action"))


def test_the_call_leads_to_stripe_and_its_event_pays(desk: Desk, stripe: StripeServer) -> None:
    refused = desk.call("payment")
    assert (refused.status, refused.json()["code"]) == (400, "invalid_request")
    assert '{"page": true}' in refused.json()["detail"]
    begun = patiently(lambda: desk.call("payment", body={"page": True}))
    session = stripe.session_of(payment_of(desk.ids[0]).reference)
    assert (begun.status, begun.json()["payment_url"]) == (200, session["url"])
    event = stripe.pay(session["client_reference_id"])
    forged = send(desk.web, event, secret="whsec_another")
    assert (forged.status, forged.json()["code"], desk.status()["state"]) == (400, "invalid_request", "held")
    old = send(desk.web, event, moment=1)
    assert (old.status, desk.status()["state"]) == (400, "held")
    for _ in range(2):
        taken = send(desk.web, event)
        assert (taken.status, taken.json()) == (200, {"result": "paid"})
    assert [desk.status(number)["state"] for number in (0, 1)] == ["paid", "held"]
    unknown = stripe.event("checkout.session.completed", session | {"metadata": {"fairdrop_payment": "0" * 32}})
    assert send(desk.web, unknown).status == 404
    another = send(desk.web, stripe.event("charge.updated", next(iter(stripe.charges.values()))))
    assert (another.status, another.json()) == (200, {"result": "nothing to change"})
    assert_books_balance(desk.card)


def test_the_press_leads_to_stripes_page_and_the_browser_may_follow(
    desk: Desk, stripe: StripeServer, web: Caller
) -> None:
    page = f"/requests/{desk.ids[1]}/"
    cookies = f"buyer={desk.buyers[1].token}; csrftoken={SECRET}"
    headers = {"Cookie": cookies, "Origin": f"http://127.0.0.1:{desk.web.port}"}
    shown = desk.web.call("GET", page, headers=headers)
    assert (shown.status, form_action(shown)) == (200, "form-action 'self' https://checkout.stripe.com")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = f"csrfmiddlewaretoken={SECRET}"
    pressed = patiently(lambda: desk.web.call("POST", f"{page}payment/", body=body, headers=headers | form))
    assert pressed.status == 303, pressed.body
    assert pressed.headers["location"] == stripe.session_of(payment_of(desk.ids[1]).reference)["url"]
    # The control: a shop that does not sell by Stripe.
    assert form_action(web.get("/")) == "form-action 'self'"
