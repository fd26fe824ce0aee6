"""After too many declined cards nobody tries one more: Stripe's page ends, the hold and its late money stay.
Uses the real stores, the official library, and a stand-in of Stripe's API that is held to its published shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from secrets import token_hex

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test.utils import override_settings

from inventory.exceptions import PaymentsLimited, Unavailable
from inventory.states import Reason
from shop.models import Order, Payment, PaymentNotice
from shop.payments import recovery, tries
from shop.sales.catalogue import SaleCard
from tests.support.paying import hold, payment_state, state_of
from tests.support.query_plans import rows_read
from tests.support.servers.stripe_server import Refused, StripeServer
from tests.support.shopkeeping import assert_books_balance, make_sale
from tests.support.staff import browser_of
from tests.support.stripe_shop import begin, hear, payment_of, selling_by_stripe

pytestmark = pytest.mark.usefixtures("shop_database")
END = "POST /v1/checkout/sessions/*/expire"


@pytest.fixture
def stripe() -> Iterator[StripeServer]:
    """Let this process sell by Stripe; a hold takes three cards, a buyer four."""
    with override_settings(MAX_DECLINED_PER_HOLD=3, MAX_DECLINED_PER_BUYER=4), selling_by_stripe() as server:
        yield server


@pytest.fixture
def buyer() -> str:
    """A buyer of this test alone: what others had declined counts for them."""
    return f"cards-{token_hex(4)}-0000000"


def hold_for(buyer: str, card: SaleCard) -> str:
    """Let `buyer` have a unit and begin to pay it; return the request's id."""
    (name,) = hold(card, buyers=1, named=buyer.removesuffix("-0000000"))
    begin(name, buyer=buyer)
    return name


def staff_page(name: str) -> str:
    """Return the order of a request as staff see it."""
    order = Order.objects.get(request_id=name)
    return browser_of("superuser").get(f"/admin/shop/order/{order.pk}/change/").content.decode()


def test_stripes_page_ends_after_too_many_declined_cards(buyer: str, card: SaleCard, stripe: StripeServer) -> None:
    name = hold_for(buyer, card)
    page, payment = begin(name, buyer=buyer), payment_of(name)
    session = stripe.session_of(payment.reference)
    for event in (stripe.decline(payment.reference), stripe.decline(payment.reference)):
        assert [hear(event), hear(event), hear(event)] == ["card declined"] * 3
    # The control: the same event again is no other try.
    assert (begin(name, buyer=buyer), session["status"], payment_state(payment)) == (page, "open", "pending")
    assert "No more cards can be tried" not in staff_page(name)
    assert hear(stripe.decline(payment.reference)) == "card declined"
    assert (session["status"], stripe.called(END), payment_state(payment)) == ("expired", 1, "declined")
    assert payment_of(name).reason == Reason.TOO_MANY_DECLINED
    with pytest.raises(PaymentsLimited):
        begin(name, buyer=buyer)
    assert state_of(name) == "held"
    assert "Declined: 3 for it, 3 of its buyer within a day." in staff_page(name)
    assert Reason.TOO_MANY_DECLINED in staff_page(name)
    with override_settings(MAX_DECLINED_PER_HOLD=4):
        assert begin(name, buyer=buyer) not in ("", page)
    assert hear(stripe.pay(payment_of(name).reference)) == "paid"
    assert_books_balance(card)


def test_a_card_that_is_taken_at_that_moment_buys(buyer: str, card: SaleCard, stripe: StripeServer) -> None:
    name = hold_for(buyer, card)
    payment = payment_of(name)
    declined = [stripe.decline(payment.reference) for _ in range(3)]
    paid = stripe.pay(payment.reference)
    for event in declined:
        hear(event)
    assert (state_of(name), payment_state(payment)) == ("paid", "captured")
    assert hear(paid) == "nothing to change"
    assert_books_balance(card)


def test_money_that_is_heard_of_after_the_page_ended_buys(buyer: str, card: SaleCard, stripe: StripeServer) -> None:
    name = hold_for(buyer, card)
    payment = payment_of(name)
    for _ in range(3):
        hear(stripe.decline(payment.reference))
    assert (state_of(name), payment_state(payment)) == ("held", "declined")
    stripe.session_of(payment.reference)["status"] = "open"  # as it was when the last card was tried
    assert hear(stripe.pay(payment.reference)) == "paid"
    assert_books_balance(card)


@pytest.mark.parametrize(("status", "asked_by"), [(503, "stripe"), (503, "worker"), (400, "worker")])
def test_a_page_that_could_not_be_ended_is_ended_later(
    buyer: str, card: SaleCard, stripe: StripeServer, status: int, asked_by: str
) -> None:
    """Stripe sends again what was not taken; without that, or when it refused, the payments worker asks."""
    name = hold_for(buyer, card)
    payment = payment_of(name)
    session = stripe.session_of(payment.reference)
    for _ in range(2):
        hear(stripe.decline(payment.reference))
    last, stripe.refuse = stripe.decline(payment.reference), Refused(status, "api_error", "An error")
    with pytest.raises(Unavailable) if status == 503 else nullcontext():
        hear(last)
    with pytest.raises(PaymentsLimited):
        begin(name, buyer=buyer)
    assert (session["status"], PaymentNotice.objects.filter(reference=payment.reference).count()) == ("open", 3)
    stripe.refuse = None
    if asked_by == "stripe":
        assert hear(last) == "card declined"
    else:
        old = Now() - timedelta(minutes=10)
        Payment.objects.filter(pk=payment.pk).update(created_at=old, changed_at=old)
        recovery.bring_on()
    assert (session["status"], state_of(name), payment_state(payment)) == ("expired", "held", "declined")


def test_too_many_cards_of_a_buyer_end_all_pages_of_theirs(
    buyer: str, stripe: StripeServer, new_sku: Callable[[], str], card: SaleCard
) -> None:
    """The control: another buyer's page stays open."""
    names = [hold_for(buyer, make_sale(new_sku(), units=1)) for _ in range(2)]
    other = hold_for(f"cards-{token_hex(4)}-0000000", card)
    references = [payment_of(name).reference for name in (*names, other)]
    for reference in references[:2]:
        assert [hear(stripe.decline(reference)) for _ in range(2)] == ["card declined"] * 2
    states = [stripe.session_of(reference)["status"] for reference in references]
    assert states == ["expired", "expired", "open"]
    with pytest.raises(PaymentsLimited):
        begin(names[0], buyer=buyer)
    assert [state_of(name) for name in names] == ["held"] * 2


OLD_NOTICES = 30_000
OLD = """
INSERT INTO shop_paymentnotice (provider, event_id, kind, reference, result)
SELECT 'sandbox', 'old-' || no, 'card_declined', 'old-' || no, 'card declined' FROM generate_series(1, %s) AS no
"""


def test_the_count_reads_no_notice_of_another_payment(buyer: str, card: SaleCard, stripe: StripeServer) -> None:
    name = hold_for(buyer, card)
    hear(stripe.decline(payment_of(name).reference))
    order = Order.objects.get(request_id=name)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(OLD, [OLD_NOTICES])
        cursor.execute("ANALYZE shop_paymentnotice, shop_payment, shop_order")
        before = rows_read("shop_paymentnotice")
        assert tries.count(order) == (1, 1)
        assert rows_read("shop_paymentnotice") < before + 10
        # The control: the same count without the only index by reference.
        cursor.execute("DROP INDEX payment_notice_by_reference")
        tries.count(order)
        assert rows_read("shop_paymentnotice") >= before + OLD_NOTICES
        transaction.set_rollback(True)
