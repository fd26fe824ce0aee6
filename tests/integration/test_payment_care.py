"""What payments left open is brought to an end: refunds that failed are asked for again, lost notices are collected.
Uses the real stores and the real sandbox, in this process.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.db.models.query import QuerySet
from django.test.utils import override_settings

from shop import holds, payment_care, refunds
from shop.catalogue import SaleCard
from shop.models import Order, Payment
from shop.sandbox.models import Event
from shop.sandbox.provider import Sandbox
from tests.paying import again, begin, charge_state, happen, hear, hold, payment_state, state_of
from tests.shopkeeping import assert_books_balance, let_holds_end

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")

DAY = 86_400


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

    def age(begun: int, asked: int, state: str = "pending") -> bool:
        Payment.objects.filter(pk=payment.pk).update(
            created_at=Now() - timedelta(seconds=begun), changed_at=Now() - timedelta(seconds=asked), state=state
        )
        return is_due()

    assert [age(5, 5), age(11, 11), age(100, 40), age(130, 70)] == [False, True, False, True]
    # Only an answer ends the questions; one that was declined has had one, and is asked about for half a day.
    assert [age(9 * DAY, 5 * DAY), age(9 * DAY, 4 * DAY), age(900 * DAY, 600 * DAY)] == [True, False, True]
    assert age(9 * DAY, 9 * DAY - 40_000, "declined")
    assert [age(9 * DAY, 9 * DAY - 50_000, "declined"), age(100, 40, "declined")] == [False, False]


def test_a_captured_payment_whose_notice_was_lost_is_found_after_weeks(card: SaleCard) -> None:
    """Charged for nothing: the order has expired, the provider has the money, and nobody ever told us."""
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    happen(payment, "captured")
    weeks = Now() - timedelta(days=30)
    Payment.objects.filter(pk=payment.pk).update(created_at=weeks, changed_at=weeks + timedelta(days=1))
    let_holds_end(name)
    with transaction.atomic(), connection.cursor() as cursor:
        changes = holds.expire_due(cursor, sku=card.sku, request_ids=[name])
    holds.tell(changes)
    assert (state_of(name), payment_state(payment)) == ("expired", "pending")
    assert payment_care.collect_lost_notices() >= 1
    assert (state_of(name), payment_state(payment)) == ("paid", "captured")
    assert_books_balance(card)


@pytest.mark.parametrize(("mischief", "questions"), [(["mute", "away"], 1), (["mute"], 2)], ids=["away", "there"])
def test_a_provider_that_does_not_answer_is_asked_once_a_round(
    mischief: list[str], questions: int, card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments = [begin(name) for name in hold(card, buyers=2)]
    ours = Payment.objects.filter(pk__in=[payment.pk for payment in payments])
    ours.update(changed_at=Now() - timedelta(minutes=10), created_at=Now() - timedelta(minutes=10))
    monkeypatch.setattr(payment_care, "_silent", lambda _: ours)
    asked, look_up = [], Sandbox.look_up
    monkeypatch.setattr(Sandbox, "look_up", lambda self, reference: asked.append(reference) or look_up(self, reference))
    with override_settings(SANDBOX_MISCHIEF=mischief):
        assert payment_care.collect_lost_notices() == 0
    assert len(asked) == questions


OLD_PAYMENTS = """
INSERT INTO shop_payment (order_id, provider, reference, amount, currency, state, reason, created_at, changed_at)
SELECT %s, 'sandbox', 'old-' || no, 9, 'EUR', CASE WHEN no %% 10 = 0 THEN 'pending' ELSE 'declined' END, '',
       now() - interval '9 days', now() - CASE WHEN no %% 10 = 0 THEN interval '3 days' ELSE interval '8 days' END
FROM generate_series(1, 30000) AS no
"""


@pytest.mark.parametrize(
    ("look", "index"),
    [
        (lambda: payment_care._silent(payment_care.FIRST_QUESTION)[:100], "payment_asked_about"),
        (lambda: payment_care._owed()[:100], "payment_refund_due"),
    ],
    ids=["lost notices", "refunds"],
)
def test_a_look_at_open_payments_reads_no_old_one(
    card: SaleCard, look: Callable[[], QuerySet[Payment]], index: str
) -> None:
    (name,) = hold(card, buyers=1)
    before = pages_read(look())  # what other tests have left open
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(OLD_PAYMENTS, [Order.objects.get(request_id=name).pk])
        cursor.execute("ANALYZE shop_payment")
        assert pages_read(look()) <= before + 20
        # The control: the same look without its index.
        cursor.execute(f"DROP INDEX {index}")
        assert pages_read(look()) > before + 300
        transaction.set_rollback(True)


def pages_read(look: QuerySet[Payment]) -> int:
    """Return how many pages of tables and indexes the database touches for a look."""
    plan = json.loads(look.explain(format="json", analyze=True, buffers=True))[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
