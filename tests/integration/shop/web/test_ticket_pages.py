"""Proves what a ticket says of each state and outcome, and why: only what is so, in both languages.
Uses the real servers; no script runs here, so all of it holds for browsers without script.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.functions import Now
from django.test import Client, override_settings
from django.utils import timezone

from inventory.redis import clocks
from inventory.states import Reason
from shop.models import Order, Payment, Sale
from shop.orders.requests import look_up
from shop.orders.status import status_answer
from shop.payments import checkout, notices
from shop.sales.catalogue import find_sale
from shop.staff import sale_control
from tests.support import road
from tests.support.pages import decided, known_client, make_kite_sale, press, text_of
from tests.support.shopkeeping import pay, rewrite

pytestmark = pytest.mark.usefixtures("shop_database")
MakeSale = Callable[..., Sale]


@pytest.fixture
def make_sale(new_sku: Callable[[], str]) -> MakeSale:
    """Return a function that makes a primed sale of its own SKU."""
    return lambda **terms: make_kite_sale(new_sku(), **terms)


def test_another_browser_does_not_see_the_ticket(make_sale: MakeSale) -> None:
    answer = press(Client(), make_sale())
    assert Client().get(answer["Location"]).status_code == 404
    assert known_client()[0].get(answer["Location"]).status_code == 404


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("held", "Yours until"),
        ("paid", "your receipt"),
        ("sold_out", "Sold out before your turn"),
        ("refused", "This request was refused"),
        ("expired", "The hold ran out"),
        ("cancelled", "You gave it back"),
    ],
)
def test_every_outcome_has_its_ticket(make_sale: MakeSale, state: str, words: str) -> None:
    client, buyer = known_client()
    order = decided(make_sale(), buyer=buyer, state=state)
    text = text_of(client.get(f"/requests/{order.request_id}/"))
    assert words in text
    assert order.request_id in text
    # Without script a hold's page looks again when the hold has ended; what is final rests.
    seconds = [int(found) for found in re.findall(r'http-equiv="refresh" content="(\d+)"', text)]
    assert all(480 <= each <= 602 for each in seconds) if state == "held" else not seconds
    assert len(seconds) == (state == "held")


def test_refused_for_the_limit_says_so_and_by_which(make_sale: MakeSale) -> None:
    """The limit of its place, though it is higher now."""
    client, buyer = known_client()
    sale = make_sale()
    order = decided(sale, buyer=buyer, state="refused", reason="limit_reached")
    rewrite(order.request_id, terms_version=find_sale(sale.slug).terms_version)
    sale_control.change_terms(sale.slug, actor="test", per_buyer_limit=4)
    text = text_of(client.get(f"/requests/{order.request_id}/"))
    assert "Over the limit for one person" in text
    assert "The limit is 1 unit a person." in text


# Texts as they stand in databases.
@pytest.mark.parametrize(
    ("reason", "is_late"),
    [
        ("paid too late: the units went to the next in line", True),
        ("paid too late: the buyer has other units, up to the limit", True),
        ("paid too late in the evening, the buyer says", False),
        ("1.00 EUR were captured, 9.00 EUR were due", False),
    ],
)
def test_only_the_shops_own_reason_says_that_money_came_late(make_sale: MakeSale, reason: str, is_late: bool) -> None:
    client, buyer = known_client()
    order = decided(make_sale(), buyer=buyer, state="expired")
    Order.objects.filter(pk=order.pk).update(state="refunded", reason=reason)
    text = text_of(client.get(f"/requests/{order.request_id}/"))
    assert ("The payment came after the hold had run out" in text) is is_late


@pytest.mark.parametrize(
    ("quantity", "language", "words"),
    [
        (1, "en", "It was not paid in time and is not held for you any more. Nothing was charged."),
        (2, "en", "They were not paid in time and are not held for you any more. Nothing was charged."),
        (1, "zh-hans", "未在时限内付款，已不再为您保留。 没有扣款。"),
    ],
)
def test_a_hold_that_ran_out_says_only_what_is_so(
    make_sale: MakeSale, quantity: int, language: str, words: str
) -> None:
    """Nobody may wait for what comes back, and the drop may be over."""
    client, buyer = known_client()
    client.cookies["language"] = language
    sale = make_sale(limit=2)
    order = decided(sale, buyer=buyer, state="expired", quantity=quantity)
    again = {"en": "You may ask again while the drop is open.", "zh-hans": "发售期间您可以重新排队。"}[language]

    def shown() -> str:
        return text_of(client.get(f"/requests/{order.request_id}/"))

    assert f"{words} {again}" in shown()
    Sale.objects.filter(pk=sale.pk).update(operator_state="closed")
    assert words in shown()
    assert again not in shown()


@pytest.mark.parametrize(("end", "words"), [("expired", "The hold ran out"), ("cancelled", "You gave it back")])
def test_a_payment_that_is_under_way_is_not_said_to_be_none(make_sale: MakeSale, end: str, words: str) -> None:
    for payment, minutes in (("pending", 0), ("pending", 11), ("refunded", 11), ("declined", 0), ("", 0), ("", 11)):
        client, buyer = known_client()
        order = decided(make_sale(), buyer=buyer, state="held")
        if payment:
            notices.begin(order, provider_name="sandbox")
            order.payments.update(state=payment)
        Order.objects.filter(pk=order.pk).update(state=end, hold_expires_at=timezone.now() - timedelta(minutes=minutes))
        text = text_of(client.get(f"/requests/{order.request_id}/"))
        assert words in text
        assert ("Nothing was charged." in text) is (payment in ("", "declined"))
        with override_settings(MAX_DECLINED_PER_HOLD=0):  # declined by the shop, and Stripe may not know it yet
            text = text_of(client.get(f"/requests/{order.request_id}/"))
        assert ("Nothing was charged." in text) is (payment == "")


@pytest.mark.parametrize(
    ("end", "first", "words", "not_said"),
    [
        ("expired", {"state": "pending"}, "The hold ran out", "Nothing was charged."),
        ("refunded", {"state": "refund_due"}, "Your money is on its way back", "Your money went back"),
        (
            "refunded",
            {"state": "refunded", "reason": Reason.TAKEN_BY_BANK},
            "Your bank has taken the money",
            "All of it",
        ),
    ],
)
@pytest.mark.parametrize("last", ["declined", "pending"])
def test_a_later_try_hides_no_payment_that_money_came_for(
    make_sale: MakeSale, end: str, first: dict[str, str], words: str, not_said: str, last: str
) -> None:
    client, buyer = known_client()
    order = decided(make_sale(), buyer=buyer, state="held")
    payments = [notices.begin(order, provider_name=name) for name in ("stripe", "sandbox")]
    for payment, values in zip(payments, (first, {"state": last}), strict=True):
        Payment.objects.filter(pk=payment.pk).update(**values)
    for state in dict.fromkeys(("expired", end)):
        Order.objects.filter(pk=order.pk).update(state=state)
    text = text_of(client.get(f"/requests/{order.request_id}/"))
    assert words in text
    assert not_said not in text


def test_a_hold_whose_time_is_over_shows_the_payment_that_says_most(make_sale: MakeSale) -> None:
    """The control is one that still runs: it shows what its buyer did last."""
    order = decided(make_sale(), buyer=known_client()[1], state="held")
    _, last = (notices.begin(order, provider_name=name) for name in ("stripe", "sandbox"))
    Payment.objects.filter(pk=last.pk).update(state="declined")
    Order.objects.filter(pk=order.pk).update(hold_expires_at=timezone.now() + timedelta(hours=1))
    assert checkout.find_bill(order.request_id).payment_state == "declined"
    Order.objects.filter(pk=order.pk).update(hold_expires_at=timezone.now() - timedelta(seconds=1))
    assert checkout.find_bill(order.request_id).payment_state == "pending"


def test_only_a_tickets_own_page_says_whose_it_is(make_sale: MakeSale) -> None:
    order = decided(make_sale(), buyer=known_client()[1], state="held")
    stranger = known_client()[0]
    own = stranger.get(f"/requests/{order.request_id}/")
    assert (own.status_code, b"data-elsewhere" in own.content) == (404, True)
    for path, words in (("mail/stop", b"ends no mails any more"), ("links", b"secret link is not valid any more")):
        other = stranger.get(f"/{path}/{order.request_id}/not-its-secret/")
        assert (other.status_code, b"data-elsewhere" in other.content, words in other.content) == (404, False, True)


@pytest.mark.parametrize("form", ["payment", "delivery", "cancel", "link", "mail"])
def test_a_press_on_another_browsers_ticket_says_where_it_opens(make_sale: MakeSale, form: str) -> None:
    """The control is a sale that is not there: it may have another name."""
    order = decided(make_sale(), buyer=known_client()[1], state="held")
    words, of_a_sale = b"This ticket does not belong to this browser.", b"The drop may have another name now."
    pages = {f"/requests/{order.request_id}/{form}/": (words, of_a_sale), "/sales/x/": (of_a_sale, words)}
    for path, (said, not_said) in pages.items():
        answer = Client().post(path)
        assert (answer.status_code, said in answer.content, not_said in answer.content) == (404, True, False)


def test_what_is_said_of_a_refused_press_does_not_go_by_itself(make_sale: MakeSale) -> None:
    """Without script a ticket in line shows itself again; not so the answer to a press that was refused."""
    client, sale = Client(), make_sale(units=1)
    path = press(client, sale)["Location"]
    with override_settings(MAIL_ON=True):
        shown = text_of(client.get(path))
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', shown)
        assert token
        assert 'http-equiv="refresh"' in shown
        refused = client.post(f"{path}mail/", {"address": "a@b", "csrfmiddlewaretoken": token[1]})
    assert refused.status_code == 400
    assert 'http-equiv="refresh"' not in text_of(refused)
    assert "That is not an e-mail address" in text_of(refused)


@pytest.mark.parametrize(
    ("reason", "quantity", "words"),
    [
        (Reason.TOO_LATE_UNITS_GONE, 1, "and the unit was not free any more."),
        (Reason.TOO_LATE_UNITS_GONE, 2, "and not all of the units were free any more."),
        (Reason.TOO_LATE_LIMIT_REACHED, 1, "and by then you had other units, up to the limit."),
        ("asked for", 1, "and the unit is not yours any more."),
        ("asked for", 2, "and the units are not yours any more."),
    ],
)
def test_a_refund_says_why_it_was_made(make_sale: MakeSale, reason: str, quantity: int, words: str) -> None:
    client, buyer = known_client()
    order = decided(make_sale(limit=2), buyer=buyer, state="expired", quantity=quantity)
    Order.objects.filter(pk=order.pk).update(state="refunded", reason=reason)
    assert words in text_of(client.get(f"/requests/{order.request_id}/"))


@pytest.mark.parametrize(
    ("language", "words", "others"),
    [
        ("en", "Your bank has taken the money back in a dispute, and the order is over.", "All of it is given back"),
        ("zh-hans", "您的银行已因争议收回款项，此订单结束。", "款项全部退回"),
    ],
)
def test_money_that_a_bank_has_taken_is_not_said_to_be_given_back(
    make_sale: MakeSale, language: str, words: str, others: str
) -> None:
    """The control: the same refund, for another reason."""
    client, buyer = known_client()
    client.cookies["language"] = language
    order = decided(make_sale(), buyer=buyer, state="held")
    notices.begin(order, provider_name="sandbox")
    for state in ("paid", "refunded"):
        Order.objects.filter(pk=order.pk).update(state=state, reason="asked for")
    for reason, is_taken in ((Reason.TAKEN_BY_BANK, True), ("asked for", False)):
        order.payments.update(state="refunded", reason=reason)
        text = text_of(client.get(f"/requests/{order.request_id}/"))
        assert ((words in text), (others in text)) == (is_taken, not is_taken)


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "only if people ahead of you leave, a unit that is paid for is refunded, or the shop adds units."),
        ("zh-hans", "只有前面的人离开、已付款的商品被退款，或商店补货，您才可能买到。"),
    ],
)
def test_one_with_too_many_ahead_is_told_every_way_to_a_unit(make_sale: MakeSale, language: str, words: str) -> None:
    sale, clients = make_sale(units=1), [Client(), Client()]
    pages = [press(client, sale)["Location"] for client in clients]
    for client, page, is_beyond in zip(clients, pages, (False, True), strict=True):
        client.cookies["language"] = language
        note = text_of(client.get(page)).partition("data-beyond")[2]
        assert words in note
        assert note.startswith(">") is is_beyond


def test_one_who_waits_for_several_is_not_told_that_none_is_free(make_sale: MakeSale) -> None:
    for quantity, words in (("1", "No unit is free right now."), ("2", "Not enough units are free right now.")):
        client = Client()
        page = press(client, make_sale(limit=2), quantity=quantity)["Location"]
        assert f"<strong>{words}</strong>" in text_of(client.get(page))


@pytest.mark.parametrize("decided_after", [True, False])
def test_a_ticket_that_waited_until_the_close_says_who_closed(make_sale: MakeSale, decided_after: bool) -> None:
    """The control is one that was told sold out while the sale was open."""
    client, buyer = known_client()
    sale = make_sale()
    order = decided(sale, buyer=buyer, state="sold_out")
    sale_control.close(sale.slug, actor="anna")
    if decided_after:
        Order.objects.filter(pk=order.pk).update(decided_at=timezone.now())
    text = text_of(client.get(f"/requests/{order.request_id}/"))
    for words in ("No unit came back for you", "The shop closed it early."):
        assert (words in text) is decided_after
    assert ("Sold out before your turn" in text) is not decided_after


@pytest.mark.parametrize("ahead_seconds", [300.0, 0.0, -300.0])
def test_the_close_is_a_moment_of_the_clock_that_decides(
    make_sale: MakeSale, ahead_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much this machine's clock is off. One was decided before the close, one after it."""
    (first, ann), (last, bob) = known_client(), known_client()
    sale = make_sale()
    before, after = (decided(sale, buyer=buyer, state="sold_out") for buyer in (ann, bob))
    # A minute: longer than a machine stands still, and much shorter than its clock is off.
    Order.objects.filter(pk=before.pk).update(decided_at=Now() - timedelta(minutes=1))
    with monkeypatch.context() as here:
        here.setattr(clocks.DATABASE, "ahead_seconds", 0.0)
        here.setattr(time, "time", lambda: time.time_ns() / 1e9 + ahead_seconds)
        here.setattr(timezone, "now", lambda: datetime.fromtimestamp(time.time(), UTC))
        sale_control.close(sale.slug, actor="anna")
    Order.objects.filter(pk=after.pk).update(decided_at=Now() + timedelta(minutes=1))
    pages = [text_of(who.get(f"/requests/{it.request_id}/")) for who, it in ((first, before), (last, after))]
    assert ["No unit came back for you" in page for page in pages] == [False, True]


@pytest.mark.parametrize(("language", "not_said"), [("en", "before you."), ("zh-hans", "都比您先提出")])
def test_one_for_whom_too_few_were_left_is_not_told_that_all_others_asked_before(
    make_sale: MakeSale, language: str, not_said: str
) -> None:
    """Two were wanted and one was left: the next in line got it."""
    sale, ann, bob = make_sale(units=1, limit=2), Client(), Client()
    ann.cookies["language"] = language
    first, second = (press(ann, sale, quantity="2")["Location"], press(bob, sale)["Location"])
    road.settle_line(find_sale(sale.slug))
    pay(second.split("/")[2])
    road.settle_line(find_sale(sale.slug))
    text = text_of(ann.get(first))
    assert ('data-state="sold_out"' in text, not_said in text) == (True, False)


def test_a_hold_is_counted_by_the_clock_that_ends_it(make_sale: MakeSale, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its ten minutes five are left where this machine's clock is so much slow, whatever that says."""
    client, buyer = known_client()
    order = decided(make_sale(), buyer=buyer, state="held")
    assert order.hold_expires_at is not None
    monkeypatch.setattr(clocks.DATABASE, "ahead_seconds", 300.0)
    text = text_of(client.get(f"/requests/{order.request_id}/"))
    shown_seconds = [int(found) for found in re.findall(r'http-equiv="refresh" content="(\d+)"', text)]
    view, card = look_up(order.request_id, buyer=buyer), find_sale(order.sale.slug)
    told = datetime.fromisoformat(status_answer(view, card, figures=None)["server_time"])
    left_seconds = (order.hold_expires_at - told).total_seconds()
    assert all(180 <= each <= 302 for each in (*shown_seconds, left_seconds))
    assert len(shown_seconds) == 1


def test_an_address_is_changed_until_then_by_the_clock_that_says_until_when(
    make_sale: MakeSale, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, buyer = known_client()
    order = decided(make_sale(ships=True), buyer=buyer, state="paid")
    for seconds, words in ((86_000.0, "It can be changed until"), (86_400.0, "The time to give an address is over.")):
        monkeypatch.setattr(clocks.DATABASE, "ahead_seconds", seconds)
        assert words in text_of(client.get(f"/requests/{order.request_id}/"))
