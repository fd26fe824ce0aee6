"""Proves the mails: each change that matters is queued once for who gave an address, and for nobody else; they are sent
at least once whatever dies, in their reader's language; and an address goes for good when its owner says so.
"""

from __future__ import annotations

import html
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core import mail as outbox
from django.core.cache import cache
from django.db import connection, connections, transaction
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from post_office.models import STATUS, Email

from inventory.postgres import AdvisoryLock
from shop import buyers
from shop.models import Contact, Order, OrderEvent, StaffAct
from shop.orders import holds, mails
from shop.payments import refunds
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.servers.mail_server import mail_server
from tests.support.servers.shop_processes import running_process
from tests.support.shopkeeping import let_holds_end, make_sale, pay
from tests.support.staff import browser_of
from tests.support.waiting import assert_waits_at_most, seconds_of, wait_until
from workers.mailer import Mailer

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices", "empty_mailbox")
ADDRESS = "ada@example.com"


@pytest.fixture
def empty_mailbox(shop_database: None) -> Iterator[None]:
    """No mail, no address and no count of another test, and none for the next."""
    cache.delete_pattern("mailed:*")  # type: ignore[attr-defined]
    for table in (Email, Contact):
        table.objects.all().delete()
    yield
    cache.delete_pattern("mailed:*")  # type: ignore[attr-defined]
    for table in (Email, Contact):
        table.objects.all().delete()


@pytest.fixture
def new_card(new_sku: Callable[[], str]) -> Callable[..., SaleCard]:
    return lambda units=1, **terms: make_sale(new_sku(), units=units, **terms)


class Reader:
    """A buyer in line, with a browser that checks CSRF as a real one is checked."""

    def __init__(self, card: SaleCard, *, language: str = "en") -> None:
        self.buyer, token = buyers.issue_buyer()
        self.client = Client(enforce_csrf_checks=True)
        self.client.cookies[buyers.COOKIE_NAME] = token
        self.client.cookies["language"] = language
        (self.request_id,) = road.queue(card, self.buyer)
        self.page = f"/requests/{self.request_id}/"

    @property
    def text(self) -> str:
        answer = self.client.get(self.page)
        assert answer.status_code == 200
        return html.unescape(answer.content.decode())

    def give(self, address: str = ADDRESS) -> HttpResponse:
        """Send the form of the ticket; '' deletes the address."""
        form = re.search(rf'action="{self.page}mail/">.*?name="csrfmiddlewaretoken" value="([^"]+)"', self.text)
        assert form
        return self.client.post(f"{self.page}mail/", {"csrfmiddlewaretoken": form[1], "address": address})

    @property
    def subjects(self) -> list[str]:
        own = Email.objects.filter(headers__contains={mails.REQUEST_HEADER: self.request_id})
        return [each.subject for each in own.order_by("id")]

    @property
    def last(self) -> Email:
        found = Email.objects.filter(headers__contains={mails.REQUEST_HEADER: self.request_id}).last()
        assert found
        return found

    @property
    def order(self) -> Order:
        return Order.objects.get(request_id=self.request_id)


LINK, TURN = "The link of your ticket", "It is your turn: pay to keep it"
WARNING, PAID, REFUNDED = "Ten minutes left to pay", "Paid: your receipt", "Your money goes back"


def tell_all() -> int:
    """Let a mailer look at every address once."""
    return Mailer().work_once()


def test_each_change_that_matters_is_told_once(new_card: Callable[..., SaleCard]) -> None:
    card = new_card()
    reader = Reader(card)
    assert reader.give().status_code == 303
    assert reader.subjects == [LINK]
    road.settle_line(card)
    for _ in range(3):
        tell_all()
    assert reader.subjects == [LINK, TURN]
    pay(reader.request_id)
    tell_all()
    refunds.refund_order(reader.request_id, actor="anna", reason="broken")
    for _ in range(3):
        tell_all()
    assert reader.subjects == [LINK, TURN, PAID, REFUNDED]
    assert set(Email.objects.values_list("status", flat=True)) == {STATUS.sent}


def test_several_changes_before_a_look_are_told_one_by_one(new_card: Callable[..., SaleCard]) -> None:
    """All but the hold: once it is paid, nobody is asked to pay any more."""
    card = new_card()
    reader = Reader(card)
    reader.give()
    road.settle_line(card)
    pay(reader.request_id)
    refunds.refund_order(reader.request_id, actor="anna", reason="broken")
    tell_all()
    assert reader.subjects == [LINK, PAID, REFUNDED]


@pytest.mark.parametrize("status", [STATUS.queued, STATUS.requeued])
@pytest.mark.parametrize(("way", "sent"), [("paid", False), ("given back", False), ("held", True)])
def test_who_has_paid_or_given_back_is_not_asked_to_pay_by_a_mail_that_waited(
    new_card: Callable[..., SaleCard], way: str, sent: bool, status: int
) -> None:
    """Also one that was tried once, while the mail server was away. The control: who still holds gets it."""
    card = new_card()
    reader = Reader(card)
    reader.give()
    tell_all()
    road.settle_line(card)
    (contact,) = Contact.objects.all()
    assert mails.queue_news(contact.pk) == 1
    Email.objects.filter(subject=TURN).update(status=status)
    if way == "paid":
        pay(reader.request_id)
    elif way == "given back":
        holds.cancel(reader.request_id, buyer=reader.buyer)
    tell_all()
    turn = Email.objects.get(subject=TURN)
    assert (turn.status == STATUS.sent) is sent


def test_a_buyer_without_an_address_gets_no_row_and_no_mail(new_card: Callable[..., SaleCard]) -> None:
    card = new_card()
    reader = Reader(card)
    road.settle_line(card)
    pay(reader.request_id)
    tell_all()
    assert (Email.objects.count(), Contact.objects.count()) == (0, 0)


def test_what_was_on_the_ticket_already_is_not_told_again(new_card: Callable[..., SaleCard]) -> None:
    card = new_card()
    reader = Reader(card)
    road.settle_line(card)
    reader.give()
    tell_all()
    assert reader.subjects == [LINK]


@pytest.mark.parametrize("end", ["sold_out", "expired", "cancelled"])
def test_other_ends_are_not_told(new_card: Callable[..., SaleCard], end: str) -> None:
    card = new_card()
    first = road.queue(card, "holder-0000000000000000") if end == "sold_out" else []
    reader = Reader(card)
    reader.give()
    road.settle_line(card)
    tell_all()
    told = reader.subjects
    if first:
        pay(*first)
        road.settle_line(card)
    if end == "expired":
        let_holds_end(reader.request_id)
        with transaction.atomic(), connection.cursor() as cursor:
            changes = holds.expire_due(cursor, sku=card.sku, request_ids=[reader.request_id])
        holds.publish(changes)
    elif end == "cancelled":
        holds.cancel(reader.request_id, buyer=reader.buyer)
    tell_all()
    assert (reader.order.state, reader.subjects) == (end, told)
    assert Contact.objects.get(request_id=reader.request_id).is_over


def test_a_long_hold_is_warned_of_once_when_ten_minutes_are_left(new_card: Callable[..., SaleCard]) -> None:
    card = new_card(hold_seconds=3600)
    reader = Reader(card)
    reader.give()
    road.settle_line(card)
    tell_all()
    assert reader.subjects == [LINK, TURN]
    now = timezone.now()
    nearly_over = {"decided_at": now - timedelta(minutes=50), "hold_expires_at": now + timedelta(minutes=9, seconds=50)}
    Order.objects.filter(pk=reader.order.pk).update(**nearly_over)
    for _ in range(3):
        tell_all()
    assert reader.subjects == [LINK, TURN, WARNING]
    assert reader.last.expires_at == reader.order.hold_expires_at


def test_a_hold_of_ten_minutes_needs_no_warning(new_card: Callable[..., SaleCard]) -> None:
    card = new_card(hold_seconds=600)
    reader = Reader(card)
    reader.give()
    road.settle_line(card)
    for _ in range(2):
        tell_all()
    assert reader.subjects == [LINK, TURN]


def test_a_mail_leads_to_the_ticket_in_a_browser_that_has_nothing(new_card: Callable[..., SaleCard]) -> None:
    card = new_card()
    reader = Reader(card)
    reader.give()
    road.settle_line(card)
    tell_all()
    (link,) = re.findall(r"http://testserver(/links/\S+)", reader.last.message)
    other = Client()
    assert other.get(link).status_code == 303
    assert "It is yours" in html.unescape(other.get(reader.page).content.decode())
    sent = outbox.outbox[-1] if hasattr(outbox, "outbox") else None
    assert sent is None or sent.extra_headers["Message-ID"] == reader.last.message_id


def test_mails_are_in_the_language_of_the_reader(new_card: Callable[..., SaleCard]) -> None:
    card = new_card()
    reader = Reader(card, language="zh-hans")
    reader.give()
    road.settle_line(card)
    tell_all()
    assert reader.subjects == ["你的票的链接", "轮到你了:请付款以保留"]
    assert "届时未付款,将不再为你保留。" in reader.last.message


def test_the_mail_of_a_hold_promises_nothing_of_others(new_card: Callable[..., SaleCard]) -> None:
    """Nobody may wait for what comes back."""
    card = new_card()
    reader = Reader(card)
    reader.give()
    road.settle_line(card)
    tell_all()
    assert "What is not paid by then is not held for you any more." in reader.last.message


def test_two_mailers_at_once_tell_each_change_once(new_card: Callable[..., SaleCard]) -> None:
    card = new_card(units=12)
    readers = [Reader(card) for _ in range(12)]
    for reader in readers:
        reader.give()
    road.settle_line(card)
    ids = list(Contact.objects.values_list("id", flat=True))

    def tell(_number: int) -> int:
        try:
            return sum(mails.queue_news(number) for number in ids)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as mailers:
        told = sum(mailers.map(tell, range(4)))
    assert told == len(readers)
    assert [reader.subjects for reader in readers] == [[LINK, TURN]] * len(readers)


@pytest.mark.parametrize("place", ["in_mail", "before_mail"])
def test_a_killed_mailer_loses_and_doubles_nothing(
    new_card: Callable[..., SaleCard], process_environment: dict[str, str], tmp_path: Path, place: str
) -> None:
    card = new_card(units=3)
    readers = [Reader(card) for _ in range(3)]
    for reader in readers:
        reader.give()
    road.settle_line(card)
    Email.objects.update(status=STATUS.sent)
    command = [sys.executable, "manage.py", "run_worker", "mailer"]
    fault = {**process_environment, "FAIRDROP_FAULT": f"{place}:kill:{2 if place == 'in_mail' else 1}"}
    with running_process("killed", command, environment=fault, folder=tmp_path) as child:
        wait_until(lambda: child.exit_code is not None, what="the mailer is killed")
    assert Email.objects.filter(status=STATUS.queued).count() == (1 if place == "in_mail" else 3)
    with running_process("next", command, environment=process_environment, folder=tmp_path):
        wait_until(lambda: Email.objects.filter(status=STATUS.sent).count() == 6, what="all mails are sent")
    assert [reader.subjects for reader in readers] == [[LINK, TURN]] * len(readers)


@pytest.mark.parametrize(("most", "is_slow"), [("1", True), ("100", False)])
def test_a_mailer_sends_no_more_in_a_second_than_it_may(
    new_card: Callable[..., SaleCard], process_environment: dict[str, str], tmp_path: Path, most: str, is_slow: bool
) -> None:
    """The control is the mailer that may send all of them at once."""
    card = new_card(units=4)
    for _ in range(4):
        Reader(card).give()
    command = [sys.executable, "manage.py", "run_worker", "mailer"]
    environment = {**process_environment, "FAIRDROP_MAILS_PER_SECOND": most}
    with running_process("mailer", command, environment=environment, folder=tmp_path):
        sent = Email.objects.filter(status=STATUS.sent)
        wait_until(lambda: sent.count() == 4, what="all mails are sent")
    moments = sorted(set(sent.values_list("last_updated", flat=True)))  # of one batch they are the same
    assert len(moments) == (4 if is_slow else 1)
    assert not is_slow or moments[-1] - moments[0] > timedelta(seconds=2.5)


def test_a_mail_whose_acceptance_was_lost_is_sent_again_under_the_same_id(
    new_card: Callable[..., SaleCard], process_environment: dict[str, str], tmp_path: Path
) -> None:
    reader = Reader(new_card())
    reader.give()
    command = [sys.executable, "manage.py", "run_worker", "mailer"]
    with mail_server() as server:
        environment = {**process_environment, "FAIRDROP_MAIL_URL": server.url}
        server.is_silent = True
        with running_process("killed", command, environment=environment, folder=tmp_path) as child:
            wait_until(lambda: len(server.taken) == 1, what="the mail is taken")
            os.kill(child.pid, signal.SIGKILL)
        assert reader.last.status == STATUS.queued
        server.is_silent = False
        with running_process("next", command, environment=environment, folder=tmp_path):
            wait_until(lambda: reader.last.status == STATUS.sent, what="the mail is sent")
    assert len(server.taken) == 2
    for name in ("Message-ID", "To", "Subject", "List-Unsubscribe", mails.REQUEST_HEADER):
        assert server.taken[0][name] == server.taken[1][name]
    assert (server.taken[0]["To"], server.taken[0]["Subject"]) == (ADDRESS, LINK)
    assert server.taken[0]["Message-ID"] == reader.last.message_id


def test_an_address_given_while_a_change_commits_misses_nothing(new_card: Callable[..., SaleCard]) -> None:
    card = new_card()
    reader = Reader(card)
    road.settle_line(card)
    with ThreadPoolExecutor(1) as pay_under_way, transaction.atomic():
        Order.objects.filter(request_id=reader.request_id).update(state="paid")  # not committed yet
        pay_under_way.submit(give_elsewhere, reader.request_id).result()
    tell_all()
    assert reader.subjects == [LINK, PAID]


def give_elsewhere(request_id: str) -> None:
    try:
        mails.keep_address(request_id, ADDRESS, language="en", root="http://testserver")
    finally:
        connections.close_all()


def test_an_address_that_is_sent_again_queues_no_second_mail(new_card: Callable[..., SaleCard]) -> None:
    """A press whose answer was lost is sent again with the form of before."""
    reader = Reader(new_card())
    reader.give()
    give_elsewhere(reader.request_id)
    assert reader.subjects == [LINK]


def test_a_mail_server_that_is_away_delays_a_mail_and_loses_none(
    new_card: Callable[..., SaleCard], settings: Any
) -> None:
    reader = Reader(new_card())
    reader.give()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.POST_OFFICE = {**settings.POST_OFFICE, "BACKENDS": {"default": settings.EMAIL_BACKEND}}
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9
    tell_all()
    assert (reader.last.status, reader.last.number_of_retries) == (STATUS.requeued, 1)
    settings.POST_OFFICE = {
        **settings.POST_OFFICE,
        "BACKENDS": {"default": "django.core.mail.backends.dummy.EmailBackend"},
    }
    Email.objects.update(scheduled_time=None)
    tell_all()
    assert reader.last.status == STATUS.sent


@pytest.mark.parametrize(("role", "may"), [("viewer", False), ("operator", True), ("manager", True)])
def test_staff_send_the_link_to_the_kept_address_only(new_card: Callable[..., SaleCard], role: str, may: bool) -> None:
    card = new_card()
    reader, staff = Reader(card), browser_of(role)
    road.settle_line(card)
    act = f"/admin/shop/order/{reader.order.pk}/mail/"
    values = {"reason": "lost her telephone", "address": "eve@example.com"}
    assert staff.post(act, values).status_code == (409 if may else 403)  # no address is kept
    reader.give()
    order_page = staff.get(f"/admin/shop/order/{reader.order.pk}/change/").content.decode()
    assert (act in order_page, ADDRESS in order_page, "/links/" in order_page) == (may, False, False)
    assert staff.post(act, values).status_code == (302 if may else 403)
    own = Email.objects.filter(headers__contains={mails.REQUEST_HEADER: reader.request_id})
    assert [each.to for each in own] == [[ADDRESS]] * (2 if may else 1)
    assert StaffAct.objects.filter(act="mail_order", sale_id=card.sale_id).exists() == may
    assert staff.post(act.replace("/mail/", "/forget/"), values).status_code == (302 if may else 403)
    assert mails.find_address(reader.request_id) == ("" if may else ADDRESS)


def test_one_mailer_works_at_a_time(new_card: Callable[..., SaleCard]) -> None:
    reader = Reader(new_card())
    reader.give()
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [AdvisoryLock.MAILER])
            assert tell_all() == 0
            assert reader.last.status == STATUS.queued
            cursor.execute("SELECT pg_advisory_unlock(%s)", [AdvisoryLock.MAILER])
    finally:
        other.close()
    assert tell_all() == 1
    assert reader.last.status == STATUS.sent


@pytest.mark.parametrize("address", [
    "no address", "a@b", "a@example.com\nBcc: b@example.com", f"{'a' * 250}@example.com",
    '"<x>"@example.com', '"a,b"@example.com', "a@[127.0.0.1]",
])  # fmt: skip
def test_what_is_no_address_is_refused_and_changes_nothing(new_card: Callable[..., SaleCard], address: str) -> None:
    reader = Reader(new_card())
    answer = reader.give(address)
    assert (answer.status_code, "That is not an e-mail address" in answer.content.decode()) == (400, True)
    assert (Email.objects.count(), Contact.objects.count()) == (0, 0)


def test_a_shop_without_a_mail_server_takes_no_address_and_sends_nothing(
    new_card: Callable[..., SaleCard], settings: Any
) -> None:
    reader, waiting = Reader(new_card()), Reader(new_card())
    waiting.give()
    settings.MAIL_ON = False
    assert "/mail/" not in reader.text
    form = {"csrfmiddlewaretoken": reader.client.cookies["csrftoken"].value, "address": ADDRESS}
    assert reader.client.post(f"{reader.page}mail/", form).status_code == 400
    assert (reader.subjects, mails.find_address(reader.request_id), tell_all()) == ([], "", 0)
    assert waiting.last.status == STATUS.queued


def test_nobody_floods_a_mailbox_from_one_ticket(new_card: Callable[..., SaleCard]) -> None:
    reader = Reader(new_card())
    for number in range(mails.MAX_LINK_MAILS):
        assert reader.give(f"a{number}@example.com").status_code == 303
        reader.give("")
    refused = reader.give()
    assert refused.status_code == 429
    text = refused.content.decode()
    assert ("sent too often" in text, "Too many cards" in text) == (True, False)
    assert (Email.objects.count(), mails.find_address(reader.request_id)) == (0, "")


def test_only_the_buyer_gives_or_sees_an_address(new_card: Callable[..., SaleCard]) -> None:
    reader = Reader(new_card())
    reader.give()
    assert ADDRESS in reader.text
    (link,) = re.findall(r"http://testserver(/links/[^<\s]+)", reader.text)
    other = Client()
    other.get(link)
    shown = other.get(reader.page).content.decode()
    assert (ADDRESS in shown, "/mail/" in shown) == (False, False)
    assert other.post(f"{reader.page}mail/", {"address": "eve@example.com"}).status_code == 404
    assert mails.find_address(reader.request_id) == ADDRESS


@pytest.mark.parametrize("way", ["ticket", "link in the mail", "mail program"])
def test_an_address_is_deleted_with_its_mails(new_card: Callable[..., SaleCard], way: str) -> None:
    card = new_card()
    reader = Reader(card)
    reader.give()
    if way == "ticket":
        reader.give("")
    else:
        stop = urlsplit(reader.last.headers["List-Unsubscribe"].strip("<>")).path
        asking = Client(enforce_csrf_checks=True)
        assert asking.get(stop).status_code == 200
        assert mails.find_address(reader.request_id) == ADDRESS  # a program that follows links ends nothing
        body = {"List-Unsubscribe": "One-Click"} if way == "mail program" else {}
        assert asking.post(stop, body).status_code == 200
        assert asking.get(stop).status_code == 404
    assert (mails.find_address(reader.request_id), Email.objects.count()) == ("", 0)
    road.settle_line(card)
    tell_all()
    assert Email.objects.count() == 0
    assert OrderEvent.objects.filter(order=reader.order).exists()


def test_an_address_that_is_given_once_more_is_looked_at_as_often_as_the_first(
    new_card: Callable[..., SaleCard],
) -> None:
    """Addresses without news to come are looked at slowly: one that was deleted counted as one of these."""
    card = new_card()
    reader = Reader(card)
    reader.give()
    reader.give("")
    reader.give("new@example.com")
    road.settle_line(card)
    news, _ = mails.find_news(over=False, after=0, limit=10)
    assert news == [Contact.objects.get(request_id=reader.request_id).pk]


def test_a_stop_link_of_another_request_or_address_stops_nothing(new_card: Callable[..., SaleCard]) -> None:
    reader, other = Reader(new_card()), Reader(new_card())
    reader.give()
    other.give()
    stop = urlsplit(reader.last.headers["List-Unsubscribe"].strip("<>")).path
    assert Client().post(stop.replace(reader.request_id, other.request_id)).status_code == 404
    reader.give("")
    reader.give("new@example.com")
    assert Client().post(stop).status_code == 404
    assert Client().post(f"/mail/stop/{new_card().slug}/{'a' * 22}/").status_code == 404
    assert [mails.find_address(each.request_id) for each in (reader, other)] == ["new@example.com", ADDRESS]


def test_the_mailbox_of_a_demo_shows_the_mails_with_their_links(new_card: Callable[..., SaleCard]) -> None:
    reader = Reader(new_card())
    reader.give()
    text = Client().get("/mailbox/").content.decode()
    assert (LINK in text, ADDRESS in text, "/links/" in text) == (True, True, True)


def test_addresses_are_looked_at_a_page_at_a_time_and_none_is_forgotten(new_card: Callable[..., SaleCard]) -> None:
    card = new_card(units=5)
    readers = [Reader(card) for _ in range(5)]
    for reader in readers:
        reader.give()
    road.settle_line(card)
    found, after = [], 0
    for _ in range(4):
        news, after = mails.find_news(over=False, after=after, limit=2)
        found += news
    assert len(set(found)) == 5
    assert after in Contact.objects.values_list("id", flat=True)  # it began at the front again


def test_ten_thousand_addresses_without_news_cost_a_look_little(new_card: Callable[..., SaleCard]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO shop_contact (request_id, address, language, root, told_event, is_warned, is_over, link_mails)"
            " SELECT '2a-' || to_char(n, 'FM0000000000000000000000'), %s, '', '', 0, false, false, 0"
            " FROM generate_series(1, 10000) n",
            [ADDRESS],
        )
        cursor.execute("ANALYZE shop_contact")
    looks: list[list[int]] = []
    assert_waits_at_most(
        0.5, lambda: seconds_of(lambda: looks.append(mails.find_news(over=False, after=0, limit=2000)[0]))
    )
    assert looks[-1] == []
