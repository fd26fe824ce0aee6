"""Runs every measurement of settlement, expiry, payment and the audit. Never judges what it finds, never writes a file.
Needs Django to be set up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inventory.audit.run import Scope, audit
from loadtest.bench.gate.settlement import BATCH, measure_settlement
from loadtest.bench.harness.books import fill_books
from loadtest.bench.harness.fixtures import make_goods
from loadtest.bench.harness.servers import Workspace
from loadtest.bench.settle import expiry as expiry_alone
from loadtest.bench.settle import raw_rows
from loadtest.bench.settle.audit import analyse, audit_seconds, count_seconds
from loadtest.bench.settle.bounds import quantile
from loadtest.bench.settle.payments import PaymentWaits, measure_payments
from loadtest.bench.settle.plan import Plan

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything measured, each round. settled, single, copied in orders/s; all other numbers in seconds."""

    settled: list[float]
    single: list[float]
    copied: list[float]
    expiry: list[float]
    plain_expiry: list[float]
    payments: PaymentWaits
    audits: list[float]
    counts: list[float]
    faults: list[str]


def measure_all(plan: Plan, *, place: Workspace, say: Say) -> Results:
    """Measure everything, one after the other. Raises LoadFailed, ServerFailed."""
    raw_rows.make_raw_tables()
    # First: what the others leave behind is written to the disk and vacuumed for a while, and waits show that.
    payments, paid_scope = _pay(plan, place=place, say=say)
    rates, copied, settled_scope = _settle(plan, say=say)
    expiry, plain, expired_scope = _expire(plan, say=say)
    audits, counts, audit_faults = _audit(plan, say=say)
    scopes = (settled_scope, expired_scope, paid_scope)
    return Results(
        settled=rates[BATCH],
        single=rates[1],
        copied=copied,
        expiry=expiry,
        plain_expiry=plain,
        payments=payments,
        audits=audits,
        counts=counts,
        faults=[*payments.faults, *audit_faults, *[fault for scope in scopes for fault in faults_of(scope)]],
    )


def faults_of(scope: Scope) -> list[str]:
    """Return a sentence for each invariant of a sale that is broken."""
    found = audit(scope)["invariants"]
    return [f"{scope.sku}: {each['id']} {each['name']}: {each['detail']}" for each in found if not each["ok"]]


def _settle(plan: Plan, *, say: Say) -> tuple[dict[int, list[float]], list[float], Scope]:
    say("Settlement with holds, history and movements")
    goods, copied = make_goods("bench-settlement"), []

    def report(text: str) -> None:
        say(f"  {text}")
        if text.startswith(f"batch {BATCH}"):
            copied.append(raw_rows.copied_per_second(goods.sale_id, newest=plan.settled))
            say(f"  copied   : {copied[-1]:>8,.0f} orders/s")

    settlement = measure_settlement(
        goods, rounds=plan.settle_rounds, batched=plan.settled, single=plan.single, report=report
    )
    return settlement.rates, copied, goods.scope


def _expire(plan: Plan, *, say: Say) -> tuple[list[float], list[float], Scope]:
    say(f"Expiry of {plan.expired:,} due holds")
    goods = make_goods("bench-expiry", hold_seconds=expiry_alone.HOLD_SECONDS)
    expiry, plain = [], []
    for _ in range(plan.expiry_rounds):
        expiry_alone.make_due(goods, holds=plan.expired)
        plain.append(raw_rows.expiry_seconds(goods.sale_id, newest=plan.expired))
        expiry.append(expiry_alone.expiry_seconds(goods, holds=plan.expired))
        say(f"  {expiry[-1]:.2f} s   plain statements {plain[-1]:.2f} s")
    return expiry, plain, goods.scope


def _pay(plan: Plan, *, place: Workspace, say: Say) -> tuple[PaymentWaits, Scope]:
    say(f"Payment, {plan.payments_per_second} a second alongside {plan.flood_per_second:,} asks a second")
    goods = make_goods("bench-payment")
    waits = measure_payments(goods, plan=plan, place=place)
    for name, values in (("confirmed", waits.confirm_ms), ("one row", waits.commit_ms), ("a call", waits.call_ms)):
        say(f"  {name:<10} p50 {quantile(values, 0.5):>6.1f} ms   p99 {quantile(values, 0.99):>6.1f} ms")
    return waits, goods.scope


def _audit(plan: Plan, *, say: Say) -> tuple[list[float], list[float], list[str]]:
    say(f"Audit of a sale with {plan.audited:,} orders")
    books = fill_books("bench-audit", orders=plan.audited)
    analyse()
    audits, counts, faults = [], [], []
    for _ in range(plan.audit_rounds):
        seconds, broken = audit_seconds(books)
        audits.append(seconds)
        counts.append(count_seconds(books))
        faults += [fault for fault in broken if fault not in faults]
        say(f"  {audits[-1]:.2f} s   rows counted {counts[-1]:.2f} s")
    return audits, counts, faults
