"""Lets a shop sell by Stripe, with the stand-in of its API: begins payments, and carries events by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from unittest import mock

from django.db import connection, transaction
from django.test.utils import override_settings

from shop.models import Payment
from shop.orders import holds
from shop.payments import checkout, notices
from shop.payments.providers import default_provider
from shop.stripe import calls
from tests.support.servers.stripe_server import API_KEY, WEBHOOK_SECRET, Object, StripeServer, signed, stripe_server
from tests.support.shopkeeping import let_holds_end
from tests.support.waiting import PATIENCE_SECONDS

BUYER = "buyer-0000000"
ROOT = "https://shop.example"
PROVIDERS = "stripe=shop.stripe.provider.Stripe"


def stripe_environment(server: StripeServer) -> dict[str, str]:
    """Return the variables by which a process of the shop sells by the stand-in."""
    return {
        "FAIRDROP_PAYMENT_PROVIDERS": PROVIDERS,
        "FAIRDROP_STRIPE_KEY": API_KEY,
        "FAIRDROP_STRIPE_WEBHOOK_SECRET": WEBHOOK_SECRET,
        "FAIRDROP_STRIPE_API": server.url,
    }


@contextmanager
def selling_by_stripe() -> Iterator[StripeServer]:
    """Let this process sell by a stand-in until the end of the block."""
    # A name of its own: a round asks about every payment of a provider, also what another test left open.
    name, path = f"stripe-{token_hex(4)}", PROVIDERS.partition("=")[2]
    with (
        stripe_server() as server,
        # A test that wants no answer says so: a busy machine must not look like a Stripe that is silent.
        mock.patch.object(calls, "ANSWER_SECONDS", PATIENCE_SECONDS),
        override_settings(
            PAYMENT_PROVIDERS={name: path},
            STRIPE_KEY=API_KEY,
            STRIPE_WEBHOOK_SECRET=WEBHOOK_SECRET,
            STRIPE_API=server.url,
        ),
    ):
        try:
            yield server
        finally:
            calls._client.cache_clear()


def begin(name: str, *, buyer: str = BUYER) -> str:
    """Begin to pay a hold; return the address of the page."""
    return checkout.begin_page(name, buyer=buyer, provider_name=default_provider(), root=ROOT)


def payment_of(name: str) -> Payment:
    """Return the last payment of a request."""
    return Payment.objects.filter(order__request_id=name).latest("id")


def hear(event: Object) -> str:
    """Bring an event to the shop as Stripe sends it."""
    headers, body = signed(event)
    return notices.read_and_take(headers, body, provider_name=default_provider())


def expire(name: str, *, sku: str) -> None:
    """Let the time of a hold be over, and end it."""
    let_holds_end(name)
    with transaction.atomic(), connection.cursor() as cursor:
        changes = holds.expire_due(cursor, sku=sku, request_ids=[name])
    assert [each.request_id for each in changes.changed] == [name]
    holds.publish(changes)
