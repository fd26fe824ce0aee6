"""A provider's notice over HTTP: believed only with its signature, and taken as often as it is sent.
On a real web process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest
from django.conf import settings

from inventory.states import State
from shop.models import OrderEvent, Payment, PaymentNotice
from shop.payments.providers import Notice
from shop.sales.catalogue import SaleCard
from shop.sandbox import signing
from shop.sandbox.models import Charge, Event
from tests.races.crowd import at_once
from tests.support.desk import Desk
from tests.support.desk import open_desk as open_a_desk
from tests.support.http_calls import JSON, Answer, Caller, until_answered
from tests.support.paying import again
from tests.support.shopkeeping import assert_books_balance
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
NOTICES = "/api/v1/payments/sandbox/notices"


@pytest.fixture
def open_desk(web: Caller, shown_sale: Callable[..., SaleCard]) -> Callable[..., Desk]:
    """Return a function that makes a sale with buyers who asked in it."""
    return partial(open_a_desk, web, shown_sale)


def send(web: Caller, notice: Notice, *, moment: int | None = None, secret: str = "", body: bytes = b"") -> Answer:
    """POST a notice as the sandbox does, signed with its secret unless another is named."""
    text = body or signing.write_notice(notice)
    header = signing.sign(signing.write_notice(notice), secret=secret or settings.SANDBOX_SECRET, moment=moment)
    return web.call("POST", NOTICES, body=text, headers={**JSON, signing.HEADER: header})


@pytest.fixture
def due(open_desk: Callable[..., Desk]) -> tuple[Desk, Notice]:
    """A hold whose payment was begun, and the notice that would pay it."""
    desk = open_desk()
    desk.call("payment", body={"page": True})
    payment = Payment.objects.get(order__request_id=desk.ids[0])
    return desk, Notice(f"evt-{payment.reference}", "captured", payment.reference, payment.amount, payment.currency)


def test_a_signed_notice_pays_and_its_repeat_is_200(due: tuple[Desk, Notice]) -> None:
    desk, notice = due
    answers = [send(desk.web, notice), send(desk.web, notice), send(desk.web, again(notice))]
    assert [answer.status for answer in answers] == [200] * 3
    assert [answer.json()["result"] for answer in answers] == ["paid", "paid", "nothing to change"]
    assert desk.status()["state"] == "paid"
    assert PaymentNotice.objects.filter(reference=notice.reference).count() == 2


def test_the_same_notice_eight_times_at_once_sells_once(due: tuple[Desk, Notice]) -> None:
    desk, notice = due
    answers = at_once(lambda _: [*until_answered(lambda: send(desk.web, notice))][-1], 8)
    assert {answer.status for answer in answers} == {200}
    assert {answer.json()["result"] for answer in answers} <= {"paid", "nothing to change"}
    assert OrderEvent.objects.filter(order__request_id=desk.ids[0], to_state="paid").count() == 1
    assert_books_balance(desk.card)


def test_a_bad_or_old_signature_is_400_and_changes_nothing(due: tuple[Desk, Notice]) -> None:
    desk, notice = due
    now = int(time.time())
    other = signing.write_notice(again(notice))
    wrong = [
        send(desk.web, notice, secret="not the sandbox's"),
        send(desk.web, notice, moment=now - signing.TOLERANCE_SECONDS - 60),
        send(desk.web, notice, moment=now + signing.TOLERANCE_SECONDS + 60),
        send(desk.web, notice, body=other),
        desk.web.call("POST", NOTICES, body=signing.write_notice(notice), headers=JSON),
        desk.web.call("POST", NOTICES, body=b"", headers={signing.HEADER: "t=1,v1=" + "0" * 64}),
    ]
    assert {(answer.status, answer.json()["code"]) for answer in wrong} == {(400, "invalid_request")}
    assert desk.status()["state"] == "held"
    assert not PaymentNotice.objects.filter(reference=notice.reference).exists()
    assert send(desk.web, notice).status == 200


def test_notices_for_nobody(due: tuple[Desk, Notice]) -> None:
    desk, notice = due
    unknown = Notice("evt-unknown", "captured", "0" * 32, notice.amount, notice.currency)
    assert send(desk.web, unknown).json()["code"] == "request_not_found"
    large = desk.web.call("POST", NOTICES, body=b"x" * 17_000)
    assert (large.status, large.json()["code"]) == (413, "too_large")
    nobody = desk.web.call("POST", "/api/v1/payments/nobody/notices", body=b"{}")
    assert (nobody.status, nobody.json()["code"]) == (400, "invalid_request")


def test_a_wrong_amount_is_given_back_by_the_provider(due: tuple[Desk, Notice]) -> None:
    desk, notice = due
    charge = Charge.objects.get(reference=notice.reference)
    charge.state = Charge.State.CAPTURED
    charge.save()
    assert send(desk.web, again(notice, amount=notice.amount - 1)).json()["result"] == "refund_due"
    charge.refresh_from_db()
    assert charge.state == Charge.State.REFUNDED
    assert desk.status()["state"] == State.HELD
    told = Event.objects.filter(charge=charge, kind="refunded", delivered_at__isnull=False)
    wait_until(told.exists, what="the refund's own notice was taken")
