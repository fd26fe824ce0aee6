"""The stand-in of Stripe's API refuses what Stripe's description does not have. Needs no server of the shop's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import pytest
import stripe

from shop.payments.providers import Charge
from shop.stripe.provider import session_of
from tests.support.servers.stripe_server import API_KEY, stripe_server
from tests.support.stripe_shapes import OBJECTS, example, faults_of, read_form

CREATE = "POST /v1/checkout/sessions"


def wish(ends_in: timedelta = timedelta(minutes=10)) -> dict[str, Any]:
    """Return what the shop asks for when a hold ends so long from now."""
    ends = datetime.now(tz=UTC) + ends_in
    money = (Decimal("15.00"), "EUR")
    return dict(session_of(Charge("a" * 32, *money, "1 × Kite", "/requests/1/", "https://shop.example/notices", ends)))


def client(url: str, key: str = API_KEY) -> stripe.StripeClient:
    return stripe.StripeClient(key, base_addresses={"api": url}, http_client=stripe.RequestsClient(timeout=60))


def test_what_the_shop_asks_for_has_the_shape_that_stripe_describes() -> None:
    """The control of every refusal below."""
    with stripe_server() as server:
        made = client(server.url).v1.checkout.sessions.create(wish())
    assert (made.status, made.payment_status, made.currency) == ("open", "unpaid", "eur")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"expire_at": 1}, "expire_at"),
        ({"mode": "pay"}, "mode"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"line_items": [{"quantity": 1, "price_data": {"currency": "eur", "unit_amount": "15.00"}}]}, "15.00"),
        ({"line_items": [{"quantity": 1, "price_data": {"unit_amount": 1500}}]}, "currency"),
        ({"line_items": [{"price_data": {"currency": "eur", "product_data": {"unit_label": "piece"}}}]}, "name"),
        ({"allowed_payment_method_types": "card"}, "card"),
        # Removed from the API in 2026.
        ({"payment_method_types": ["card"]}, "payment_method_types"),
        ({"adaptive_pricing": {"enabled": 0}}, "enabled"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_stripe_does_not_describe_is_refused(changes: dict[str, Any], fault: str) -> None:
    with stripe_server() as server, pytest.raises(stripe.InvalidRequestError, match=fault):
        client(server.url).v1.checkout.sessions.create({**wish(), **changes})
    assert server.sessions == {}


@pytest.mark.parametrize(("ends_in", "fault"), [(timedelta(minutes=-5), "30 minutes"), (timedelta(days=1), "24 hours")])
def test_a_session_that_ends_too_soon_or_too_late_is_refused(ends_in: timedelta, fault: str) -> None:
    with stripe_server() as server, pytest.raises(stripe.InvalidRequestError, match=fault):
        client(server.url).v1.checkout.sessions.create(wish(ends_in))
    assert server.sessions == {}


def test_another_key_and_another_address_are_refused() -> None:
    with stripe_server() as server:
        with pytest.raises(stripe.AuthenticationError):
            client(server.url, "sk_test_another").v1.checkout.sessions.create(wish())
        with pytest.raises(stripe.InvalidRequestError, match="Unrecognized"):
            client(server.url).v1.customers.create({})


def test_a_key_used_for_something_else_is_refused() -> None:
    options, mine = {"idempotency_key": "one"}, wish()
    with stripe_server() as server:
        sessions = client(server.url).v1.checkout.sessions
        first = sessions.create(mine, options)
        assert sessions.create(mine, options).id == first.id
        with pytest.raises(stripe.IdempotencyError):
            sessions.create({**mine, "locale": "de"}, options)
        assert len(server.sessions) == 1


@pytest.mark.parametrize("name", OBJECTS)
def test_an_answer_with_another_shape_would_be_found(name: str) -> None:
    made = example(name)
    assert faults_of(name, made) == []
    assert faults_of(name, made | {"surprise": 1})
    first = next(iter(made))
    assert faults_of(name, {key: value for key, value in made.items() if key != first})
    assert faults_of(name, made | {first: ["another type"]})


def test_a_form_is_read_as_the_library_writes_it() -> None:
    pairs = {"a[b][0][c]": "d", "a[b][1][c]": "e", "x": "1", "y[]": "z"}
    assert read_form(urlencode(pairs)) == {"a": {"b": [{"c": "d"}, {"c": "e"}]}, "x": "1", "y": {"": "z"}}
