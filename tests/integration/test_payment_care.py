"""What payments left open is brought to an end: refunds that failed are asked for again, lost notices are collected.
Uses the real stores and the real sandbox, in this process.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db.models.functions import Now
from django.test.utils import override_settings

from shop import payment_care, refunds
from shop.catalogue import SaleCard
from shop.models import Payment
from shop.sandbox.models import Event
from tests.paying import again, begin, charge_state, happen, hear, hold, payment_state, state_of
from tests.shopkeeping import assert_books_balance

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")


def test_a_refund_that_the_provider_could_not_do_is_asked_for_again(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    notice = happen(payment, "captured")
    with override_settings(SANDBOX_MISCHIEF=["mute", "away"]):
        assert hear(again(notice, amount=Decimal("1.00"))) == "refund_due"
        assert (payment_state(payment), charge_state(payment)) == ("refund_due", "captured")
        assert not refunds.refund_now(payment.reference)
        payment_care.retry_refunds()
        assert payment_state(payment) == "refund_due"
    assert payment_care.retry_refunds() >= 1
    assert (payment_state(payment), charge_state(payment)) == ("refunded", "refunded")
    assert Event.objects.filter(charge__reference=payment.reference, kind="refunded").count() == 1
    assert payment_care.retry_refunds() == 0
    assert_books_balance(card)


def test_a_lost_notice_is_asked_for(card: SaleCard) -> None:
    names = hold(card, buyers=2)
    paid, silent = begin(names[0]), begin(names[1])
    happen(paid, "captured")
    at_once = timedelta(0)
    assert payment_care.collect_lost_notices(first_question=timedelta(hours=1)) == 0
    assert state_of(names[0]) == "held"
    with override_settings(SANDBOX_MISCHIEF=["mute", "away"]):
        assert payment_care.collect_lost_notices(first_question=at_once) == 0
    Payment.objects.filter(pk=paid.pk).update(changed_at=Now() - timedelta(minutes=10))
    assert payment_care.collect_lost_notices(first_question=at_once) >= 1
    assert (state_of(names[0]), state_of(names[1])) == ("paid", "held")
    assert (payment_state(paid), payment_state(silent)) == ("captured", "pending")
    assert_books_balance(card)


def test_each_vain_question_is_followed_by_a_longer_silence(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)

    def is_due() -> bool:
        return payment_care._silent(payment_care.FIRST_QUESTION).filter(pk=payment.pk).exists()

    def age(begun: int, asked: int) -> bool:
        Payment.objects.filter(pk=payment.pk).update(
            created_at=Now() - timedelta(seconds=begun), changed_at=Now() - timedelta(seconds=asked)
        )
        return is_due()

    assert [age(5, 5), age(11, 11), age(100, 40), age(130, 70), age(90_000, 80_000)] == [
        False, True, False, True, False,
    ]  # fmt: skip
