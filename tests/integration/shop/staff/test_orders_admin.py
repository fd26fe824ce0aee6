"""Staff find an order, read everything that happened to it, and cancel or refund it with a reason. Real servers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.urls import reverse
from django.utils import timezone
from post_office.models import Email

from inventory.exceptions import NotPayable
from inventory.models import Stock, StockMovement
from inventory.states import Reason
from shop.models import Order, OrderEvent, Payment, PaymentNotice, Sale, StaffAct
from shop.orders import deliveries, holds, mails
from shop.orders.email_codes import send_code
from shop.orders.numbers import order_number, read_order_number
from shop.payments import recovery, refunds
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from shop.staff.lists.order_acts import do_act, refund_order
from shop.staff.orders import timeline
from tests.support import paying, road
from tests.support.query_plans import rows_read
from tests.support.shopkeeping import assert_books_balance, make_sale, pay
from tests.support.staff import browser_of, count_queries

pytestmark = pytest.mark.usefixtures("shop_database")

ORDERS = "/admin/shop/order/"
LEDGER = "/admin/inventory/stockmovement/"


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=3)


def held(card: SaleCard, *buyers: str) -> list[Order]:
    names = road.queue(card, *buyers)
    road.settle_line(card)
    return [Order.objects.get(request_id=name) for name in names]


def page_of(order: Order) -> str:
    return reverse("admin:shop_order_change", args=[order.pk])


def act_of(order: Order, name: str) -> str:
    return reverse("admin:shop_order_act", args=[order.pk, name])


def test_an_order_number_is_read_back_and_a_wrong_digit_is_seen() -> None:
    for order_id in (1, 9, 10, 1042, 987_654_321, 2**53):
        assert read_order_number(order_number(order_id)) == order_id
    number = order_number(1042)
    assert read_order_number(f" {number.lower().replace('-', ' ')} ") == 1042
    digits = number[2:].replace("-", "")
    for at in range(len(digits)):
        for other in set("0123456789") - {digits[at]}:
            assert read_order_number(f"FD{digits[:at]}{other}{digits[at + 1 :]}") is None
    swapped = [digits[:at] + digits[at + 1] + digits[at] + digits[at + 2 :] for at in range(len(digits) - 1)]
    assert [each for each in swapped if each != digits and read_order_number(f"FD{each}")] == []
    for text in ("", "FD", "FD-7", "1042", "FD-01042-1", "FD-1042-x", "FD-١٢-٣"):
        assert read_order_number(text) is None


def test_an_order_is_found_by_number_request_and_buyer(card: SaleCard) -> None:
    (order, _) = held(card, f"ann-{card.sku}", f"bob-{card.sku}")
    browser = browser_of("viewer")
    for wanted in (order_number(order.pk), order_number(order.pk).lower(), order.request_id, order.buyer):
        found = browser.get(ORDERS, {"q": wanted}).context["cl"].result_list
        assert [each.pk for each in found] == [order.pk], wanted
    assert browser.get(ORDERS, {"q": order_number(order.pk + 10**9)}).context["cl"].result_count == 0


def test_a_request_that_still_waits_is_found_in_the_line(card: SaleCard) -> None:
    _, second = road.queue(card, "ann", "bob")
    browser = browser_of("viewer")
    assert f"at place 2 in the line of {card.slug}" in browser.get(ORDERS, {"q": second}).content.decode()
    road.settle_line(card)
    answer = browser.get(ORDERS, {"q": second})
    assert "is not decided yet" not in answer.content.decode()
    assert answer.context["cl"].result_count == 1
    assert browser.get(ORDERS, {"q": "999999999-nothing"}).status_code == 200


def test_its_page_tells_its_whole_life_in_order(card: SaleCard) -> None:
    (order,) = held(card, "ann")
    browser = browser_of("manager")
    with paying.quiet_sandbox():
        payment = paying.begin(order.request_id)
        assert paying.hear(paying.happen(payment, "captured")) == "paid"
        answer = browser.post(act_of(order, "refund"), {"reason": "broken on arrival"}, follow=True)
    shown = answer.content.decode()
    assert "its units are free and the money went back" in shown
    story = ["queued → held", "payment begun", "held → paid", "notice: captured", "paid → refunded"]
    places = [shown.index(part) for part in story]
    assert places == sorted(places)
    for part in (order_number(order.pk), "units: hold -1", "units: return +1", "payment refunded", "broken on arrival"):
        assert part in shown
    assert OrderEvent.objects.filter(order=order).last().reason == "broken on arrival"
    assert StaffAct.objects.get(sale_id=card.sale_id, act="refund_order").detail == order_number(order.pk)
    assert_books_balance(card)


def test_a_decline_is_dated_when_it_was_told_and_not_when_its_provider_was_asked_last(card: SaleCard) -> None:
    """The control: what was never collected was found out by asking, whatever became of a card before."""
    (order,) = held(card, "ann")
    long_ago = timezone.now() - timedelta(minutes=10)
    with paying.quiet_sandbox():
        payment = paying.begin(order.request_id)
        assert paying.hear(paying.happen(payment, "declined")) == "declined"
        Payment.objects.filter(pk=payment.pk).update(created_at=long_ago, changed_at=long_ago)
        PaymentNotice.objects.filter(reference=payment.reference).update(received_at=long_ago)
        recovery.bring_on()
    payment.refresh_from_db()
    assert payment.changed_at > long_ago
    for reason, moment in (("", long_ago), (Reason.NEVER_COLLECTED, payment.changed_at)):
        Payment.objects.filter(pk=payment.pk).update(reason=reason)
        assert [each.at for each in timeline(order) if each.what == "payment declined"] == [moment]


def test_money_that_is_still_under_way_is_told(card: SaleCard) -> None:
    (order,) = held(card, "ann")
    pay(order.request_id)  # of this payment the provider knows nothing, so it cannot give the money back
    answer = browser_of("manager").post(act_of(order, "refund"), {"reason": "a test"}, follow=True)
    assert "is asked for the money again and again" in answer.content.decode()


WORDS_OF_THE_SHOP = [Reason.REFUND_FAILED, Reason.TAKEN_BY_BANK]


@pytest.mark.parametrize("word", WORDS_OF_THE_SHOP)
def test_a_word_of_the_shop_is_no_reason_of_staff(card: SaleCard, word: Reason) -> None:
    (order,) = held(card, "ann")
    pay(order.request_id)
    answer = browser_of("manager").post(act_of(order, "refund"), {"reason": str(word)})
    assert (answer.status_code, answer.context["error"]) == (
        409,
        "say it in your own words: the shop itself writes this",
    )
    order.refresh_from_db()
    assert (order.state, StaffAct.objects.filter(sale_id=card.sale_id).count()) == ("paid", 0)


@pytest.mark.parametrize("word", [*WORDS_OF_THE_SHOP, "broken on arrival"])
def test_the_control_of_a_word_of_the_shop_decides_about_money(card: SaleCard, word: str) -> None:
    """The first one says that a refund failed, so nobody asks for the money; the second that a bank has it."""
    (order,) = held(card, "ann")
    with paying.quiet_sandbox():
        payment = paying.begin(order.request_id)
        assert paying.hear(paying.happen(payment, "captured")) == "paid"
        told = refund_order(Order.objects.get(pk=order.pk), actor="anna", reason=word, note=lambda: None)
        recovery.bring_on()
    went_back = word != Reason.REFUND_FAILED
    assert paying.charge_state(payment) == ("refunded" if went_back else "captured")
    assert paying.payment_state(payment) == ("refunded" if went_back else "refund_due")
    assert ("the money did not go back" in told) is (word == Reason.TAKEN_BY_BANK)
    if not went_back:
        refunds.note_sent(order.request_id, reason="by bank transfer", note=lambda: None)


def test_a_cancelled_hold_is_free_for_the_next(card: SaleCard) -> None:
    (order,) = held(card, "ann")
    browser = browser_of("operator")
    assert browser.post(act_of(order, "cancel"), {"reason": ""}).status_code == 200
    assert browser.post(act_of(order, "cancel"), {"reason": "asked for by phone"}).status_code == 302
    order.refresh_from_db()
    act = StaffAct.objects.get(sale_id=card.sale_id)
    assert (order.state, order.reason, order.actor) == ("cancelled", "asked for by phone", act.actor)
    assert (act.act, act.reason) == ("cancel_order", "asked for by phone")
    assert Stock.objects.get(sku=card.sku).available == 3
    assert_books_balance(card)


@pytest.mark.parametrize("name", ["cancel", "void"])
def test_a_hold_that_its_buyer_gave_up_meanwhile_is_nobodys_act(card: SaleCard, name: str) -> None:
    """The order was read a moment before. The control is the test above: a hold that is still there is cancelled."""
    (order,) = held(card, "ann")
    assert holds.cancel(order.request_id, buyer=order.buyer) == "cancelled"
    with pytest.raises(NotPayable, match="this request is cancelled"):
        do_act(order, name, actor="anna", reason="a test")
    assert not StaffAct.objects.filter(sale_id=card.sale_id).exists()
    assert OrderEvent.objects.filter(order=order).last().actor == "buyer"
    assert holds.cancel(order.request_id, buyer=order.buyer) == "cancelled"  # the buyer may repeat it


def test_an_address_that_staff_delete_is_in_no_mail_with_a_code_either(
    card: SaleCard, new_sku: Callable[[], str]
) -> None:
    sale, address = make_sale(new_sku(), units=1, email_mode="verified"), f"{card.sku}@example.com"
    order, other = held(card, f"ann-{card.sku}", f"bob-{card.sku}")
    for each in (order, other):
        mails.keep_address(each.request_id, address, language="en", root="http://x")
        send_code(sale, address=address, buyer=each.buyer, network=card.sku, language="en", root="http://x")
    kept = Email.objects.filter(to=address)
    assert kept.count() == 4
    assert browser_of("operator").post(act_of(order, "forget"), {"reason": "asked for it"}).status_code == 302
    # The control: those of another buyer stay.
    assert kept.count() == 2
    assert browser_of("operator").post(act_of(other, "forget"), {"reason": "asked for it"}).status_code == 302
    assert kept.count() == 0


def test_the_link_is_offered_only_where_there_is_an_address_to_send_it_to(card: SaleCard) -> None:
    Sale.objects.filter(pk=card.sale_id).update(ships=True)
    mailed, shipped, bare = held(card, "ann", "bob", "cid")
    mails.keep_address(mailed.request_id, f"{card.sku}@example.com", language="en", root="http://x")
    where = {"name": "Bob", "lines": "Lane 1", "postcode": "10815", "city": "Oldtown", "country": "DE"}
    deliveries.keep_address(shipped.request_id, where)
    browser = browser_of("operator")
    offered = {}
    for order in (mailed, shipped, bare):
        page = browser.get(page_of(order)).content.decode()
        offered[order.buyer] = [name for name in ("mail", "forget") if act_of(order, name) in page]
    assert offered == {"ann": ["mail", "forget"], "bob": ["forget"], "cid": []}
    mails.forget_address(mailed.request_id)
    deliveries.forget_address(shipped.request_id)


def test_an_act_that_cannot_be_recorded_is_not_done(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, paid = held(card, "ann", "bob")
    pay(paid.request_id)

    def busy(**_values: Any) -> None:
        raise OperationalError("the row is locked")

    with monkeypatch.context() as patch:
        patch.setattr(StaffAct.objects, "create", busy)
        for order, name in ((waits, "cancel"), (paid, "refund")):
            order.refresh_from_db()
            with pytest.raises(OperationalError):
                do_act(order, name, actor="anna", reason="a test")
    for order, state in ((waits, "held"), (paid, "paid")):
        order.refresh_from_db()
        assert order.state == state
    assert Payment.objects.get(order=paid).state == Payment.State.CAPTURED
    assert_books_balance(card)


def test_a_refund_whose_call_of_the_provider_dies_has_its_act(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    (order,) = held(card, "ann")
    pay(order.request_id)
    order.refresh_from_db()

    def die(_reference: str) -> bool:
        raise RuntimeError("the process ends here")

    monkeypatch.setattr(refunds, "ask_refund", die)
    with pytest.raises(RuntimeError):
        do_act(order, "refund", actor="anna", reason="a test")
    assert Payment.objects.get(order=order).state == Payment.State.REFUND_DUE
    assert StaffAct.objects.get(sale_id=card.sale_id).act == "refund_order"


def test_a_page_that_is_behind_is_told_so(card: SaleCard) -> None:
    (order,) = held(card, "ann")
    browser = browser_of("manager")
    assert browser.post(act_of(order, "refund"), {"reason": "a test"}).status_code == 409
    pay(order.request_id)
    answer = browser.post(act_of(order, "cancel"), {"reason": "a test"})
    assert answer.status_code == 409
    assert "this order is paid by now" in answer.content.decode()
    assert not StaffAct.objects.filter(sale_id=card.sale_id).exists()
    assert browser.get(act_of(order, "burn")).status_code == 404


def test_an_order_page_costs_the_same_however_long_its_story(card: SaleCard) -> None:
    short, long = held(card, "ann", "bob")
    pay(long.request_id)
    browser = browser_of("manager")
    browser.post(act_of(long, "refund"), {"reason": "a test"})
    browser.get(page_of(short))
    few = count_queries(lambda: browser.get(page_of(short)))
    # The notices of its payments are asked for only when there is one.
    assert count_queries(lambda: browser.get(page_of(long))) <= few + 1


def test_the_ledger_shows_the_balance_behind_each_movement(card: SaleCard) -> None:
    held(card, "ann", "bob")
    sale_control.restock(card.slug, units=5, actor="test")
    browser = browser_of("viewer")
    rows = browser.get(LEDGER, {"q": card.sku}).context["cl"].result_list
    assert [(row.kind, row.delta, row.balance) for row in rows] == [
        ("load", 5, 6),
        ("hold", -1, 1),
        ("hold", -1, 2),
        ("load", 3, 3),
    ]
    # A filter leaves rows out of the page, not out of the sum.
    rows = browser.get(LEDGER, {"q": card.sku, "kind__exact": "load"}).context["cl"].result_list
    assert [row.balance for row in rows] == [6, 3]
    assert rows[0].balance == Stock.objects.get(sku=card.sku).available


def test_the_ledger_is_read_only_and_costs_the_same_for_few_and_many(card: SaleCard) -> None:
    browser = browser_of("superuser")
    movement = StockMovement.objects.filter(stock__sku=card.sku).get()
    assert browser.get(f"{LEDGER}add/").status_code == 403
    assert browser.post(f"{LEDGER}{movement.pk}/change/", {"delta": 9}).status_code == 403
    assert browser.post(f"{LEDGER}{movement.pk}/delete/", {"post": "yes"}).status_code == 403
    browser.get(LEDGER, {"q": card.sku})
    few = count_queries(lambda: browser.get(LEDGER, {"q": card.sku}))
    held(card, "ann", "bob")
    for number in range(60):
        sale_control.restock(card.slug, units=1, actor="test", reason=str(number))
    assert count_queries(lambda: browser.get(LEDGER, {"q": card.sku})) == few


OLD_NOTICES = 30_000
OLD = """
INSERT INTO shop_paymentnotice (provider, event_id, kind, reference, result)
SELECT 'sandbox', 'old-' || no, 'captured', 'old-' || no, 'paid' FROM generate_series(1, %s) AS no
"""


def test_the_notices_of_other_orders_are_not_read(card: SaleCard) -> None:
    (order,) = held(card, "ann")
    pay(order.request_id)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(OLD, [OLD_NOTICES])
        cursor.execute("ANALYZE shop_paymentnotice")
        before = rows_read("shop_paymentnotice")
        assert "notice: captured" in [moment.what for moment in timeline(order)]
        assert rows_read("shop_paymentnotice") == before + 1
        # The control: the same page without the index.
        cursor.execute("DROP INDEX payment_notice_by_reference")
        timeline(order)
        assert rows_read("shop_paymentnotice") >= before + OLD_NOTICES
        transaction.set_rollback(True)
