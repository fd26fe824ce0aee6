"""Measures settlement, expiry, payment and the audit. Needs Django to be set up."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from django.db import connection

from inventory.audit.run import Scope
from loadtest.bench.gate.settlement import BATCH, Emptied, measure_settlement
from loadtest.bench.harness import limits, machine
from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, Measured, repeat_disturbed, say
from loadtest.bench.harness.fixtures import Fixture, faults_of, fill_books, make_fixture
from loadtest.bench.harness.report import quantile
from loadtest.bench.settle import expiry as expiry_alone
from loadtest.bench.settle.payments import PaymentWaits, measure_payments
from loadtest.bench.settle.plan import FULL, METHOD, QUICK, Plan
from loadtest.bench.settle.report import Results, figures_of, picture_of, samples_of


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Measure everything, one after the other. Raises LoadFailed, ServerFailed."""
    plan = run.plan
    limits.make_raw_tables()
    # First: what the others leave behind is written to the disk and vacuumed for a while, and waits show that.
    waits, paid = _pay(run)
    settlement, settled = _settle(plan)
    expiries, expired = _expire(plan)
    audits, counts, audit_faults = _audit(plan)
    rounds: list[Measured] = [*settlement[BATCH], *settlement[1], *expiries]
    results = Results(
        settled=[each.per_second for each in settlement[BATCH]],
        single=[each.per_second for each in settlement[1]],
        copied=[each.limit for each in settlement[BATCH]],
        expiry=[each.seconds for each in expiries],
        plain_expiry=[each.plain_seconds for each in expiries],
        payments=waits,
        audits=audits,
        counts=counts,
        stolen=max(each.stolen for each in rounds),
    )
    return Findings(
        figures=figures_of(results, holds=plan.expired, orders=plan.audited),
        facts={"Flood alongside the payments": {"asks answered 202:": f"{waits.asked_per_second:,.0f} a second"}},
        samples=samples_of(results),
        faults=[*waits.faults, *audit_faults, *faults_of(settled), *faults_of(expired), *faults_of(paid)],
        picture=picture_of(results),
    )


def _settle(plan: Plan) -> tuple[dict[int, list[Emptied]], Scope]:
    say("Settlement with holds, history and movements")
    fixture = make_fixture("bench-settlement")
    copy = partial(limits.copied_per_second, fixture.sale_id, newest=plan.settled)
    settlement = measure_settlement(
        fixture, rounds=plan.settle_rounds, batched=plan.settled, single=plan.single, after_batches=copy
    )
    return settlement, fixture.scope


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """How long an expirer took for holds that were due, and plain statements for the same rows."""

    seconds: float
    plain_seconds: float
    stolen: float


def _expire(plan: Plan) -> tuple[list[Expiry], Scope]:
    say(f"Expiry of {plan.expired:,} due holds")
    fixture = make_fixture("bench-expiry", hold_seconds=expiry_alone.HOLD_SECONDS)
    once = partial(_expire_once, fixture, holds=plan.expired)
    return [repeat_disturbed(once) for _ in range(plan.expiry_rounds)], fixture.scope


def _expire_once(fixture: Fixture, *, holds: int) -> Expiry:
    expiry_alone.make_due(fixture, holds=holds)
    stolen = machine.Stolen()
    plain = limits.expiry_seconds(fixture.sale_id, newest=holds)
    seconds = expiry_alone.expiry_seconds(fixture, holds=holds)
    return Expiry(seconds=seconds, plain_seconds=plain, stolen=stolen.share())


def _pay(run: BenchmarkRun[Plan]) -> tuple[PaymentWaits, Scope]:
    say(f"Payment, {run.plan.payments_per_second} a second alongside {run.plan.flood_per_second:,} asks a second")
    fixture = make_fixture("bench-payment")
    waits = measure_payments(fixture, run)
    for name, values in (("confirmed", waits.confirm_ms), ("one row", waits.commit_ms), ("a call", waits.call_ms)):
        say(f"  {name:<10} p50 {quantile(values, 0.5):>6.1f} ms   p99 {quantile(values, 0.99):>6.1f} ms")
    return waits, fixture.scope


def _audit(plan: Plan) -> tuple[list[float], list[float], list[str]]:
    say(f"Audit of a sale with {plan.audited:,} orders")
    scope = fill_books("bench-audit", orders=plan.audited).scope
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # as autovacuum does within a minute of so many new rows
    audits, counts, faults = [], [], []
    for _ in range(plan.audit_rounds):
        began = time.monotonic()
        broken = faults_of(scope)
        audits.append(time.monotonic() - began)
        faults += [fault for fault in broken if fault not in faults]
        counts.append(limits.count_seconds(scope))
        say(f"  {audits[-1]:.2f} s   rows counted {counts[-1]:.2f} s")
    return audits, counts, faults


BENCHMARK = Benchmark(
    title="Settlement, expiry, payment, audit: measured",
    packages=("django", "redis", "hiredis", "psycopg", "uvicorn", "httptools", "uvloop"),
    full=FULL,
    quick=QUICK,
    method=METHOD,
    measure=measure,
    picture="Bars of each measurement alongside its limit",
)
