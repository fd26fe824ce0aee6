"""A refund that failed since the backup is owed again after a restore, and money that nobody owes is not. Real stores
and the stand-in of Stripe's API, whose event of the failure is never heard, as if it had come after the backup.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from inventory.states import Reason
from shop.models import Order
from shop.payments import refunds
from shop.sales.catalogue import SaleCard, find_sale
from shop.staff import sale_control
from shop.staff.lists.order_acts import do_act
from shop.staff.restore import charges
from tests.support.paying import hold, state_of
from tests.support.servers.stripe_server import StripeServer
from tests.support.shopkeeping import assert_books_balance
from tests.support.stripe_shop import begin, hear, payment_of, selling_by_stripe
from workers.payments import left_open

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")


@pytest.fixture
def stripe() -> Iterator[StripeServer]:
    """Let this process sell by Stripe."""
    with selling_by_stripe() as server:
        yield server


def paid(card: SaleCard, stripe: StripeServer) -> str:
    (name,) = hold(card, buyers=1)
    begin(name)
    hear(stripe.pay(payment_of(name).reference))
    return name


def settle(name: str) -> tuple[str, list[str]]:
    """Bring in what Stripe says; return the state of the payment, and its alarms."""
    charges.settle_charges(datetime.now(UTC) - timedelta(days=3))
    payment = payment_of(name)
    return payment.state, [each.detail for each in left_open() if each.name == payment.reference]


def test_a_refund_that_failed_since_the_backup_is_owed_again(card: SaleCard, stripe: StripeServer) -> None:
    """The control: as long as the money is with its buyer, nothing is owed."""
    name = paid(card, stripe)
    refunds.refund_order(name, actor="anna", reason="damaged")
    assert settle(name) == ("refunded", [])
    stripe.fail_refund(payment_of(name).reference)
    for _ in range(2):
        assert settle(name) == ("refund_due", [f"of request {name}: {Reason.REFUND_FAILED}"])
    assert state_of(name) == "refunded"
    assert_books_balance(card)


def test_money_that_staff_noted_as_sent_is_not_owed_again(card: SaleCard, stripe: StripeServer) -> None:
    name = paid(card, stripe)
    refunds.refund_order(name, actor="anna", reason="damaged")
    hear(stripe.fail_refund(payment_of(name).reference))
    do_act(Order.objects.get(request_id=name), "sent", actor="anna", reason="by transfer")
    assert settle(name) == ("refunded", [])
    assert payment_of(name).reason == "by transfer"


def test_money_that_a_bank_has_taken_is_not_owed_again(card: SaleCard, stripe: StripeServer) -> None:
    name = paid(card, stripe)
    (charge,) = stripe.charges.values()
    charge["disputed"] = True
    refunds.refund_order(name, actor="anna", reason="disputed")
    assert settle(name) == ("refunded", [])
    assert payment_of(name).reason == Reason.TAKEN_BY_BANK


def test_an_order_that_cost_nothing_is_owed_nothing(card: SaleCard, stripe: StripeServer) -> None:
    """Stripe has no charge of it that it could call given back."""
    sale_control.change_terms(card.slug, actor="anna", price=Decimal(0))
    name = paid(find_sale(card.slug), stripe)
    session = stripe.session_of(payment_of(name).reference)
    session |= {"payment_status": "no_payment_required", "payment_intent": None}
    refunds.refund_order(name, actor="anna", reason="damaged")
    assert settle(name) == ("refunded", [])
