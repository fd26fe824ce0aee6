"""The address at which a payment provider is told to find this shop is FAIRDROP_PUBLIC_URL, whatever Host a call names.
Uses the real stores, the real sandbox, and a stand-in of Stripe's API.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from django.test import Client
from django.test.utils import override_settings

from shop import buyers
from shop.sales.catalogue import SaleCard
from shop.sandbox.models import Charge
from tests.support import road
from tests.support.stripe_shop import payment_of, selling_by_stripe

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
PUBLIC, OTHER = "https://shop.example", "other.example"


@contextmanager
def two_hosts(public_url: str) -> Iterator[None]:
    """Serve under two names, both allowed; only one of them is told to the world."""
    with override_settings(PUBLIC_URL=public_url, ALLOWED_HOSTS=["shop.example", OTHER]):
        yield


def pay(card: SaleCard, *, by_the_api: bool) -> str:
    """Begin to pay a new hold by a call that names the other host; return the request's id."""
    buyer, token = buyers.issue_buyer()
    (name,) = road.queue(card, buyer)
    road.settle_line(card)
    headers = {"host": OTHER, "x-forwarded-host": OTHER}
    if by_the_api:
        headers["authorization"] = f"Bearer {token}"
        path, body, kind = f"/api/v1/requests/{name}/payment", '{"page": true}', "application/json"
        answer = Client().post(path, body, content_type=kind, headers=headers)
    else:
        client = Client()
        client.cookies[buyers.COOKIE_NAME] = token
        answer = client.post(f"/requests/{name}/payment/", headers=headers)
    assert answer.status_code == (200 if by_the_api else 303), answer.content
    return name


@pytest.mark.parametrize("by_the_api", [True, False])
def test_another_host_changes_no_address_of_a_notice(card: SaleCard, by_the_api: bool) -> None:
    with two_hosts(PUBLIC):
        told = Charge.objects.get(reference=payment_of(pay(card, by_the_api=by_the_api)).reference).notice_url
    assert told == f"{PUBLIC}/api/v1/payments/sandbox/notices"
    with two_hosts(""):  # the control, which production refuses: the other host did come with the call
        told = Charge.objects.get(reference=payment_of(pay(card, by_the_api=by_the_api)).reference).notice_url
    assert urlsplit(told).netloc == OTHER


@pytest.mark.parametrize("by_the_api", [True, False])
def test_another_host_changes_no_address_that_stripe_leads_back_to(card: SaleCard, by_the_api: bool) -> None:
    with selling_by_stripe() as stripe:
        for public_url, wanted in ((PUBLIC, "shop.example"), ("", OTHER)):  # the second is the control
            with two_hosts(public_url):
                name = pay(card, by_the_api=by_the_api)
            session = stripe.session_of(payment_of(name).reference)
            assert {session["success_url"], session["cancel_url"]} == {session["success_url"]}
            assert urlsplit(session["success_url"])[1:3] == (wanted, f"/requests/{name}/")
