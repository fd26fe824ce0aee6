"""The forms of the ticket page: pay, give back, leave the line; and what the page says in every state of the order.
No script runs here, so all of it holds for browsers without script.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.http import HttpResponse
from django.test import Client, override_settings
from post_office.models import Email

from inventory.states import Reason
from shop import buyers
from shop.models import Order, Payment, Sale
from shop.orders import holds, mails
from shop.orders.numbers import order_number
from shop.payments import refunds
from shop.sales.catalogue import SaleCard
from shop.sandbox.provider import Sandbox
from shop.staff import sale_control
from tests.support import road
from tests.support.paying import begin, happen, hear
from tests.support.servers.faulty_caches import cache_away
from tests.support.shopkeeping import assert_books_balance, let_holds_end, make_sale, pay

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")


class Person:
    """A browser with a request in a sale; checks CSRF as a real one is checked."""

    def __init__(self, card: SaleCard) -> None:
        self.buyer, token = buyers.issue_buyer()
        self.browser = Client(enforce_csrf_checks=True)
        self.browser.cookies[buyers.COOKIE_NAME] = token
        (self.request_id,) = road.queue(card, self.buyer)

    @property
    def page(self) -> str:
        answer = self.browser.get(f"/requests/{self.request_id}/")
        assert answer.status_code == 200
        return answer.content.decode()

    def press(self, what: str, **typed: str) -> HttpResponse:
        """Send the form of the page as it stands there, with what is typed into it."""
        path = f"/requests/{self.request_id}/{what}/"
        form = re.search(rf'action="{path}">.*?name="csrfmiddlewaretoken" value="([^"]+)"', self.page)
        assert form, f"the page has no form for {what}"
        return self.browser.post(path, {"csrfmiddlewaretoken": form[1], **typed})

    @property
    def state(self) -> str:
        return Order.objects.get(request_id=self.request_id).state


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """One unit."""
    return make_sale(new_sku(), units=1)


@pytest.mark.parametrize("spent", [False, True], ids=["no address", "too many links"])
def test_an_address_that_is_refused_stays_in_its_field_with_what_is_wrong(
    card: SaleCard, spent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(card)
    closed = re.search(r'<details([^>]*)><summary>Get the link.*?name="address"([^>]*)>(.*?)</label>', person.page)
    assert closed
    assert ("open" in closed[1], "value" in closed[2], closed[3]) == (False, False, "")  # the control
    monkeypatch.setattr(mails, "MAX_LINK_MAILS", 0 if spent else 1)
    typed, told = ("a@example.com", "sent too often") if spent else ("a@b", "That is not an e-mail address")
    refused = person.press("mail", address=typed).content.decode()
    shown = re.search(r'<details open><summary>Get the link.*?name="address"([^>]*)>(.*?)</label>', refused)
    assert shown
    assert (f'value="{typed}" aria-invalid="true"' in shown[1], told in shown[2]) == (True, True)


@pytest.mark.parametrize("counted", [True, False], ids=["as it is", "control"])
def test_one_address_gets_so_many_links_of_all_tickets_together(
    card: SaleCard, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whichever writing; another address is not refused. The control counts nothing."""
    monkeypatch.setattr(mails, "MAX_TO_ADDRESS", 2)
    if not counted:
        monkeypatch.setattr(mails, "count_link", lambda _normalised: None)
    name, last, people = secrets.token_hex(8), Person(card), [Person(card), Person(card)]
    for person in [*people, *people]:  # the same press again sends nothing, and counts for nothing
        assert person.press("mail", address=f"{name}@shop.example").status_code == 303
    refused = last.press("mail", address=f"{name.upper()}+more@shop.example")
    assert (refused.status_code, b"sent too often" in refused.content) == ((429, True) if counted else (303, False))
    assert Email.objects.filter(to__icontains=name).count() == (2 if counted else 3)
    assert bool(mails.find_address(last.request_id)) is not counted
    assert last.press("mail", address=f"{name}-too@shop.example").status_code == 303


def test_while_links_cannot_be_counted_none_is_sent(card: SaleCard) -> None:
    """The control is the same press once the cache is back."""
    person, address = Person(card), f"{secrets.token_hex(8)}@shop.example"
    with cache_away():
        answer = person.press("mail", address=address)
    assert (answer.status_code, b"sent too often" in answer.content) == (503, False)
    assert mails.find_address(person.request_id) == ""
    assert person.press("mail", address=address).status_code == 303
    assert mails.find_address(person.request_id) == address


def settled(card: SaleCard, people: int) -> list[Person]:
    made = [Person(card) for _ in range(people)]
    road.settle_line(card)
    return made


def expire(card: SaleCard, person: Person) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        changes = holds.expire_due(cursor, sku=card.sku, request_ids=[person.request_id])
    holds.publish(changes)
    assert person.state == "expired"


def test_a_script_is_told_where_the_payment_page_is(card: SaleCard) -> None:
    """A script cannot follow a redirect to another host."""
    (person,) = settled(card, 1)
    led = person.press("payment")["Location"]
    person.browser.defaults["HTTP_ACCEPT"] = "application/json"
    assert person.press("payment").json() == {"location": led}
    assert person.press("cancel").json() == {"location": f"/requests/{person.request_id}/"}


def test_paying_leads_to_the_hosted_page_and_back_to_a_receipt(card: SaleCard) -> None:
    (person,) = settled(card, 1)
    assert "Pay €15.00" in person.page
    answer = person.press("payment")
    payment = Payment.objects.get(order__request_id=person.request_id)
    assert (answer.status_code, answer["Location"]) == (303, f"/sandbox/pay/{payment.reference}/")
    hosted = person.browser.get(answer["Location"])
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', hosted.content.decode())
    assert token
    back = person.browser.post(answer["Location"], {"csrfmiddlewaretoken": token[1], "choice": "never"})
    assert (back.status_code, back["Location"]) == (303, f"/requests/{person.request_id}/")
    waiting = person.page
    assert "You went to pay." in waiting
    # Neither celebrates nor asks for money that may be under way.
    assert ("Back to the payment page" in waiting, "Pay €" in waiting, "confetti" in waiting) == (True, False, False)
    assert '<meta http-equiv="refresh" content="2">' in waiting
    notice = Sandbox().look_up(payment.reference)
    assert notice
    hear(notice)
    assert "Paid. It is yours." in person.page
    order = Order.objects.get(request_id=person.request_id)
    assert person.page.count(f">{order_number(order.pk)}</code>") == 2  # in the receipt and below the timeline
    assert "/payment/" not in person.page
    assert "This is paid." in person.browser.get(answer["Location"]).content.decode()
    assert_books_balance(card)


def test_a_declined_payment_says_so_and_offers_another(card: SaleCard) -> None:
    (person,) = settled(card, 1)
    first = person.press("payment")["Location"]
    payment = Payment.objects.get(order__request_id=person.request_id)
    hear(happen(payment, "declined"))
    assert "The payment was declined and nothing was charged." in person.page
    assert person.press("payment")["Location"] != first


def test_after_too_many_declined_payments_the_page_says_who_can_help(card: SaleCard) -> None:
    (person,) = settled(card, 1)
    for _ in range(settings.MAX_DECLINED_PER_HOLD):
        assert person.press("payment").status_code == 303
        hear(happen(Payment.objects.filter(order__request_id=person.request_id).latest("id"), "declined"))
    with override_settings(SHOP_LINKS={"support": "mailto:help@shop.example"}):
        page = person.page
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token
        # A page that was loaded before still has the button.
        refused = person.browser.post(f"/requests/{person.request_id}/payment/", {"csrfmiddlewaretoken": token[1]})
    assert (refused.status_code, refused["Retry-After"]) == (429, "3600")
    assert "sent too often" not in refused.content.decode()
    help_link, button = '<a href="mailto:help@shop.example">Ask the shop for help.</a>', "To the payment page"
    assert help_link in refused.content.decode()
    assert ("no more can be tried" in page, "Yours until" in page, help_link in page, button in page) == (
        *[True] * 3,
        False,
    )
    chinese = person.browser.get(f"/requests/{person.request_id}/", headers={"Accept-Language": "zh"})
    assert "这次预留不能再尝试其他银行卡" in chinese.content.decode()
    with override_settings(MAX_DECLINED_PER_HOLD=6):  # the control: one more may be tried
        page = person.page
    assert ("no more can be tried" in page, button in page) == (False, True)
    assert person.state == "held"


def test_giving_a_hold_back_tells_the_next_one(card: SaleCard) -> None:
    first, second = settled(card, 2)
    page = second.page
    assert 'data-state="waitlisted"' in page
    assert "No unit is free right now." in page
    assert '<meta http-equiv="refresh" content="2">' in page
    assert "data-holds>1<" in page
    assert "The next may lapse at" in page
    answer = first.press("cancel")
    assert (answer.status_code, answer["Location"]) == (303, f"/requests/{first.request_id}/")
    assert "You gave it back" in first.page
    assert "Ask again" in first.page
    road.settle_line(card)
    assert "Yours until" in second.page
    assert_books_balance(card)


def test_leaving_the_line(card: SaleCard) -> None:
    _, second = settled(card, 2)
    assert "Leave the line for good" in second.page
    assert second.press("cancel").status_code == 303
    assert "You left the line" in second.page
    assert second.state == "cancelled"


def test_an_expired_hold_offers_to_ask_again(card: SaleCard) -> None:
    (person,) = settled(card, 1)
    let_holds_end(person.request_id)
    expire(card, person)
    page = person.page
    assert "The hold ran out" in page
    assert "Ask again" in page
    assert "Nothing was charged" in page


def test_a_late_payment_that_went_back_says_so(card: SaleCard) -> None:
    first, second = settled(card, 2)
    payment = begin(first.request_id)
    let_holds_end(first.request_id)
    expire(card, first)
    road.settle_line(card)
    assert second.state == "held"
    hear(happen(payment, "captured"))
    page = first.page
    assert "Your money went back" in page
    assert "The payment came after the hold had run out" in page
    assert "Refunded" in page


@pytest.mark.parametrize(
    ("language", "words", "others", "in_any_case"),
    [
        ("en", "Your bank did not take the money back", "Your money is on its way back", "Your money goes back"),
        ("zh-hans", "您的银行未接收退款", "退款正在途中", "款项将退还"),
    ],
)
def test_a_refund_is_not_said_to_be_made_nor_to_come_when_it_does_not(
    card: SaleCard, language: str, words: str, others: str, in_any_case: str
) -> None:
    """The control: one for which the provider was not asked yet."""
    person = Person(card)
    person.browser.cookies["language"] = language
    road.settle_line(card)
    pay(person.request_id)
    refunds.refund_order(person.request_id, actor="anna", reason="asked for", ask_now=False)
    for reason, has_failed in (("asked for", False), (Reason.REFUND_FAILED, True)):
        Payment.objects.filter(order__request_id=person.request_id).update(reason=reason)
        page = person.page
        assert (words in page, others in page) == (has_failed, not has_failed)
        assert f"<span>{in_any_case}</span>" in page  # in the timeline, of the moment at which it was decided
        assert not has_failed or not re.search("given back|款项(已|全部)退回", page)


def test_a_pause_is_told_to_who_waits(card: SaleCard) -> None:
    first, second = settled(card, 2)
    sale_control.pause(card.slug, actor="anna", reason="A fault at packing.")
    assert "A fault at packing." in second.page
    assert "A fault at packing." not in first.page
    assert first.press("payment").status_code == 303


@pytest.mark.parametrize(("pressed", "says"), [("payment", "You gave it back"), ("cancel", "your receipt")])
def test_a_press_that_comes_too_late_says_what_is_true_now(card: SaleCard, pressed: str, says: str) -> None:
    """The page was loaded while it was held; another tab gave it back, or paid, meanwhile."""
    (person,) = settled(card, 1)
    form = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', person.page)
    assert form
    person.press("cancel") if pressed == "payment" else pay(person.request_id)
    answer = person.browser.post(f"/requests/{person.request_id}/{pressed}/", {"csrfmiddlewaretoken": form[1]})
    assert answer.status_code == 409
    words = ("This ticket changed after you loaded the page.", says, "Nothing was taken")
    assert [each in answer.content.decode() for each in words] == [True, True, False]
    assert Payment.objects.filter(order__request_id=person.request_id).exists() is (pressed == "cancel")


@pytest.mark.parametrize(
    ("wanted", "lang", "says"),
    [("en", "en", "Allow cookies, load the page again"), ("zh-CN", "zh-Hans", "请允许 Cookie，重新加载页面")],
    ids=["english", "chinese"],
)
@pytest.mark.parametrize("path", ["/requests/0-aaaaaaaaaaaaaaaaaaaaaa/cancel/", "/admin/login/"])
def test_a_form_without_its_token_is_refused_in_the_readers_language(
    path: str, wanted: str, lang: str, says: str
) -> None:
    answer = Client(enforce_csrf_checks=True, HTTP_ACCEPT_LANGUAGE=wanted).post(path, {})
    page = answer.content.decode()
    assert answer.status_code == 403
    assert f'<html lang="{lang}"' in page
    assert says in page
    assert answer["Content-Language"] == ("en" if lang == "en" else "zh-hans")
    assert "no-store" in answer["Cache-Control"]
    assert "Content-Security-Policy" in answer


def test_a_request_has_an_order_number_once_it_is_decided(card: SaleCard) -> None:
    waiting = Person(card)
    assert "data-order-number" not in waiting.page
    assert f"<code>{waiting.request_id}</code>" in waiting.page
    road.settle_line(card)
    order = Order.objects.get(request_id=waiting.request_id)
    assert f"<code data-order-number>{order_number(order.pk)}</code>" in waiting.page


@pytest.mark.parametrize("what", ["payment", "cancel"])
def test_nobody_presses_for_another(card: SaleCard, what: str) -> None:
    first, second = settled(card, 2)
    form = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', second.page)
    assert form
    path = f"/requests/{first.request_id}/{what}/"
    assert second.browser.post(path, {"csrfmiddlewaretoken": form[1]}).status_code == 404
    assert first.browser.post(path, {}).status_code == 403
    loaded = first.browser.get(path)  # as who reloads the page of a refused press does: nothing is pressed
    assert (loaded.status_code, loaded["Location"]) == (303, f"/requests/{first.request_id}/")
    assert second.browser.post(f"/requests/no-such/{what}/", {"csrfmiddlewaretoken": form[1]}).status_code == 404
    assert first.state == "held"


def test_the_price_on_the_ticket_is_the_orders_own(card: SaleCard) -> None:
    (person,) = settled(card, 1)
    Sale.objects.filter(pk=card.sale_id).update(price="99.00")
    assert "Pay €15.00" in person.page
    assert "€99.00" not in person.page


def test_the_hosted_page_takes_only_its_buttons(card: SaleCard) -> None:
    (person,) = settled(card, 1)
    path = person.press("payment")["Location"]
    client = Client()
    assert client.post(path, {"choice": "steal"}).status_code == 400
    assert client.get("/sandbox/pay/nothing/").status_code == 404
    assert person.state == "held"
