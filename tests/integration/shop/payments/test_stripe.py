"""A hold is paid by Stripe exactly once, whatever gets lost, comes twice, or comes too late.
Uses the real stores, the official library, and a stand-in of Stripe's API that is held to its published shapes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from secrets import token_hex

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.utils import translation

from inventory.exceptions import InvalidRequest, RequestNotFound, Unavailable
from shop.models import Order, Payment, PaymentNotice, Sale
from shop.payments import checkout
from shop.payments.providers import default_provider
from shop.sales.catalogue import SaleCard
from shop.staff.orders import timeline
from shop.stripe import calls
from shop.stripe.models import CheckoutSession
from shop.stripe.provider import Stripe
from tests.support.paying import hold, payment_state, state_of
from tests.support.servers.stripe_server import Refused, StripeServer
from tests.support.shopkeeping import assert_books_balance
from tests.support.stripe_shop import BUYER, ROOT, begin, hear, payment_of, selling_by_stripe
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
CREATE, FIND = "POST /v1/checkout/sessions", "GET /v1/checkout/sessions/*"


@pytest.fixture
def stripe() -> Iterator[StripeServer]:
    """Let this process sell by Stripe."""
    with selling_by_stripe() as server:
        yield server


def test_from_the_hold_to_stripes_page_to_paid(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)
    url = begin(name)
    payment = payment_of(name)
    session = stripe.session_of(payment.reference)
    assert url == session["url"]
    assert (session["amount_total"], session["currency"]) == (1500, "eur")
    ends = Order.objects.get(request_id=name).hold_expires_at
    assert ends is not None
    assert session["expires_at"] == int(ends.timestamp()) + 32 * 60
    assert {session["success_url"], session["cancel_url"]} == {f"{ROOT}/requests/{name}/"}
    assert (state_of(name), payment_state(payment)) == ("held", "pending")
    assert hear(stripe.pay(payment.reference)) == "paid"
    assert (state_of(name), payment_state(payment)) == ("paid", "captured")
    assert begin(name) == ""
    assert_books_balance(card)


def test_beginning_again_leads_to_the_same_page(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)
    assert begin(name) == begin(name)
    assert (stripe.called(CREATE), stripe.called(FIND)) == (1, 1)
    # Paid there, and the event has not come: there is nothing more to be paid on that page.
    stripe.pay(payment_of(name).reference)
    assert begin(name) == f"/requests/{name}/"


def test_an_answer_that_was_lost_is_asked_for_again_with_the_same_key(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)
    stripe.lose = 1
    assert begin(name)
    (first, again) = stripe.calls
    assert first == again
    assert (first[0], first[1].rpartition("-")[0]) == (CREATE, f"{payment_of(name).reference}-0")
    assert len(stripe.sessions) == 1


def test_the_title_is_in_the_language_of_the_first_page_that_is_handed_out(
    card: SaleCard, stripe: StripeServer
) -> None:
    """Also when a press in another language got no answer: of its session nobody has the address."""
    Sale.objects.filter(pk=card.sale_id).update(title_zh="纸风筝")
    (name,) = hold(card, buyers=1)
    stripe.lose = 2
    with pytest.raises(Unavailable):
        begin(name)
    wait_until(lambda: len(stripe.sessions) == 1, what="the stand-in makes what was asked")
    with translation.override("zh-hans"):
        page = begin(name)
    assert begin(name) == page
    assert stripe.titles == ["1 × Paper kite", "1 × 纸风筝"]
    assert page == stripe.sessions[CheckoutSession.objects.get(reference=payment_of(name).reference).session_id]["url"]


def test_a_press_after_lost_answers_is_the_same_session(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)
    stripe.lose = 2
    with pytest.raises(Unavailable):
        begin(name)
    wait_until(lambda: len(stripe.sessions) == 1, what="the stand-in makes what was asked")
    assert state_of(name) == "held"
    assert begin(name) == stripe.session_of(payment_of(name).reference)["url"]
    assert Payment.objects.filter(order__request_id=name).count() == 1


def test_without_keys_a_lost_answer_would_be_a_second_session(card: SaleCard, stripe: StripeServer) -> None:
    """The control of the two tests above."""
    (name,) = hold(card, buyers=1)
    stripe.before_answer = lambda _: stripe.forget_keys()
    stripe.lose = 1
    begin(name)
    assert len(stripe.sessions) == 2


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (Refused(500, "api_error", "An error"), Unavailable),
        (Refused(429, "invalid_request_error", "Too many"), Unavailable),
        (Refused(401, "invalid_request_error", "Invalid key"), Unavailable),
        (Refused(409, "idempotency_error", "In use"), Unavailable),
        (Refused(400, "invalid_request_error", "Too small"), InvalidRequest),
    ],
    ids=["broken", "too fast", "key revoked", "in use", "refused"],
)
def test_what_stripe_does_not_do_charges_nothing(
    card: SaleCard, stripe: StripeServer, refused: Refused, error: type[Exception]
) -> None:
    (name,) = hold(card, buyers=1)
    stripe.refuse = refused
    with pytest.raises(error, match="nothing was charged"):
        begin(name)
    assert (state_of(name), payment_state(payment_of(name)), stripe.sessions) == ("held", "pending", {})
    stripe.refuse = None
    assert begin(name)


def test_a_session_is_never_handed_out_alongside_another(card: SaleCard, stripe: StripeServer) -> None:
    """A press whose key another press had to change: its session ends, and it leads to the one that is kept."""
    (name,) = hold(card, buyers=1)
    first = begin(name)
    row = CheckoutSession.objects.get(reference=payment_of(name).reference)
    CheckoutSession.objects.filter(pk=row.pk).update(session_id="", tries=1)

    def keep_the_first(call: str) -> None:
        if call == CREATE:
            CheckoutSession.objects.filter(pk=row.pk).update(session_id=row.session_id)
            connections.close_all()  # those of the stand-in's thread

    stripe.before_answer = keep_the_first
    assert begin(name) == first
    assert sorted(each["status"] for each in stripe.sessions.values()) == ["expired", "open"]


def test_a_session_of_another_key_is_unknown_and_its_payment_ends_without_it(
    card: SaleCard, stripe: StripeServer
) -> None:
    (name,) = hold(card, buyers=1)
    begin(name)
    stripe.sessions.clear()
    assert Stripe().look_up(payment_of(name).reference) is None
    assert Stripe().end(payment_of(name).reference) is None


def test_a_stripe_that_is_silent_is_not_waited_for(
    card: SaleCard, stripe: StripeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = hold(card, buyers=1)
    go_on = threading.Event()
    stripe.before_answer = lambda _: go_on.wait(PATIENCE_SECONDS)
    monkeypatch.setattr(calls, "ANSWER_SECONDS", 0.2)
    try:
        with pytest.raises(Unavailable, match="nothing was charged"):
            begin(name)
    finally:
        go_on.set()
    wait_until(lambda: len(stripe.sessions) == 1, what="the stand-in makes what was asked")
    assert state_of(name) == "held"


def test_an_event_twice_sells_once(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)
    begin(name)
    payment = payment_of(name)
    event = stripe.pay(payment.reference)
    other = stripe.event(event["type"], event["data"]["object"])
    assert [hear(event), hear(event), hear(other)] == ["paid", "paid", "nothing to change"]
    assert PaymentNotice.objects.filter(reference=payment.reference).count() == 2
    assert_books_balance(card)


def pay_and_hear(stripe: StripeServer, heard: list[object]) -> Callable[[str], None]:
    """Return what lets the buyer pay, and the event come, before Stripe's answer to the call that made the session."""

    def act(name: str) -> None:
        if name == CREATE:
            (session,) = stripe.sessions.values()
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SET lock_timeout = '1s'")
                heard.append(hear(stripe.pay(session["client_reference_id"])))
            except OperationalError as error:
                heard.append(error)
            finally:
                connection.close()

    return act


def test_a_declined_card_is_kept_with_its_risk_and_ends_nothing(card: SaleCard, stripe: StripeServer) -> None:
    buyer = f"risky-{token_hex(4)}-0000000"  # others' declined cards are not this buyer's
    (name,) = hold(card, buyers=1, named=buyer.removesuffix("-0000000"))
    page, payment = begin(name, buyer=buyer), payment_of(name)
    usual = stripe.decline(payment.reference)
    assert [hear(usual), hear(usual)] == ["card declined"] * 2
    for risk_level in ("elevated", "highest"):
        assert hear(stripe.decline(payment.reference, risk_level=risk_level)) == "card declined, at high risk"
    blocked = stripe.decline(payment.reference)
    blocked["data"]["object"]["outcome"]["type"] = "blocked"
    assert hear(blocked) == "card declined, at high risk"
    # Staff see each of them once with the order, which is held as before; the same page takes another card.
    order = Order.objects.get(request_id=name)
    seen = [moment.detail for moment in timeline(order) if moment.what == "notice: card_declined"]
    assert seen == ["card declined", *["card declined, at high risk"] * 3]
    assert (state_of(name), payment_state(payment), begin(name, buyer=buyer)) == ("held", "pending", page)
    assert hear(stripe.pay(payment.reference)) == "paid"
    # The control: what another shop declined is nothing to this one.
    assert hear(stripe.event("charge.failed", usual["data"]["object"] | {"metadata": {}})) == "nothing to change"


def test_an_event_before_the_answer_is_taken(card: SaleCard, stripe: StripeServer) -> None:
    """It also shows that nothing of the order is locked while Stripe is asked."""
    (name,) = hold(card, buyers=1)
    heard: list[object] = []
    stripe.before_answer = pay_and_hear(stripe, heard)
    begin(name)
    assert heard == ["paid"]
    assert (state_of(name), payment_state(payment_of(name))) == ("paid", "captured")
    assert CheckoutSession.objects.get(reference=payment_of(name).reference).session_id
    assert_books_balance(card)


def test_a_call_inside_a_transaction_would_be_seen(card: SaleCard, stripe: StripeServer) -> None:
    """The control of the test above: with the order locked meanwhile, the event waits, and fails."""
    (name,) = hold(card, buyers=1)
    begin(name)
    heard: list[object] = []
    act = pay_and_hear(stripe, heard)
    stripe.before_answer = lambda _: act(CREATE)
    with transaction.atomic():
        Order.objects.select_for_update().get(request_id=name)
        begin(name)
    assert [type(each) for each in heard] == [OperationalError]


def test_what_is_none_of_this_shops_changes_nothing(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)
    begin(name)
    event = stripe.pay(payment_of(name).reference)
    what = event["data"]["object"]
    unpaid = {**what, "payment_status": "unpaid"}
    assert hear(stripe.event("checkout.session.completed", {**what, "metadata": {}})) == "nothing to change"
    assert hear(stripe.event("checkout.session.completed", unpaid)) == "nothing to change"
    assert hear(stripe.event("payment_intent.created", what)) == "nothing to change"
    with pytest.raises(RequestNotFound):
        hear(stripe.event("checkout.session.completed", {**what, "metadata": {"fairdrop_payment": "0" * 32}}))
    assert (state_of(name), PaymentNotice.objects.filter(reference=payment_of(name).reference).exists()) == (
        "held",
        False,
    )
    assert hear(event) == "paid"


def test_stripe_collects_on_its_page_only(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)
    with pytest.raises(InvalidRequest, match="on its page only"):
        checkout.pay_at_once(name, buyer=BUYER, provider_name=default_provider(), root=ROOT)
    assert not Payment.objects.filter(order__request_id=name).exists()
    assert stripe.calls == []


def test_an_amount_that_stripe_cannot_collect_is_refused(card: SaleCard, stripe: StripeServer) -> None:
    (name,) = hold(card, buyers=1)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shop_order DISABLE TRIGGER USER")
        Order.objects.filter(request_id=name).update(currency="JPY", unit_price="15.50")
        cursor.execute("ALTER TABLE shop_order ENABLE TRIGGER USER")
    with pytest.raises(InvalidRequest, match="not an amount"):
        begin(name)
    assert stripe.calls == []


@pytest.mark.parametrize("missing", ["STRIPE_KEY", "STRIPE_WEBHOOK_SECRET"])
def test_without_its_keys_stripe_is_off_and_says_so(
    card: SaleCard, stripe: StripeServer, settings: object, missing: str
) -> None:
    (name,) = hold(card, buyers=1)
    begin(name)
    event = stripe.pay(payment_of(name).reference)
    calls = list(stripe.calls)
    setattr(settings, missing, "")
    with pytest.raises(Unavailable, match=f"Stripe is off: FAIRDROP_{missing} is not set"):
        begin(name) if missing == "STRIPE_KEY" else hear(event)
    assert (stripe.calls, state_of(name)) == (calls, "held")
