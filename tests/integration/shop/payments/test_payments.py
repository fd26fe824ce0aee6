"""Money and goods meet exactly once, whatever a provider says, in which order, and how often.
Uses the real stores and the real sandbox; only its notices are carried by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test.utils import override_settings

from inventory import ledger, redis
from inventory.exceptions import InvalidRequest, NotPayable, PaymentsLimited, RequestNotFound, Unavailable
from inventory.line import reading
from inventory.line.admission import Code
from inventory.line.writing import live_field
from inventory.redis import keys
from inventory.states import Reason, State
from shop.models import Order, OrderEvent, Payment, PaymentNotice, Sale
from shop.orders import holds
from shop.payments import checkout, notices, refunds, tries
from shop.payments.providers import provider
from shop.payments.rows import NoticeResult
from shop.sales import priming
from shop.sales.catalogue import SaleCard
from shop.sandbox.models import Charge, Event
from shop.sandbox.provider import Sandbox
from tests.support import road
from tests.support.paying import again, begin, charge_of, charge_state, happen, hear, hold, payment_state, state_of
from tests.support.shopkeeping import assert_books_balance, let_holds_end, make_sale

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
BUYER = "buyer-0000000"


def told(card: SaleCard, name: str) -> State | None:
    (place,) = reading.places(redis.connect(), card.sku, [name])
    return place.record.state if place else None


def expire(card: SaleCard, name: str) -> None:
    let_holds_end(name)
    with transaction.atomic(), connection.cursor() as cursor:
        changes = holds.expire_due(cursor, sku=card.sku, request_ids=[name])
    assert [each.request_id for each in changes.changed] == [name]
    holds.publish(changes)


def test_a_captured_payment_sells_the_hold_once(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    notice = happen(payment, "captured")
    assert [hear(notice), hear(notice), hear(again(notice))] == ["paid", "paid", "nothing to change"]
    assert (state_of(name), told(card, name), payment_state(payment)) == ("paid", State.PAID, "captured")
    assert PaymentNotice.objects.filter(reference=payment.reference).count() == 2
    assert list(OrderEvent.objects.filter(order__request_id=name).values_list("to_state", flat=True)) == [
        "held",
        "paid",
    ]
    assert_books_balance(card)


def test_beginning_twice_is_one_payment_and_one_charge(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    first, second = begin(name), begin(name)
    assert first.pk == second.pk
    assert Charge.objects.filter(reference=first.reference).count() == 1


def test_declined_after_captured_changes_nothing(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    notice = happen(payment, "captured")
    assert hear(notice) == "paid"
    assert hear(again(notice, kind="declined")) == "nothing to change"
    assert (state_of(name), payment_state(payment)) == ("paid", "captured")


def test_captured_after_declined_sells(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    declined = happen(payment, "declined")
    captured = happen(payment, "captured")
    assert [hear(declined), state_of(name), payment_state(payment)] == ["declined", "held", "declined"]
    assert hear(captured) == "paid"
    assert_books_balance(card)


def test_a_refund_heard_of_before_its_capture_leaves_nothing_to_buy_with(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    captured = happen(payment, "captured")
    assert hear(happen(payment, "refunded")) == "refunded"
    assert hear(captured) == "nothing to change"
    assert (state_of(name), payment_state(payment)) == ("held", "refunded")
    second = begin(name)
    assert second.pk != payment.pk
    assert hear(happen(second, "captured")) == "paid"
    assert_books_balance(card)


def test_money_that_the_provider_took_back_by_itself_frees_the_unit(card: SaleCard) -> None:
    names = hold(card, buyers=3)
    payment = begin(names[0])
    hear(happen(payment, "captured"))
    assert hear(happen(payment, "refunded")) == "refunded"
    assert (state_of(names[0]), told(card, names[0]), payment_state(payment)) == (
        "refunded",
        State.REFUNDED,
        "refunded",
    )
    road.settle_line(card)
    assert told(card, names[2]) is State.HELD
    assert_books_balance(card)


def test_a_part_that_went_back_takes_no_goods(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    notice = happen(payment, "captured")
    hear(notice)
    assert hear(again(notice, kind="refunded", amount=Decimal("1.00"))) == "nothing to change"
    assert (state_of(name), payment_state(payment)) == ("paid", "captured")


@pytest.mark.parametrize("amount", [Decimal("0.01"), Decimal("14.99"), Decimal("1500.00")])
def test_a_wrong_amount_buys_nothing_and_goes_back(card: SaleCard, amount: Decimal) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    notice = happen(payment, "captured")
    assert hear(again(notice, amount=amount)) == "refund_due"
    assert (state_of(name), payment_state(payment), charge_state(payment)) == ("held", "refunded", "refunded")
    assert_books_balance(card)


def test_the_amount_is_the_orders_own_after_the_price_changed(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    Sale.objects.filter(pk=card.sale_id).update(price=Decimal("99.00"))
    payment = begin(name)
    assert (payment.amount, payment.currency) == (Decimal("15.00"), "EUR")
    assert hear(happen(payment, "captured")) == "paid"


def test_of_two_payments_of_one_order_the_second_goes_back(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    first = begin(name)
    hear(happen(first, "declined"))
    second = begin(name)
    late = happen(first, "captured")
    assert hear(happen(second, "captured")) == "paid"
    assert hear(late) == "refund_due"
    assert (payment_state(first), charge_state(first)) == ("refunded", "refunded")
    assert (payment_state(second), charge_state(second), state_of(name)) == ("captured", "captured", "paid")
    assert_books_balance(card)


def test_a_late_payment_takes_the_unit_again_when_it_is_free(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    expire(card, name)
    assert hear(happen(payment, "captured")) == "paid"
    assert (state_of(name), told(card, name)) == ("paid", State.PAID)
    assert_books_balance(card)


def test_what_is_paid_late_counts_as_ended_no_more(new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Refunded after that it counts once; each time Redis has counted what it is primed with after a loss."""
    monkeypatch.setattr("inventory.line.admission.MAX_ENDED_REQUESTS", 1)
    card = make_sale(new_sku(), units=5, limit=2)
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    expire(card, name)
    assert road.admit(card, road.ask(card, BUYER, key="too early"))[0].code == Code.TOO_MANY_ENDED
    assert hear(happen(payment, "captured")) == "paid"
    assert road.admit(card, road.ask(card, BUYER, key="another wish"))[0].code == Code.ADMITTED
    road.settle_line(card)
    assert counted_and_primed(card) == ({}, {})
    refunds.refund_order(name, actor="anna", reason="scratched")
    once = {live_field(sale_id=card.sale_id, buyer=BUYER): "1"}
    assert counted_and_primed(card) == (once, once)


def counted_and_primed(card: SaleCard) -> tuple[dict[str, str], dict[str, str]]:
    """Return the ended requests that Redis has counted, and those it is primed with after a loss."""
    counted = redis.connect().hgetall(keys.ended_requests(card.sku))
    road.forget(card)
    priming.prime_sale(card.slug)
    return counted, redis.connect().hgetall(keys.ended_requests(card.sku))


def test_a_late_payment_goes_back_when_the_unit_is_gone(card: SaleCard) -> None:
    names = hold(card, buyers=3)
    payment = begin(names[0])
    expire(card, names[0])
    road.settle_line(card)
    assert told(card, names[2]) is State.HELD
    assert hear(happen(payment, "captured")) == "refund_due"
    assert (state_of(names[0]), told(card, names[0])) == ("refunded", State.REFUNDED)
    assert (payment_state(payment), charge_state(payment)) == ("refunded", "refunded")
    assert_books_balance(card)


def test_a_late_payment_goes_back_when_the_buyer_has_the_limit_by_another_order(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=3, limit=1)
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    expire(card, name)
    wish = road.ask(card, BUYER, key="another wish")
    road.admit(card, wish)
    road.settle_line(card)
    assert told(card, wish.request_id) is State.HELD
    assert hear(happen(payment, "captured")) == "refund_due"
    assert (state_of(name), state_of(wish.request_id)) == ("refunded", "held")
    assert Order.objects.get(request_id=name).reason == "paid too late: the buyer has other units, up to the limit"
    assert_books_balance(card)


def test_what_was_cancelled_and_then_paid_goes_back(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    holds.cancel(name, buyer=BUYER)
    assert hear(happen(payment, "captured")) == "refund_due"
    assert (state_of(name), charge_state(payment)) == ("refunded", "refunded")
    assert_books_balance(card)


def test_a_second_late_payment_goes_back_too(card: SaleCard) -> None:
    """The order is refunded already and stays so; the money of the second payment is owed all the same."""
    names = hold(card, buyers=2)
    first = begin(names[0])
    hear(happen(first, "declined"))
    second = begin(names[0])
    expire(card, names[0])
    with transaction.atomic(), connection.cursor() as cursor:
        ledger.adjust_stock(cursor, sku=card.sku, units=-1, actor="test", reason="broken in the box")
    assert [hear(happen(second, "captured")), hear(happen(first, "captured"))] == ["refund_due", "refund_due"]
    assert (state_of(names[0]), charge_state(first), charge_state(second)) == ("refunded", "refunded", "refunded")
    assert_books_balance(card)


def test_staff_give_a_paid_order_back_and_its_unit_goes_to_the_next(card: SaleCard) -> None:
    names = hold(card, buyers=3)
    payment = begin(names[0])
    hear(happen(payment, "captured"))
    refunds.refund_order(names[0], actor="anna", reason="scratched")
    with pytest.raises(NotPayable):
        refunds.refund_order(names[0], actor="anna", reason="scratched")
    road.settle_line(card)
    assert (told(card, names[0]), told(card, names[2])) == (State.REFUNDED, State.HELD)
    assert (payment_state(payment), charge_state(payment)) == ("refunded", "refunded")
    assert_books_balance(card)


@pytest.mark.parametrize("result", ["paid", "declined", "refund_due", "refunded", "nothing to change"])
def test_a_notice_that_was_kept_is_answered_as_it_is_stored(card: SaleCard, result: str) -> None:
    """Every text that a database may hold is understood, and told again as it was."""
    (name,) = hold(card, buyers=1)
    notice = happen(begin(name), "captured")
    kept = {"event_id": notice.event_id, "kind": notice.kind, "reference": notice.reference, "result": result}
    PaymentNotice.objects.create(provider="sandbox", **kept)
    found = hear(notice)
    assert (found, type(found)) == (result, NoticeResult)
    assert state_of(name) == "held"


def test_every_reason_is_stored_as_it_is_written(card: SaleCard) -> None:
    """The control: what PostgreSQL is given of an enumeration is the value, not the member's name."""
    (name,) = hold(card, buyers=1)
    order = Order.objects.filter(request_id=name)
    for reason in Reason:
        order.update(reason=reason)
        assert order.values_list("reason", flat=True).get() == reason.value


def test_a_notice_about_no_payment_of_ours_is_refused(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    notice = happen(begin(name), "captured")
    with pytest.raises(RequestNotFound):
        hear(replace(notice, reference="0" * 32, event_id="evt_elsewhere"))
    with pytest.raises(RequestNotFound):
        notices.take_notice(notice, provider_name="another")
    assert state_of(name) == "held"


def test_a_payment_whose_answer_was_lost_is_made_once(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    Sandbox().pay_at_once(charge_of(payment))  # and its answer never came
    checkout.pay_at_once(name, buyer=BUYER, provider_name="sandbox", root="http://127.0.0.1:9")
    checkout.pay_at_once(name, buyer=BUYER, provider_name="sandbox", root="http://127.0.0.1:9")
    assert state_of(name) == "paid"
    assert Event.objects.filter(charge__reference=payment.reference).count() == 1
    assert Payment.objects.filter(order__request_id=name).count() == 1


def decline(name: str, *, times: int) -> None:
    for _ in range(times):
        assert hear(happen(begin(name), "declined")) == "declined"


def test_declined_payments_of_one_hold_are_limited(card: SaleCard) -> None:
    """The controls: another buyer's hold is paid meanwhile, with a higher limit there is one more try, and money that
    was captured after all buys the unit.
    """
    name, other = hold(card, buyers=2, named="many-cards")
    decline(name, times=settings.MAX_DECLINED_PER_HOLD - 1)
    last = begin(name)
    assert begin(name) == last  # what is open is not one more try
    notice = happen(last, "declined")
    assert [hear(notice), hear(notice)] == ["declined"] * 2
    with pytest.raises(PaymentsLimited) as refused:
        begin(name)
    ends = Order.objects.get(request_id=name).hold_expires_at
    assert ends is not None
    assert refused.value.extra == {"hold_expires_at": ends.isoformat()}
    assert (state_of(name), Payment.objects.filter(order__request_id=name).count()) == ("held", 5)
    assert hear(happen(begin(other), "captured")) == "paid"
    with override_settings(MAX_DECLINED_PER_HOLD=6):
        assert begin(name).state == "pending"
    assert hear(again(happen(last, "captured"))) == "paid"


def test_declined_payments_of_one_buyer_are_limited_for_a_day(new_sku: Callable[[], str]) -> None:
    orders = [hold(make_sale(new_sku(), units=1), buyers=1, named="many-holds")[0] for _ in range(4)]
    for name in orders[:3]:
        decline(name, times=settings.MAX_DECLINED_PER_HOLD)
    with pytest.raises(PaymentsLimited):
        begin(orders[3])
    payments = Payment.objects.filter(order__buyer="many-holds-0000000").values("reference")
    declined = PaymentNotice.objects.filter(reference__in=payments)
    assert declined.update(received_at=Now() - tries.DECLINES_COUNT_FOR) == 15
    assert begin(orders[3]).state == "pending"


def test_a_declined_payment_leaves_the_hold(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    with override_settings(SANDBOX_MISCHIEF=["mute", "declines"]), pytest.raises(NotPayable, match="declined"):
        checkout.pay_at_once(name, buyer=BUYER, provider_name="sandbox", root="http://127.0.0.1:9")
    assert state_of(name) == "held"
    checkout.pay_at_once(name, buyer=BUYER, provider_name="sandbox", root="http://127.0.0.1:9")
    assert state_of(name) == "paid"


def test_who_was_charged_for_nothing_is_told_that_it_comes_back(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the provider cannot give it back yet."""
    (name,) = hold(card, buyers=1)
    pay, notice = Sandbox.pay_at_once, list[object]()

    def give_up_and_pay(self: Sandbox, charge: Charge) -> object:
        holds.cancel(name, buyer=BUYER)
        notice.append(pay(self, charge))
        return notice[0]

    monkeypatch.setattr(Sandbox, "pay_at_once", give_up_and_pay)
    monkeypatch.setattr("shop.payments.notices.refund_now", lambda _reference: False)
    with pytest.raises(NotPayable, match="what was taken from you is given back"):
        checkout.pay_at_once(name, buyer=BUYER, provider_name="sandbox", root="http://127.0.0.1:9")
    assert len(notice) == 1


def test_a_provider_that_is_away_charges_nothing(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    with override_settings(SANDBOX_MISCHIEF=["mute", "away"]), pytest.raises(Unavailable):
        checkout.pay_at_once(name, buyer=BUYER, provider_name="sandbox", root="http://127.0.0.1:9")
    assert state_of(name) == "held"


def test_the_sandbox_refuses_what_makes_no_sense(card: SaleCard) -> None:
    (name,) = hold(card, buyers=1)
    payment = begin(name)
    sandbox = Sandbox()
    with pytest.raises(InvalidRequest):
        sandbox.refund(payment.reference)
    with pytest.raises(InvalidRequest):
        sandbox.refund("0" * 32)
    payment.amount += 1
    with pytest.raises(InvalidRequest):
        sandbox.begin(charge_of(payment))
    assert sandbox.look_up(payment.reference) is None
    with pytest.raises(InvalidRequest):
        provider("nobody")
