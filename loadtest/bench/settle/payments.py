"""Measures how long a provider waits for the answer to its notice while a crowd floods the same SKU.
Never counts an answer that is not 200, and holds the books against what was answered.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from uuid import uuid4

from django.conf import settings
from django.db import transaction

from inventory.redis import connect
from loadtest.bench.gate.end_to_end import wait_until_decided
from loadtest.bench.gate.settlement import BATCH, empty_line, fill_line, warm_settler
from loadtest.bench.harness.benchmark import BenchmarkRun
from loadtest.bench.harness.fixtures import Fixture
from loadtest.bench.harness.limits import commit_waits_ms
from loadtest.bench.harness.machine import one_row
from loadtest.bench.harness.report import KEPT
from loadtest.bench.harness.servers import running_shop
from loadtest.bench.load.loader import Load, LoadWindow, ask_evenly
from loadtest.bench.load.payloads import fresh_payloads, get, post
from loadtest.bench.settle.plan import Plan
from shop.models import Order, Payment
from shop.payments.providers import Notice
from shop.sandbox import signing

SPARE = 1.1
FLOOD_CONNECTIONS = 128
START_SECONDS = 3.0
PAID = "200"


@dataclass(frozen=True, kw_only=True)
class PaymentWaits:
    """Waits in ms alongside the flood. faults: what the books say otherwise than the answers."""

    confirm_ms: list[float] = field(repr=False)
    commit_ms: list[float] = field(repr=False)
    call_ms: list[float] = field(repr=False)
    asked_per_second: float
    faults: list[str]


def measure_payments(fixture: Fixture, run: BenchmarkRun[Plan]) -> PaymentWaits:
    """Hold units, begin their payments, flood the SKU, and send the notices at an even pace. Raises LoadFailed."""
    plan, slug = run.plan, fixture.slug
    paces = plan.payment.whole_seconds * 3 + START_SECONDS
    payments = begin_payments(fixture, count=_calls(plan))
    with (
        running_shop(slug, place=run.place, stores=run.stores.pairs[0]) as shop,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
    ):
        web = shop.web
        send = partial(ask_evenly, web.port, per_second=plan.payments_per_second, window=plan.payment)
        asks = fresh_payloads(slug, port=web.port, count=int(plan.flood_per_second * paces * SPARE))
        crowd_window = LoadWindow(seconds=paces, connections=FLOOD_CONNECTIONS)
        crowd = pool.submit(ask_evenly, web.port, asks, per_second=plan.flood_per_second, window=crowd_window)
        confirm = send(notices_of(payments, port=web.port))
        commit_ms = commit_waits_ms(per_second=plan.payments_per_second, seconds=plan.payment.seconds)
        call = send([get("/healthz", port=web.port)] * _calls(plan))
        asked = crowd.result()
        asked.must_be("202", of="to the flood, the shop")
        wait_until_decided(fixture.sku)
    return PaymentWaits(
        confirm_ms=confirm.waits_ms,
        commit_ms=commit_ms,
        call_ms=call.waits_ms,
        asked_per_second=asked.per_second,
        faults=_faults(fixture, plan=plan, confirm=confirm, call=call, asked=asked),
    )


def _calls(plan: Plan) -> int:
    return int(plan.payments_per_second * plan.payment.whole_seconds * SPARE) + 50


def begin_payments(fixture: Fixture, *, count: int) -> list[Payment]:
    """Let the settler hold a unit for each of `count` buyers who then begin to pay; return their payments."""
    client = connect()
    with warm_settler(client, fixture, batch=BATCH, warm_up=0) as settler:
        fill_line(client, fixture, count=count)
        empty_line(settler, count=count)
    with transaction.atomic():
        orders = Order.objects.filter(sale_id=fixture.sale_id, state="held")[:count]
        return Payment.objects.bulk_create(
            Payment(
                order=order,
                provider="sandbox",
                reference=uuid4().hex,
                amount=order.unit_price * order.quantity,
                currency=order.currency,
            )
            for order in orders
        )


def notices_of(payments: list[Payment], *, port: int) -> list[bytes]:
    """Return the signed HTTP request that tells of each payment."""
    requests = []
    for payment in payments:
        notice = Notice(uuid4().hex, "captured", payment.reference, payment.amount, payment.currency)
        body = signing.write_notice(notice)
        headers = f"{signing.HEADER}: {signing.sign(body, secret=settings.SANDBOX_SECRET)}\r\n"
        requests.append(post("/api/v1/payments/sandbox/notices", port=port, body=body, headers=headers))
    return requests


def _faults(fixture: Fixture, *, plan: Plan, confirm: Load, call: Load, asked: Load) -> list[str]:
    faults = [
        f"{what} were answered {dict(load.statuses)}"
        for what, load in (("notices", confirm), ("calls", call))
        if set(load.statuses) != {PAID}
    ]
    if confirm.per_second < plan.payments_per_second * KEPT:
        faults.append(f"{confirm.per_second:.0f} payments a second, {plan.payments_per_second} were meant")
    if asked.per_second < plan.flood_per_second * KEPT:
        faults.append(f"{asked.per_second:.0f} asks a second alongside them, {plan.flood_per_second} were meant")
    (paid,) = one_row("SELECT count(*) FROM shop_order WHERE sale_id = %s AND state = 'paid'", fixture.sale_id)
    if paid != confirm.statuses[PAID]:
        faults.append(f"{confirm.statuses[PAID]} notices were taken, {paid} orders are paid")
    return faults
