"""Lets a test pay, decline and hear from the sandbox, in this process or through a real hosted page.
Never sends a notice by itself: a test that wants one asks for it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from django.test.utils import override_settings

from shop.models import Order, Payment
from shop.payments import notices
from shop.payments.providers import Charge, Kind, Notice
from shop.sales.catalogue import SaleCard
from shop.sandbox import accounts
from shop.sandbox.models import Charge as SandboxCharge
from shop.sandbox.models import Event
from shop.sandbox.provider import Sandbox
from tests.support import road
from tests.support.http_calls import Answer, Caller
from tests.support.shopkeeping import fill_line
from workers.embedded.child_process import ChildProcess

ROOT = Path(__file__).resolve().parents[2]
# Nobody listens there, and the refusal comes at once.
NOWHERE = "http://127.0.0.1:9/notices"


def hold(card: SaleCard, *, buyers: int, named: str = "buyer") -> list[str]:
    """Let buyers ask and be settled; return their request ids in the order of the line."""
    names = fill_line(card, buyers=buyers, named=named)
    road.settle_line(card)
    return names


def begin(name: str) -> Payment:
    """Begin to pay a hold; the sandbox knows the charge."""
    payment = notices.begin(Order.objects.get(request_id=name), provider_name="sandbox")
    Sandbox().begin(charge_of(payment))
    return payment


def charge_of(payment: Payment) -> Charge:
    """Return what the sandbox is asked to collect for a payment; its notices go nowhere."""
    ends = payment.order.hold_expires_at
    return Charge(payment.reference, payment.amount, payment.currency, "Paper kite", "/", NOWHERE, ends)


def happen(payment: Payment, kind: Kind) -> Notice:
    """Let something happen to a charge at the sandbox; return what it has to say of it."""
    event, _ = accounts.record(payment.reference, kind, told_after_seconds=None)
    return accounts.notice_of(event)


def captured(names: Sequence[str]) -> list[Notice]:
    """Return, for each hold, the notice of a captured payment that the shop has not heard of; many in four writes."""
    orders = Order.objects.in_bulk(names, field_name="request_id")
    begun = Payment.objects.bulk_create(
        Payment(
            order=orders[name],
            provider="sandbox",
            reference=uuid4().hex,
            amount=orders[name].unit_price * orders[name].quantity,
            currency=orders[name].currency,
        )
        for name in names
    )
    charges = SandboxCharge.objects.bulk_create(
        SandboxCharge(**asdict(charge_of(payment)), state="captured") for payment in begun
    )
    events = Event.objects.bulk_create(Event(charge=charge, kind="captured") for charge in charges)
    return [accounts.notice_of(event) for event in events]


@contextmanager
def quiet_sandbox(*mischief: str) -> Iterator[None]:
    """Let no thread of this process send a notice, and leave none behind for another test's worker."""
    with override_settings(SANDBOX_MISCHIEF=["mute", *mischief]):
        yield
    Event.objects.filter(charge__notice_url=NOWHERE).update(due_at=None)


def hear(notice: Notice) -> str:
    """Bring a notice into the books, as the webhook does."""
    return notices.take_notice(notice, provider_name="sandbox")


def again(notice: Notice, *, amount: Decimal | None = None, kind: Kind | None = None) -> Notice:
    """Return a notice of another event about the same charge."""
    return replace(notice, event_id=f"evt_{token_hex(8)}", amount=amount or notice.amount, kind=kind or notice.kind)


def state_of(name: str) -> str:
    """Return the state of the order of a request."""
    return Order.objects.values_list("state", flat=True).get(request_id=name)


def payment_state(payment: Payment) -> str:
    """Return the state of a payment as the shop's books have it now."""
    return Payment.objects.values_list("state", flat=True).get(pk=payment.pk)


def charge_state(payment: Payment) -> str:
    """Return the state of a payment's charge as the sandbox has it."""
    return SandboxCharge.objects.values_list("state", flat=True).get(reference=payment.reference)


def choose(web: Caller, url: str, choice: str) -> Answer:
    """Load a hosted page as a browser does and press one of its buttons."""
    path = urlsplit(url).path
    page = web.get(path)
    assert page.status == 200, page.body
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.body.decode())
    assert token
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Cookie": page.headers["set-cookie"].partition(";")[0],
        "Origin": f"http://127.0.0.1:{web.port}",
    }
    return web.call("POST", path, body=urlencode({"csrfmiddlewaretoken": token[1], "choice": choice}), headers=headers)


@contextmanager
def sandbox_sender(environment: Mapping[str, str], *, folder: Path) -> Iterator[ChildProcess]:
    """Run the worker that sends notices."""
    child = ChildProcess(
        name="sandbox",
        arguments=[sys.executable, "manage.py", "run_worker", "sandbox"],
        environment=environment,
        folder=ROOT,
        log_path=folder / "sandbox.log",
        stop_timeout_seconds=5,
    )
    try:
        yield child.start()
    finally:
        child.stop()
