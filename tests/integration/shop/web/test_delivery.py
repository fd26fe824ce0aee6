"""Where the goods go: asked for on the ticket of a sale that ships, in any script, kept apart from the order, shown to
its buyer and to staff with the right only, and deleted. No script runs here, so all of it holds without script.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from structlog.testing import capture_logs

from shop import buyers
from shop.models import LAST_CAPTURE, Contact, DeliveryAddress, Order, OrderEvent, Payment, Sale, StaffAct
from shop.orders import deliveries, holds, mails, ticket_links
from shop.orders.deliveries import FIELDS
from shop.payments import refunds
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.paying import begin
from tests.support.shopkeeping import make_sale, pay, rewrite
from tests.support.staff import browser_of
from workers.reconciler.retention import Retention

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")

ADA = dict(zip(FIELDS, ("Ada Lovelace", "12 St James's Square", "SW1Y 4JH", "London", "United Kingdom"), strict=True))
EVERYWHERE = [
    ("李雷", "朝阳区建国路 88 号\n3 号楼 1204 室", "100022", "北京市", "中国"),
    ("محمد بن علي", "شارع الملك فهد، ١٢", "١١٥٦٤", "الرياض", "السعودية"),
    ("प्रिया शर्मा", "१२ एम जी रोड", "560001", "बेंगलूरु", "भारत"),
    ("علی می‌خواهد", "خیابان ولیعصر", "", "تهران", "ایران"),
    ("สมชาย ใจดี", "99/1 ถนนสุขุมวิท", "10110", "กรุงเทพฯ", "ประเทศไทย"),
    ("Þórður Ólafsson", "Laugavegur 1\nc/o Jón", "101", "Reykjavík", "Ísland"),
    ("ኃይሌ ገብረሥላሴ", "ቦሌ መንገድ", "", "አዲስ አበባ", "ኢትዮጵያ"),
    ("𠮷野家 太郎", "築地 5-2-1", "〒104-0045", "東京都", "日本"),
]


class Recipient:
    """A buyer with a hold in a sale, and a browser that checks CSRF as a real one is checked."""

    def __init__(self, card: SaleCard, *, language: str = "en") -> None:
        self.buyer, token = buyers.issue_buyer()
        self.browser = Client(enforce_csrf_checks=True)
        self.browser.cookies[buyers.COOKIE_NAME] = token
        self.browser.cookies["language"] = language
        (self.request_id,) = road.queue(card, self.buyer)
        road.settle_line(card)
        self.path = f"/requests/{self.request_id}/"

    def page(self, browser: Client | None = None) -> str:
        answer = (browser or self.browser).get(self.path)
        assert answer.status_code == 200
        return html.unescape(answer.content.decode())

    def send(self, browser: Client | None = None, **changes: str) -> HttpResponse:
        """Send the form of the address, Ada's but for `changes`, with the token of some form of the page."""
        return self.post("delivery", {**ADA, **changes}, browser=browser)

    def post(self, what: str, data: dict[str, str], *, browser: Client | None = None) -> HttpResponse:
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.page(browser))
        assert found
        data = {**data, "csrfmiddlewaretoken": found[1]}
        return (browser or self.browser).post(f"{self.path}{what}/", data)

    @property
    def kept(self) -> dict[str, Any] | None:
        return DeliveryAddress.objects.filter(request_id=self.request_id).values(*FIELDS).first()

    @property
    def order(self) -> Order:
        return Order.objects.get(request_id=self.request_id)

    def pay_long_ago(self) -> None:
        pay(self.request_id)
        rewrite(self.request_id, changed_at=timezone.now() - deliveries.CHANGED_FOR)


@pytest.fixture
def new_card(new_sku: Callable[[], str]) -> Callable[..., SaleCard]:
    """Return a function that makes a sale whose goods are sent."""

    def make(*, ships: bool = True, **terms: Any) -> SaleCard:
        card = make_sale(new_sku(), **{"units": 3, **terms})
        Sale.objects.filter(pk=card.sale_id).update(ships=ships)
        return catalogue.find_sale(card.slug)

    return make


@pytest.fixture
def card(new_card: Callable[..., SaleCard]) -> SaleCard:
    return new_card()


def test_the_ticket_asks_where_it_goes_before_it_leads_to_the_payment_page(card: SaleCard) -> None:
    ada = Recipient(card)
    assert "Delivery address" in ada.page()
    assert "Pay €15.00" not in ada.page()
    # A form that was kept from elsewhere does not pay past the question.
    assert ada.post("payment", {})["Location"] == ada.path
    answer = ada.send()
    assert (answer.status_code, answer["Location"]) == (303, ada.path)
    assert ada.kept == ADA
    page = ada.page()
    assert "Ada Lovelace<br>12 St James's Square<br>SW1Y 4JH London<br>United Kingdom" in page
    assert "Pay €15.00" in page
    assert ada.post("payment", {})["Location"].startswith("/sandbox/pay/")


def test_a_sale_that_does_not_ship_asks_nothing_and_keeps_nothing(new_card: Callable[..., SaleCard]) -> None:
    ada = Recipient(new_card(ships=False))
    assert "Delivery address" not in ada.page()
    assert "Pay €15.00" in ada.page()
    assert ada.send().status_code == 404
    assert ada.kept is None


def test_the_same_form_sent_twice_keeps_one_address_and_changes_nothing(card: SaleCard) -> None:
    ada = Recipient(card)
    ada.send()
    first = DeliveryAddress.objects.get(request_id=ada.request_id)
    assert ada.send().status_code == 303
    assert DeliveryAddress.objects.get(request_id=ada.request_id).changed_at == first.changed_at
    ada.send(name="  Ada \t King ")
    assert ada.kept == {**ADA, "name": "Ada King"}
    assert DeliveryAddress.objects.get(request_id=ada.request_id).pk == first.pk


@pytest.mark.parametrize("words", EVERYWHERE, ids=["zh", "ar", "hi", "fa", "th", "is", "am", "ja"])
def test_every_script_is_kept_and_shown_as_it_was_typed(card: SaleCard, words: tuple[str, ...]) -> None:
    wanted = dict(zip(FIELDS, words, strict=True))
    reader = Recipient(card, language="zh-hans")
    assert reader.send(**wanted).status_code == 303
    assert reader.kept == wanted
    pay(reader.request_id)
    page = reader.page()
    assert "收货地址" in page
    assert words[1].replace("\n", "<br>") in page
    assert words[0] in page
    assert words[4] in page


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "   "},
        {"name": "x" * 101},
        {"name": "--"},
        {"name": "Ada\x00"},
        {"name": "Ada\x07 L"},
        {"name": "Ada \u202egnitset"},
        {"lines": ""},
        {"lines": "a\nb\nc\nd\ne"},
        {"lines": "x" * 301},
        {"postcode": "1" * 21},
        {"city": "x" * 101},
        {"country": ""},
        {"country": "\u2067Land"},
    ],
    ids=lambda wrong: f"{next(iter(wrong))}-{ascii(next(iter(wrong.values())))[:12]}",
)
def test_a_wrong_field_is_named_keeps_what_was_typed_and_changes_nothing(card: SaleCard, wrong: dict[str, str]) -> None:
    ada = Recipient(card)
    answer = ada.send(**wrong)
    page = html.unescape(answer.content.decode())
    assert answer.status_code == 400
    assert re.search(rf'name="{next(iter(wrong))}"[^>]* aria-invalid="true"', page)
    assert page.count("errorlist") == 1
    assert sum(text in page for text in ADA.values()) >= len(ADA) - 1
    assert ada.kept is None
    ada.send()
    assert ada.send(**wrong).status_code == 400
    assert ada.kept == ADA


def test_what_is_wrong_is_said_in_the_language_of_the_page(card: SaleCard) -> None:
    reader = Recipient(card, language="zh-hans")
    page = reader.send(name="", lines="a\nb\nc\nd\ne").content.decode()
    assert "必填" in page
    assert "最多四行" in page


def test_it_can_be_changed_until_a_day_after_the_payment(card: SaleCard) -> None:
    ada = Recipient(card)
    ada.send()
    pay(ada.request_id)
    assert ada.send(city="Bath").status_code == 303
    assert ada.kept == {**ADA, "city": "Bath"}
    rewrite(ada.request_id, changed_at=timezone.now() - deliveries.CHANGED_FOR)
    assert "It cannot be changed here any more." in ada.page()
    late = ada.send(city="Rome")
    assert (late.status_code, ada.kept) == (409, {**ADA, "city": "Bath"})
    assert [words in late.content.decode() for words in ("Too late for that", "Nothing was taken")] == [True, False]
    # An answer that was lost: the same press again is told what the first was told.
    assert ada.send(city="Bath").status_code == 303


def test_who_paid_without_an_address_may_give_it_for_a_day(card: SaleCard) -> None:
    """By the API one can pay without."""
    ada, late = Recipient(card), Recipient(card)
    pay(ada.request_id)
    assert "Nobody has said yet where it goes." in ada.page()
    assert ada.send().status_code == 303
    late.pay_long_ago()
    assert "The time to give an address is over." in late.page()
    assert (late.send().status_code, late.kept) == (409, None)


@pytest.mark.parametrize("end", ["cancelled", "refunded"])
def test_nothing_is_kept_for_an_order_that_is_over(card: SaleCard, end: str) -> None:
    ada = Recipient(card)
    ada.send()
    if end == "cancelled":
        holds.cancel(ada.request_id, buyer=ada.buyer)
    else:
        pay(ada.request_id)
        refunds.refund_order(ada.request_id, actor="anna", reason="broken")
    assert ada.send(city="Bath").status_code in (404, 409)
    assert ada.kept == ADA
    assert ada.post("delivery", {"delete": "1"}).status_code == 303
    assert ada.kept is None
    assert ada.send().status_code == 404


def test_its_buyer_deletes_it_at_any_time(card: SaleCard) -> None:
    ada = Recipient(card)
    ada.send()
    ada.pay_long_ago()
    assert ada.post("delivery", {"delete": "1"}).status_code == 303
    assert ada.kept is None
    assert "Ada Lovelace" not in ada.page()


def test_another_buyer_neither_sees_nor_changes_nor_deletes_it(card: SaleCard) -> None:
    ada, eve = Recipient(card), Recipient(card)
    ada.send()
    assert eve.browser.get(ada.path).status_code == 404
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', eve.page())
    assert token
    for data in ({**ADA, "city": "Eveville"}, {"delete": "1"}):
        answer = eve.browser.post(f"{ada.path}delivery/", {**data, "csrfmiddlewaretoken": token[1]})
        assert answer.status_code == 404
    assert Client(enforce_csrf_checks=True).post(f"{ada.path}delivery/", {"delete": "1"}).status_code == 403
    assert ada.kept == ADA


def test_the_secret_link_gives_it_on_another_device_until_it_is_replaced(card: SaleCard) -> None:
    ada, other = Recipient(card), Client(enforce_csrf_checks=True)
    other.get(urlsplit(ticket_links.link_to(ada.request_id, root="http://testserver")).path)
    assert ada.send(browser=other).status_code == 303
    assert "Ada Lovelace" in ada.page(other)
    ticket_links.replace_link(ada.request_id)
    assert other.get(ada.path).status_code == 404


def test_staff_see_it_on_the_order_with_the_right_only(card: SaleCard) -> None:
    ada = Recipient(card)
    ada.send()
    order = f"/admin/shop/order/{ada.order.pk}/change/"
    pages = {role: browser_of(role).get(order).content.decode() for role in ("viewer", "operator", "manager")}
    assert {role: "Ada Lovelace" in page for role, page in pages.items()} == {
        "viewer": False,
        "operator": True,
        "manager": True,
    }
    elsewhere = [browser_of("superuser").get(path) for path in ("/admin/shop/order/", "/admin/shop/staffact/")]
    assert not any("Lovelace" in page.content.decode() for page in elsewhere)
    assert browser_of("superuser").get("/admin/shop/deliveryaddress/").status_code == 404
    answer = browser_of("operator").post(f"/admin/shop/order/{ada.order.pk}/forget/", {"reason": "they asked"})
    assert (answer.status_code, ada.kept) == (302, None)
    assert "Lovelace" not in str(list(StaffAct.objects.filter(sale=card.sale_id).values()))


def test_no_log_no_answer_of_the_api_and_no_history_has_it(
    card: SaleCard, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    ada = Recipient(card)
    with capture_logs() as said, caplog.at_level("DEBUG"):
        ada.send()
        ada.send(name="Ada Lovelace\x00")
        ada.page()
        about = ada.browser.get(f"/api/v1/requests/{ada.request_id}").content.decode()
        Retention().work_once()
    history = list(OrderEvent.objects.filter(order=ada.order).values())
    everything = f"{said}{caplog.text}{capfd.readouterr()}{about}{history}"
    assert [text for text in ADA.values() if text in everything] == []


def test_addresses_go_when_their_time_is_over(card: SaleCard, settings: Any) -> None:
    """The control: what is a day younger, and what is held or paid, stays."""
    settings.KEEP_ADDRESSES_DAYS = 30
    old, young, over = Recipient(card), Recipient(card), Recipient(card)
    for each in (old, young, over):
        each.send()
        Contact.objects.create(request_id=each.request_id, address="ada@example.com")
    pay(old.request_id, young.request_id)
    holds.cancel(over.request_id, buyer=over.buyer)
    for each, days in ((old, 31), (young, 29)):
        moment = timezone.now() - timedelta(days=days)
        DeliveryAddress.objects.filter(request_id=each.request_id).update(changed_at=moment)
        Contact.objects.filter(request_id=each.request_id).update(created_at=moment)
    retention = Retention()
    assert retention.work_once() >= 3
    assert [old.kept, young.kept, over.kept] == [None, ADA, None]
    mailed = [mails.find_address(each.request_id) for each in (old, young, over)]
    assert mailed == ["", "ada@example.com", "ada@example.com"]
    # Once an hour is enough.
    over.page()
    DeliveryAddress.objects.create(request_id=over.request_id, **ADA)
    assert retention.work_once() == 0
    assert over.kept == ADA
    assert Retention().work_once() >= 1
    assert over.kept is None


def test_the_address_of_a_hold_that_is_over_stays_while_a_payment_for_it_may_come(card: SaleCard) -> None:
    """Its goods would have nowhere to go. The controls: one that nobody began to pay, one whose payment is too old."""
    paying, idle, late = Recipient(card), Recipient(card), Recipient(card)
    for each in (paying, idle, late):
        each.send()
    for each in (paying, late):
        begin(each.request_id)
    long_ago = {"state": "declined", "created_at": timezone.now() - LAST_CAPTURE - timedelta(minutes=1)}
    Payment.objects.filter(order__request_id=late.request_id).update(**long_ago)
    for each in (paying, idle, late):
        rewrite(each.request_id, state="expired")
    assert Retention().work_once() >= 2
    assert [each.kept for each in (paying, idle, late)] == [ADA, None, None]


def test_many_are_deleted_in_several_rounds(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "MAX_DELETED", 2)
    people = [Recipient(card) for _ in range(3)]
    for each in people:
        each.send()
        holds.cancel(each.request_id, buyer=each.buyer)
    retention = Retention()
    while retention.work_once():
        pass
    assert [each.kept for each in people] == [None] * 3
