"""Puts the results of a run together: figures, facts, samples, chart. Decides nothing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from loadtest.bench.harness import machine
from loadtest.bench.harness.chart import Panel, chart
from loadtest.bench.harness.command import CHECKOUT
from loadtest.bench.harness.method import filled
from loadtest.bench.harness.report import Report
from loadtest.bench.settle.bounds import audit_figures, expiry_figures, payment_figures, quantile, settlement_figures
from loadtest.bench.settle.plan import METHOD, Plan
from loadtest.bench.settle.run import Results

PACKAGES = ("django", "redis", "hiredis", "psycopg", "uvicorn", "httptools", "uvloop")
OURS = "Fairdrop"


def report_of(results: Results, *, plan: Plan, hardware: Mapping[str, str], quick: bool, picture: str) -> Report:
    """Return the whole report. hardware: as it was before the run; picture: the chart's file name."""
    waits = results.payments
    return Report(
        title="Settlement, expiry, payment, audit: measured",
        command="make bench-settle",
        date=machine.now(),
        revision=machine.revision(CHECKOUT),
        quick=quick,
        figures=[
            *settlement_figures(results.settled, results.single, results.copied),
            *expiry_figures(results.expiry, results.plain_expiry, holds=plan.expired),
            *payment_figures(confirm_ms=waits.confirm_ms, commit_ms=waits.commit_ms, call_ms=waits.call_ms),
            *audit_figures(results.audits, results.counts, orders=plan.audited),
        ],
        facts={
            **machine.facts(hardware, packages=PACKAGES),
            "Flood alongside the payments": {"asks answered 202:": f"{waits.asked_per_second:,.0f} a second"},
        },
        method=filled(METHOD, plan),
        samples=samples_of(results),
        faults=results.faults,
        picture=(picture, "Bars of each measurement alongside its limit"),
    )


def samples_of(results: Results) -> list[dict[str, Any]]:
    """Return every round; of the payments, what shares of them did not pass."""
    measured = {
        "settlement, batch 500, orders/s": results.settled,
        "settlement, batch 1, orders/s": results.single,
        "the same rows copied, orders/s": results.copied,
        "expiry, s": results.expiry,
        "plain statements, s": results.plain_expiry,
        "audit, s": results.audits,
        "rows counted, s": results.counts,
    }
    waits = results.payments
    measured |= {
        f"{name}, ms, p50 · p90 · p99 · p99.9 · max": [quantile(values, share) for share in (0.5, 0.9, 0.99, 0.999, 1)]
        for name, values in (
            ("payment confirmed", waits.confirm_ms),
            ("one row written", waits.commit_ms),
            ("a call without a store", waits.call_ms),
        )
    }
    return [{"measurement": name, "rounds": [round(value, 3) for value in found]} for name, found in measured.items()]


def picture_of(results: Results) -> str:
    """Return the chart: each measurement and its limit."""
    waits = results.payments
    middle = statistics.median
    panels = {
        "Settlement, orders a second (longer is better)": {
            OURS: middle(results.settled),
            "the same rows copied": middle(results.copied),
        },
        "Expiry of all due holds, s (shorter is better)": {
            OURS: middle(results.expiry),
            "plain statements": middle(results.plain_expiry),
        },
        "Payment confirmed alongside a flood, p99 in ms (shorter is better)": {
            OURS: quantile(waits.confirm_ms, 0.99),
            "one row written": quantile(waits.commit_ms, 0.99),
            "a call without a store": quantile(waits.call_ms, 0.99),
        },
        "Audit, s (shorter is better)": {OURS: middle(results.audits), "its rows counted": middle(results.counts)},
    }
    drawn = [
        Panel(title=title, values=values, ours=(OURS,), limits=[side for side in values if side != OURS])
        for title, values in panels.items()
    ]
    return chart(drawn, description="Each measurement alongside its limit; the same numbers stand in the table")
