"""Each mail that is handed to the server is counted once by what came of it, each try by itself; what is not due, not
at all. The server is a real one that refuses an address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone
from post_office import mail
from post_office.models import STATUS, Email

from shop.models import Contact, Order
from shop.orders import mails
from shop.payments import refunds
from tests.support import road
from tests.support.servers.mail_server import MailServer, mail_server
from tests.support.shopkeeping import make_sale, pay
from workers import mailer
from workers.mailer import MAILS, Mailer

pytestmark = pytest.mark.usefixtures("shop_database")
ADA, EVE = "ada@example.com", "eve@example.com"
SMTP = "django.core.mail.backends.smtp.EmailBackend"


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    """Let mails of this process go to a server of the test, without those of another test, and without its news."""
    Contact.objects.all().delete()
    Email.objects.all().delete()
    with mail_server() as server:
        settings.EMAIL_BACKEND = SMTP
        settings.POST_OFFICE = {**settings.POST_OFFICE, "BACKENDS": {"default": SMTP}}
        settings.EMAIL_HOST, settings.EMAIL_PORT = server.server_address
        yield server
    Contact.objects.all().delete()
    Email.objects.all().delete()


def put(address: str, **more: Any) -> Email:
    """Queue a mail."""
    return mail.send([address], "shop@example.com", subject="Your ticket", message="It is yours", **more)


def rise() -> dict[str, int]:
    """Let a mailer look once; return by how much each outcome rose, without those that did not."""
    before = dict(MAILS.counts)
    Mailer().work_once()
    return {outcome: count - before[outcome] for outcome, count in MAILS.counts.items() if count != before[outcome]}


def let_be_due() -> None:
    Email.objects.filter(status=STATUS.requeued).update(scheduled_time=None)


def test_each_try_of_a_mail_is_counted_once_by_what_came_of_it(server: MailServer) -> None:
    server.refused = {EVE}
    put(ADA)
    refused = put(EVE)
    assert rise() == {"sent": 1, "put_off": 1}
    assert rise() == {}  # the control: one is sent, and the other one has its time
    let_be_due()
    assert rise() == {"put_off": 1}
    server.refused = set()
    let_be_due()
    assert rise() == {"sent": 1}
    refused.refresh_from_db()
    assert (refused.status, refused.number_of_retries) == (STATUS.sent, 2)
    assert [each["To"] for each in server.taken] == [ADA, EVE]
    assert rise() == {}


def test_of_the_tries_of_a_mail_the_last_alone_is_kept(server: MailServer) -> None:
    """A server that is away for a day leaves no row for each of its tries. The control is a mail that is not due."""
    server.refused = {ADA, EVE}
    first, other = put(EVE), put(ADA)
    rise()
    (told,) = other.logs.all()
    for _ in range(3):
        (before,) = first.logs.all()
        Email.objects.filter(pk=first.pk).update(scheduled_time=None)
        assert rise() == {"put_off": 1}
        (after,) = first.logs.all()
        assert (after.pk > before.pk, after.exception_type) == (True, before.exception_type)
    assert list(other.logs.all()) == [told]
    server.refused = set()
    let_be_due()
    assert (rise(), first.logs.exists(), other.logs.exists()) == ({"sent": 2}, False, False)


def test_a_mail_refused_for_the_last_time_has_failed_and_is_not_tried_again(server: MailServer, settings: Any) -> None:
    settings.POST_OFFICE = {**settings.POST_OFFICE, "MAX_RETRIES": 1}
    server.refused = {EVE}
    put(EVE)
    counted = []
    for _ in range(3):
        let_be_due()
        counted.append(rise())
    assert counted == [{"put_off": 1}, {"failed": 1}, {}]


def test_a_receipt_that_waits_is_not_sent_after_the_news_of_the_refund(
    server: MailServer, new_sku: Callable[[], str]
) -> None:
    """The mail server was away when both had paid. The control is Eve, whose money does not go back."""
    card = make_sale(new_sku(), units=2)
    names = road.queue(card, "ada-0000000000000000000", "eve-0000000000000000000")
    road.settle_line(card)
    for name, address in zip(names, (ADA, EVE), strict=True):
        mails.keep_address(name, address, language="en", root="https://drops.shop.example")
    assert rise() == {"sent": 2}
    pay(*names)
    server.refused = {ADA, EVE}
    assert rise() == {"put_off": 2}
    refunds.refund_order(names[0], actor="anna", reason="broken")
    assert rise() == {"put_off": 1}
    server.refused = set()
    let_be_due()
    assert rise() == {"sent": 2}
    let_be_due()
    assert rise() == {}
    sent = sorted((each["To"], each["Subject"]) for each in server.taken)
    link = "The link of your ticket"
    assert sent == [(ADA, link), (ADA, "Your money goes back"), (EVE, "Paid: your receipt"), (EVE, link)]


def test_the_warning_of_a_hold_goes_out_in_time_from_a_machine_whose_clock_is_slow(
    server: MailServer, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = make_sale(new_sku(), units=1, hold_seconds=3600)
    (name,) = road.queue(card, "ada-0000000000000000000")
    road.settle_line(card)
    mails.keep_address(name, ADA, language="en", root="https://drops.shop.example")
    left = timedelta(minutes=9, seconds=50)
    Order.objects.filter(request_id=name).update(decided_at=Now() - timedelta(minutes=50), hold_expires_at=Now() + left)
    slow = timezone.now() - timedelta(minutes=5)
    monkeypatch.setattr(timezone, "now", lambda: slow)
    assert mails.queue_news(Contact.objects.get(request_id=name).pk) == 1
    assert Email.objects.filter(subject="Ten minutes left to pay").exists()


def test_what_is_too_late_or_too_early_is_not_counted(server: MailServer) -> None:
    now, hour = timezone.now(), timedelta(hours=1)
    put(ADA, expires_at=now - hour)
    put(ADA, scheduled_time=now + hour)
    assert rise() == {}
    put(ADA, expires_at=now + hour)
    assert rise() == {"sent": 1}
    assert len(server.taken) == 1


def test_control_who_counts_what_was_queued_counts_otherwise(
    server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailer.mail, "send_queued", lambda: (Email.objects.count(), 0, 0))
    server.refused = {EVE}
    put(ADA)
    put(EVE)
    assert [rise(), rise()] == [{"sent": 2}] * 2
