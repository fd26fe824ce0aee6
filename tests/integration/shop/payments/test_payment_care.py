"""What payments left open is brought to an end: refunds that failed are asked for again, lost notices are collected.
Uses the real stores and the real sandbox, in this process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.db.models.query import QuerySet
from django.test.utils import override_settings
from structlog.testing import capture_logs

from inventory.exceptions import InvalidRequest, Unavailable
from inventory.telemetry.measures import RETRIES
from inventory.telemetry.page import render
from shop.models import STILL_ASKED_ABOUT, Order, Payment
from shop.orders import holds
from shop.payments import recovery, refunds
from shop.payments.providers import Notice
from shop.payments.recovery import bring_on
from shop.payments.tries import find_open
from shop.sales.audit import audit_sale
from shop.sales.catalogue import SaleCard
from shop.sandbox.models import Charge, Event
from shop.sandbox.provider import Sandbox
from tests.support.paying import again, begin, charge_state, happen, hear, hold, payment_state, state_of
from tests.support.query_plans import pages_read
from tests.support.shopkeeping import assert_books_balance, let_holds_end, make_sale, put_away
from tests.support.stripe_shop import expire
from tests.support.waiting import TRIES
from workers import payments
from workers.embedded.server import free_port
from workers.management.commands.run_worker import OWN_GAUGES
from workers.payments import PaymentsWorker, left_open
from workers.process_loop import Stopped

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
        bring_on()
        assert payment_state(payment) == "refund_due"
    assert bring_on()["refund_due"] >= 1
    assert (payment_state(payment), charge_state(payment)) == ("refunded", "refunded")
    assert Event.objects.filter(charge__reference=payment.reference, kind="refunded").count() == 1
    assert bring_on()["refund_due"] == 0
    assert_books_balance(card)


def test_a_lost_notice_is_asked_for(card: SaleCard) -> None:
    names = hold(card, buyers=2)
    paid, silent = begin(names[0]), begin(names[1])
    happen(paid, "captured")
    at_once = timedelta(0)
    bring_on(first_question=timedelta(hours=1))  # of those that other tests left, some may come to an end
    assert (state_of(names[0]), payment_state(paid)) == ("held", "pending")
    with override_settings(SANDBOX_MISCHIEF=["mute", "away"]):
        assert bring_on(first_question=at_once)["lost_notice"] == 0
    Payment.objects.filter(pk=paid.pk).update(changed_at=Now() - timedelta(minutes=10))
    assert bring_on(first_question=at_once)["lost_notice"] >= 1
    assert (state_of(names[0]), state_of(names[1])) == ("paid", "held")
    assert (payment_state(paid), payment_state(silent)) == ("captured", "pending")
    assert_books_balance(card)


def test_a_sale_that_is_put_away_leaves_no_payment_to_later_tests(new_sku: Callable[[], str]) -> None:
    """Of each kind one: begun, captured and not heard of, declined, owed, and begun for a hold that is over."""
    card = make_sale(new_sku(), units=5)
    begun, unheard, declined, owed, late = [begin(name) for name in hold(card, buyers=5)]
    happen(unheard, "captured")
    asked_again = {"created_at": Now() - timedelta(minutes=4), "changed_at": Now() - timedelta(minutes=2)}
    Payment.objects.filter(pk=declined.pk).update(state="declined", **asked_again)
    Payment.objects.filter(pk=owed.pk).update(state="refund_due")
    expire(late.order.request_id, sku=card.sku)

    def asked_about() -> list[int]:
        looks = recovery.due("sandbox", max_at_once=10_000, first_question=timedelta(0))
        return sorted({each.pk for look in looks for each in look if each.order.sale_id == card.sale_id})

    assert asked_about() == sorted(each.pk for each in (begun, unheard, declined, owed, late))
    put_away([card.sku])
    assert asked_about() == []
    assert not find_open(begun.order)


def test_each_vain_question_is_followed_by_a_longer_silence(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)

    def is_due() -> bool:
        return recovery._silent(recovery.FIRST_QUESTION).filter(pk=payment.pk).exists()

    def age(begun: int, asked: int, state: str = "pending") -> bool:
        Payment.objects.filter(pk=payment.pk).update(
            created_at=Now() - timedelta(seconds=begun), changed_at=Now() - timedelta(seconds=asked), state=state
        )
        return is_due()

    # A machine that stands still may let the first question come due before we have looked, but not each time.
    assert not all(age(0, 0) for _ in range(TRIES))
    assert [age(11, 11), age(1000, 400), age(1300, 700)] == [True, False, True]
    # Only an answer ends the questions; one that was declined is asked about for as long as it may still be paid.
    assert [age(9 * DAY, 5 * DAY), age(9 * DAY, 4 * DAY), age(900 * DAY, 600 * DAY)] == [True, False, True]
    assert age(9 * DAY, 7 * DAY + 60, "declined")
    assert [age(9 * DAY, 7 * DAY - 60, "declined"), age(1000, 400, "declined")] == [False, False]


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
    holds.publish(changes)
    assert (state_of(name), payment_state(payment)) == ("expired", "pending")
    assert bring_on()["lost_notice"] >= 1
    assert (state_of(name), payment_state(payment)) == ("paid", "captured")
    assert_books_balance(card)


@pytest.fixture
def asked(new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let two payments be due for a question, one for a refund, and nobody else's; note what providers are asked."""
    payments = [begin(name) for name in hold(make_sale(new_sku(), units=3), buyers=3)]
    ids = [payment.pk for payment in payments]
    old = Now() - timedelta(minutes=10)
    silent, owed = Payment.objects.filter(pk__in=ids[:2]), Payment.objects.filter(pk__in=ids[2:])
    silent.update(changed_at=old, created_at=old)
    owed.update(state=Payment.State.REFUND_DUE)
    happen(payments[2], "captured")
    monkeypatch.setattr(recovery, "_silent", lambda _: silent)
    monkeypatch.setattr(recovery, "_owed", lambda: owed)
    monkeypatch.setattr(recovery, "_over", Payment.objects.none)
    noted: list[str] = []
    for name in ("look_up", "refund"):
        monkeypatch.setattr(Sandbox, name, noting(getattr(Sandbox, name), noted))
    return noted


def noting(call: Callable[..., Any], noted: list[str]) -> Callable[..., Any]:
    """Return `call`, which from now on leaves its name in `noted`."""
    return lambda *args: noted.append(call.__name__) or call(*args)


@pytest.mark.parametrize(
    ("mischief", "questions"),
    [(["mute", "away"], ["look_up"]), (["mute"], ["look_up", "look_up", "refund"])],
    ids=["away", "there"],
)
def test_a_provider_that_does_not_answer_is_asked_once_a_round(
    mischief: list[str], questions: list[str], asked: list[str]
) -> None:
    with override_settings(SANDBOX_MISCHIEF=mischief):
        bring_on()
    assert asked == questions


def test_a_redis_that_is_away_ends_no_round(asked: list[str]) -> None:
    """A notice that the books already have is told to the line again. The control is the provider above that is away.

    Each buyer's declined payment is asked about for days: one of them would end the rounds of all others.
    """
    for payment in recovery._silent(timedelta(0)):
        assert hear(happen(payment, "declined")) == "declined"
    with override_settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"):
        assert bring_on()["refund_due"] == 1
    assert asked == ["look_up", "look_up", "refund"]


class Away(Sandbox):
    """A provider that never answers."""

    def look_up(self, reference: str) -> None:
        raise Unavailable

    refund = look_up


def test_a_provider_that_does_not_answer_keeps_no_other_waiting(asked: list[str], settings: Any) -> None:
    """However many of its payments are due: each provider has questions of its own."""
    settings.PAYMENT_PROVIDERS = {"away": f"{__name__}.Away", **settings.PAYMENT_PROVIDERS}
    Payment.objects.filter(pk__in=recovery._silent(timedelta(0))[:1].values("pk")).update(provider="away")
    before = dict(RETRIES.counts)
    assert bring_on(max_at_once=1)["refund_due"] == 1
    assert asked == ["look_up", "refund"]
    assert RETRIES.counts == {**before, "lost_notice": before["lost_notice"] + 1}


def test_what_a_provider_says_of_one_keeps_no_other_waiting(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in its program, or an answer that makes no sense: the next one is asked about all the same."""
    look_up = Sandbox.look_up

    def fail_once(self: Sandbox, reference: str) -> Notice | None:
        if not asked:
            asked.append("failed")
            raise KeyError("status")
        return look_up(self, reference)

    monkeypatch.setattr(Sandbox, "look_up", fail_once)
    assert bring_on()["refund_due"] == 1
    assert asked == ["failed", "look_up", "refund"]


@pytest.mark.parametrize(("days", "state"), [(3, "declined"), (1, "pending")], ids=["over", "may still be paid"])
def test_what_was_never_collected_is_asked_about_no_more(days: int, state: str, card: SaleCard) -> None:
    """The buyer left the provider's page: once it cannot be paid any more, its provider's "nothing" is the answer."""
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    begun = Now() - timedelta(days=days)
    Payment.objects.filter(pk=payment.pk).update(created_at=begun, changed_at=begun)
    bring_on()
    assert payment_state(payment) == state
    # For ever: whatever day it is, the row is or is not among those that are asked about.
    assert Payment.objects.filter(STILL_ASKED_ABOUT, pk=payment.pk).exists() is (state == "pending")


def test_a_charge_is_paid_within_its_life_only(card: SaleCard) -> None:
    """Else a payment that nobody asks about any more could still be captured; the buyer begins another one."""
    (name,) = hold(card, buyers=1)
    old, fresh = begin(name), begin(name)
    assert fresh.pk == old.pk
    day_ago = Now() - timedelta(days=1)
    Charge.objects.filter(reference=old.reference).update(created_at=day_ago)
    Payment.objects.filter(pk=old.pk).update(created_at=day_ago)
    with pytest.raises(InvalidRequest, match="too late"):
        happen(old, "captured")
    assert begin(name).reference != old.reference


def test_a_payment_that_stays_open_is_an_alarm(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)

    def alarms(*, days: float, state: str) -> list[str]:
        begun = Now() - timedelta(days=days)
        Payment.objects.filter(pk=payment.pk).update(created_at=begun, changed_at=begun, state=state)
        return [each.done for each in left_open() if each.name == payment.reference]

    assert alarms(days=4.9, state="pending") == alarms(days=4.9, state="refund_due") == []
    assert alarms(days=5.1, state="pending") == alarms(days=5.1, state="refund_due") == ["alarm"]
    assert alarms(days=5.1, state="declined") == []
    Payment.objects.filter(pk=payment.pk).update(state="pending")
    assert [each["id"] for each in audit_sale(card.slug)["invariants"] if not each["ok"]] == ["I24"]


def test_the_worker_tells_what_stays_open_and_shows_how_many(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its first round, and again only when ALARM_SECONDS are over; what was answered is shown no more."""
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    begun = Now() - timedelta(days=6)
    Payment.objects.filter(pk=payment.pk).update(created_at=begun, changed_at=begun)
    monkeypatch.setattr(recovery, "bring_on", lambda **_: Counter())  # whose provider does not answer

    def told(worker: PaymentsWorker) -> list[str]:
        with capture_logs() as lines:
            worker.work_once()
        return [line["kind"] for line in lines if line.get("name") == payment.reference]

    def shown() -> float:
        (line,) = re.findall(rb"^fairdrop_payments_left_open (.+)$", render("payments", OWN_GAUGES["payments"]()), re.M)
        return float(line)

    worker = PaymentsWorker(stopping=lambda: False, report_alive=lambda: None)
    assert told(worker) == ["payment_left_open"]
    before = shown()
    assert before >= 1
    assert told(worker) == []
    Payment.objects.filter(pk=payment.pk).update(state="declined")
    monkeypatch.setattr(payments, "ALARM_SECONDS", 0.0)
    assert (told(worker), shown()) == ([], before - 1)


def test_a_round_says_that_it_lives_and_stops_between_two_questions(asked: list[str]) -> None:
    said: list[int] = []
    worker = PaymentsWorker(stopping=lambda: len(said) == 2, report_alive=lambda: said.append(len(asked)))
    with pytest.raises(Stopped):
        worker.work_once()
    assert (said, asked) == ([0, 1], ["look_up", "look_up"])


OLD_PAYMENTS = """
INSERT INTO shop_payment (order_id, provider, reference, amount, currency, state, reason, created_at, changed_at)
SELECT %s, 'sandbox', 'old-' || no, 9, 'EUR', CASE WHEN no %% 10 = 0 THEN 'pending' ELSE 'declined' END,
       'the hold is over',
       now() - interval '9 days', now() - CASE WHEN no %% 10 = 0 THEN interval '3 days' ELSE interval '6 days' END
FROM generate_series(1, 30000) AS no
"""


@pytest.mark.parametrize(
    ("look", "index"),
    [
        (lambda: recovery._silent(recovery.FIRST_QUESTION)[:100], "payment_asked_about"),
        (lambda: recovery._owed()[:100], "payment_refund_due"),
        (lambda: recovery._over()[:100], "payment_not_ended"),
    ],
    ids=["lost notices", "refunds", "holds that are over"],
)
def test_a_look_at_open_payments_reads_no_old_one(
    card: SaleCard, look: Callable[[], QuerySet[Payment]], index: str
) -> None:
    (name,) = hold(card, buyers=1)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(OLD_PAYMENTS, [Order.objects.get(request_id=name).pk])
        cursor.execute("ANALYZE shop_payment")
        pages_read(look())  # passes over rows that are gone, and marks their entries: no other look reads them
        by_index = pages_read(look())  # what other tests have left open
        # The control: the same look without its index.
        cursor.execute(f"DROP INDEX {index}")
        assert pages_read(look()) > 200 + by_index
        transaction.set_rollback(True)
