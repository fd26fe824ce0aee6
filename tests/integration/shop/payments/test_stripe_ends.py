"""Stripe and the end of a hold, late money, refunds, and what the payments worker asks.
Uses the real stores, the official library, and a stand-in of Stripe's API that is held to its published shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from structlog.testing import capture_logs

from inventory.exceptions import InvalidRequest, NotPayable, Unavailable
from inventory.states import Reason
from shop.models import Order, Payment
from shop.orders import holds
from shop.payments import recovery, refunds
from shop.payments.providers import Kind
from shop.payments.rows import NoticeResult
from shop.sales.catalogue import SaleCard
from shop.staff.lists.order_acts import do_act
from shop.staff.orders import timeline
from shop.stripe.provider import Stripe
from tests.support import road
from tests.support.paying import hold, payment_state, state_of
from tests.support.servers.stripe_server import Refused, StripeServer
from tests.support.shopkeeping import assert_books_balance, make_sale
from tests.support.stripe_shop import BUYER, begin, expire, hear, payment_of, selling_by_stripe
from workers.payments import left_open

pytestmark = pytest.mark.usefixtures("shop_database")
CREATE, FIND = "POST /v1/checkout/sessions", "GET /v1/checkout/sessions/*"
END, REFUND = "POST /v1/checkout/sessions/*/expire", "POST /v1/refunds"


@pytest.fixture
def stripe() -> Iterator[StripeServer]:
    """Let this process sell by Stripe."""
    with selling_by_stripe() as server:
        yield server


def ask_stripe() -> None:
    """Let the payments worker ask about everything that is due or could be."""
    recovery.bring_on(first_question=timedelta(0))


def due(name: str) -> None:
    """Let the last question about a payment be so long ago that the next one is due."""
    old = Now() - timedelta(minutes=10)
    Payment.objects.filter(pk=payment_of(name).pk).update(created_at=old, changed_at=old)


def cancel(name: str, *, sku: str) -> None:
    holds.cancel(name, buyer=BUYER)


@pytest.mark.parametrize("end", [expire, cancel])
def test_the_session_ends_with_the_hold(card: SaleCard, stripe: StripeServer, end: Callable[..., None]) -> None:
    (name,) = hold(card, buyers=1)
    begin(name)
    session = stripe.session_of(payment_of(name).reference)
    ask_stripe()
    assert (session["status"], stripe.called(END)) == ("open", 0)  # the control: it is held
    end(name, sku=card.sku)
    recovery.bring_on()
    assert (session["status"], stripe.called(END)) == ("expired", 1)
    recovery.bring_on(first_question=timedelta(hours=1))  # however slow the machine is, its time has not come
    assert stripe.called(END) == 1
    # Until nothing can come any more it is asked about now and then, like every payment that is open.
    assert payment_state(payment_of(name)) == "pending"
    due(name)
    recovery.bring_on()
    assert (stripe.called(END), payment_state(payment_of(name))) == (2, "pending")


def test_a_hold_that_ends_while_its_session_is_made_leads_nobody_there(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)

    def end_meanwhile(call: str) -> None:
        if call == CREATE:
            expire(name, sku=card.sku)
            recovery.bring_on()
            connection.close()

    stripe.before_answer = end_meanwhile
    with pytest.raises(NotPayable, match="time to pay is over") as refused:
        begin(name)
    assert refused.value.extra == {"state": "expired"}
    assert [session["status"] for session in stripe.sessions.values()] == ["expired"]
    ask_stripe()
    assert state_of(name) == "expired"


def test_money_after_the_holds_end_takes_the_unit_again(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)
    begin(name)
    event = stripe.pay(payment_of(name).reference)
    expire(name, sku=card.sku)
    assert state_of(name) == "expired"
    assert hear(event) == "paid"
    order = Order.objects.get(request_id=name)
    assert (order.state, order.reason, payment_state(payment_of(name))) == ("paid", Reason.PAID_LATE, "captured")
    assert stripe.refunds == {}
    assert_books_balance(card)


@pytest.mark.parametrize("told", [True, False], ids=["told", "asked"])
def test_money_for_a_unit_that_is_gone_goes_back(new_sku: Callable[[], str], stripe: StripeServer, told: bool) -> None:
    """told: by the event; else the payments worker hears of it when it ends the session."""
    card = make_sale(new_sku(), units=1)
    first, second = hold(card, buyers=2)
    begin(first)
    payment = payment_of(first)
    event = stripe.pay(payment.reference)
    expire(first, sku=card.sku)
    road.settle_line(card)
    assert (state_of(first), state_of(second)) == ("expired", "held")
    if told:
        assert hear(event) == "refund_due"
    else:
        recovery.bring_on()
    (refund,) = stripe.refunds.values()
    assert refund["amount"] == 1500
    assert (state_of(first), payment_state(payment)) == ("refunded", "refunded")
    assert hear(stripe.give_back(payment.reference)) == "nothing to change"
    assert stripe.called(REFUND) == 1
    assert_books_balance(card)


def paid(card: SaleCard, stripe: StripeServer) -> str:
    """Return a request that was paid."""
    (name,) = hold(card, buyers=1)
    begin(name)
    assert hear(stripe.pay(payment_of(name).reference)) == "paid"
    return name


def test_a_refund_by_staff_and_again(card: SaleCard, stripe: StripeServer) -> None:
    name = paid(card, stripe)
    refunds.refund_order(name, actor="anna", reason="damaged")
    assert (state_of(name), payment_state(payment_of(name))) == ("refunded", "refunded")
    with pytest.raises(NotPayable):
        refunds.refund_order(name, actor="anna", reason="damaged")
    reference = payment_of(name).reference
    Stripe().refund(reference)
    assert stripe.calls.count((REFUND, f"refund-{reference}-0")) == 2
    assert len(stripe.refunds) == 1
    stripe.forget_keys()
    Stripe().refund(reference)
    assert len(stripe.refunds) == 1
    assert_books_balance(card)


def test_money_that_a_bank_has_taken_is_owed_to_nobody(card: SaleCard, stripe: StripeServer) -> None:
    """Stripe refunds no disputed charge: asked for ever, it would keep the sale from being retired."""
    name = paid(card, stripe)
    reference = payment_of(name).reference
    (charge,) = stripe.charges.values()
    charge["disputed"] = True
    order = Order.objects.get(request_id=name)
    with capture_logs() as entries:
        told = do_act(order, "refund", actor="anna", reason="disputed; the goods came back")
    assert told == "its units are free; the money did not go back, because the buyer's bank took it in a dispute"
    assert f"{reference} {Reason.TAKEN_BY_BANK}" in [moment.detail for moment in timeline(order)]
    assert [each["reference"] for each in entries if each.get("action") == "refund_disputed"] == [reference]
    assert (state_of(name), payment_state(payment_of(name)), stripe.refunds) == ("refunded", "refunded", {})


def test_a_refund_that_stripe_failed_at_is_made_by_the_next_try(card: SaleCard, stripe: StripeServer) -> None:
    """Stripe repeats its failure to the same idempotency key for a day."""
    reference = payment_of(paid(card, stripe)).reference
    stripe.failures[f"refund-{reference}-0"] = Refused(500, "api_error", "An error")
    with pytest.raises(Unavailable):
        Stripe().refund(reference)
    Stripe().refund(reference)
    assert len(stripe.refunds) == 1


@pytest.mark.parametrize("is_told", [True, False])
def test_a_refund_whose_answers_were_lost_is_one_refund(card: SaleCard, stripe: StripeServer, is_told: bool) -> None:
    name = paid(card, stripe)

    def lose_refunds(call: str) -> None:
        stripe.lose = int(call == REFUND)

    stripe.before_answer = lose_refunds
    refunds.refund_order(name, actor="anna", reason="damaged")
    assert (state_of(name), payment_state(payment_of(name)), len(stripe.refunds)) == ("refunded", "refund_due", 1)
    stripe.before_answer = lambda _: None
    if is_told:  # before the worker asks
        assert hear(stripe.give_back(payment_of(name).reference)) == "refunded"
    recovery.bring_on()
    assert (payment_state(payment_of(name)), len(stripe.refunds)) == ("refunded", 1)
    assert payment_of(name).reason == "damaged"
    assert_books_balance(card)


def test_what_was_not_paid_is_not_given_back(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)
    with pytest.raises(InvalidRequest, match="no session"):
        Stripe().refund("0" * 32)
    begin(name)
    with pytest.raises(InvalidRequest, match="nothing was collected"):
        Stripe().refund(payment_of(name).reference)
    assert stripe.refunds == {}


def test_a_refund_that_stripe_cannot_make_stays_due(card: SaleCard, stripe: StripeServer) -> None:
    name = paid(card, stripe)
    stripe.refund_status = "failed"
    refunds.refund_order(name, actor="anna", reason="damaged")
    assert (state_of(name), payment_state(payment_of(name))) == ("refunded", "refund_due")


def alarms(payment: Payment) -> list[str]:
    return [each.detail for each in left_open() if each.name == payment.reference]


def test_a_refund_that_a_bank_did_not_take_is_owed_until_it_is_made_again(card: SaleCard, stripe: StripeServer) -> None:
    name = paid(card, stripe)
    payment, order = payment_of(name), Order.objects.get(request_id=name)
    refunds.refund_order(name, actor="anna", reason="damaged")
    assert (payment_state(payment), alarms(payment)) == ("refunded", [])  # the control
    failed = stripe.fail_refund(payment.reference)
    assert [hear(failed), hear(failed)] == ["refund_due"] * 2
    said = {moment.detail for moment in timeline(order)}
    assert {f"{payment.reference} {Reason.REFUND_FAILED}", "refund_due"} <= said
    assert alarms(payment) == [f"of request {name}: {Reason.REFUND_FAILED}"]
    recovery.bring_on()  # Stripe would fail at it once more
    assert not refunds.ask_refund(payment.reference)  # nor a worker that chose it before the news came
    assert (stripe.called(REFUND), payment_state(payment)) == (1, "refund_due")
    assert hear(stripe.give_back(payment.reference)) == "refunded"
    assert (payment_state(payment), alarms(payment)) == ("refunded", [])
    assert_books_balance(card)


def test_a_refund_that_was_cancelled_at_stripe_is_owed(card: SaleCard, stripe: StripeServer) -> None:
    name = paid(card, stripe)
    payment = payment_of(name)
    refunds.refund_order(name, actor="anna", reason="damaged")
    (refund,) = stripe.refunds.values()
    assert hear(stripe.event("refund.updated", refund)) == NoticeResult.NOTHING  # the control: it has succeeded
    assert (payment_state(payment), alarms(payment)) == ("refunded", [])
    assert hear(stripe.cancel_refund(payment.reference)) == NoticeResult.REFUND_DUE
    assert (payment_state(payment), len(alarms(payment))) == ("refund_due", 1)
    do_act(payment.order, "sent", actor="anna", reason="by transfer")
    later = stripe.event("refund.updated", refund, before={"metadata": {"note": ""}})
    assert hear(later) == NoticeResult.NOTHING  # what is written at a refund that was cancelled is no news of its money
    assert payment_state(payment) == "refunded"


def test_what_stripe_says_now_counts_and_not_the_last_event(card: SaleCard, stripe: StripeServer) -> None:
    """Its events come in any order: an old one must neither end what is owed nor let it be paid twice."""
    name = paid(card, stripe)
    payment = payment_of(name)
    refunds.refund_order(name, actor="anna", reason="damaged")
    old_refunded = stripe.give_back(payment.reference)  # of the refund that is made already
    hear(stripe.fail_refund(payment.reference))
    assert (hear(old_refunded), payment_state(payment)) == (NoticeResult.NOTHING, "refund_due")
    (refund,) = stripe.refunds.values()
    old_failed = stripe.event("refund.failed", refund)
    hear(stripe.give_back(payment.reference))
    assert (hear(old_failed), payment_state(payment)) == (NoticeResult.NOTHING, "refunded")
    assert_books_balance(card)


def test_staff_note_that_the_money_of_a_failed_refund_was_sent(card: SaleCard, stripe: StripeServer) -> None:
    name = paid(card, stripe)
    payment, order = payment_of(name), Order.objects.get(request_id=name)
    refunds.refund_order(name, actor="anna", reason="damaged")
    with pytest.raises(NotPayable, match="no refund of this request has failed"):
        do_act(order, "sent", actor="anna", reason="by bank transfer")
    hear(stripe.fail_refund(payment.reference))
    do_act(order, "sent", actor="anna", reason="by bank transfer")
    assert (payment_state(payment), payment_of(name).reason, alarms(payment)) == ("refunded", "by bank transfer", [])
    assert [act.act for act in order.sale.acts.all()] == ["sent_order"]


@pytest.mark.parametrize(
    ("units", "heard", "state"), [(None, "refunded", "refunded"), (500, "nothing to change", "paid")],
    ids=["all", "a part"],
)  # fmt: skip
def test_money_given_back_in_stripes_own_pages(
    card: SaleCard, stripe: StripeServer, units: int | None, heard: str, state: str
) -> None:
    name = paid(card, stripe)
    event = stripe.give_back(payment_of(name).reference, units=units)
    assert hear(event) == heard
    assert state_of(name) == state
    if units:
        assert hear(stripe.give_back(payment_of(name).reference, units=1000)) == "refunded"
    assert (state_of(name), payment_state(payment_of(name))) == ("refunded", "refunded")
    assert_books_balance(card)


def test_events_out_of_their_order_buy_nothing(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)
    begin(name)
    reference = payment_of(name).reference
    captured, refunded = stripe.pay(reference), stripe.give_back(reference)
    assert [hear(refunded), hear(captured)] == ["refunded", "nothing to change"]
    assert (state_of(name), payment_state(payment_of(name))) == ("held", "refunded")
    assert begin(name) == stripe.session_of(payment_of(name).reference)["url"]


@pytest.mark.parametrize(("kind", "state", "payment"), [
    ("captured", "paid", "captured"), ("refunded", "held", "refunded"),
])  # fmt: skip
def test_the_worker_asks_stripe_about_a_lost_event(
    card: SaleCard, stripe: StripeServer, kind: Kind, state: str, payment: str
) -> None:
    (name,) = hold(card, buyers=1)
    begin(name)
    due(name)
    recovery.bring_on()
    assert (state_of(name), payment_state(payment_of(name))) == ("held", "pending")  # the control: nothing happened
    stripe.pay(payment_of(name).reference)
    if kind == "refunded":
        stripe.give_back(payment_of(name).reference)
    due(name)
    recovery.bring_on()
    assert (state_of(name), payment_state(payment_of(name))) == (state, payment)
    assert_books_balance(card)


def test_a_payment_without_a_session_is_nothing(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)
    stripe.refuse = Refused(500, "api_error", "An error")
    with pytest.raises(Unavailable):
        begin(name)
    stripe.refuse = None
    assert Stripe().look_up(payment_of(name).reference) is None
