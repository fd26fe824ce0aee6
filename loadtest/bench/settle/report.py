"""What the shop promises of settlement, expiry, payment and the audit: every figure with its floor, samples, chart.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from loadtest.bench.harness.charts import bars
from loadtest.bench.harness.report import Figure, quantile, ratio
from loadtest.bench.settle.payments import PaymentWaits

OURS = "Fairdrop"


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything measured, each round. settled, single, copied in orders/s; all other numbers in seconds.

    stolen: share of the machine that its host took in the most disturbed round of settlement and expiry.
    """

    settled: list[float]
    single: list[float]
    copied: list[float]
    expiry: list[float]
    plain_expiry: list[float]
    payments: PaymentWaits
    audits: list[float]
    counts: list[float]
    stolen: float


def figures_of(results: Results, *, holds: int, orders: int) -> list[Figure]:
    """Return every figure with its floor. holds: that were due at once; orders: of the sale that was audited."""
    waits = results.payments
    return [
        *settlement_figures(results.settled, results.single, results.copied),
        *expiry_figures(results.expiry, results.plain_expiry, holds=holds),
        *payment_figures(confirm_ms=waits.confirm_ms, commit_ms=waits.commit_ms, call_ms=waits.call_ms),
        *audit_figures(results.audits, results.counts, orders=orders),
        Figure("settlement, expiry: share of the machine its host took, worst round", value=results.stolen),
    ]


def settlement_figures(batched: Sequence[float], single: Sequence[float], raw: Sequence[float]) -> list[Figure]:
    """Return the figures of settlement, in orders a second. raw: the same rows copied."""
    middle, limit = median(batched), median(raw)
    return [
        Figure("settlement, batch 500", value=middle, unit="orders/s", at_least=8_000, limit=limit),
        Figure("settlement, batch 1", value=median(single), unit="orders/s"),
        Figure("the same rows copied, 500 a transaction", value=limit, unit="orders/s"),
        Figure("settlement ÷ the same rows copied", value=ratio(middle, limit), at_least=0.75),
    ]


def expiry_figures(seconds: Sequence[float], raw: Sequence[float], *, holds: int) -> list[Figure]:
    """Return the figures of expiry, in seconds for `holds` due holds. raw: the same rows by plain statements."""
    middle, limit = median(seconds), median(raw)
    return [
        Figure(f"expiry of {holds:,} due holds", value=middle, unit="s", at_most=3.0, limit=limit),
        Figure("the same rows by plain statements", value=limit, unit="s"),
        Figure("expiry ÷ plain statements", value=ratio(middle, limit)),
    ]


def payment_figures(
    *, confirm_ms: Sequence[float], commit_ms: Sequence[float], call_ms: Sequence[float]
) -> list[Figure]:
    """Return the figures of payment alongside a flood; each a list of waits in ms."""
    name, commit_p99, p99 = "payment confirmed alongside a flood", quantile(commit_ms, 0.99), quantile(confirm_ms, 0.99)
    return [
        Figure(f"{name}, median", value=quantile(confirm_ms, 0.5), unit="ms"),
        Figure(f"{name}, p99", value=p99, unit="ms", at_most=50, limit=commit_p99),
        Figure("one row written alongside the same flood, p99", value=commit_p99, unit="ms"),
        Figure("a call without a store alongside the same flood, p99", value=quantile(call_ms, 0.99), unit="ms"),
    ]


def audit_figures(seconds: Sequence[float], raw: Sequence[float], *, orders: int) -> list[Figure]:
    """Return the figures of the audit of a sale with `orders` orders, in seconds. raw: its rows counted once."""
    middle, limit = median(seconds), median(raw)
    return [
        Figure(f"audit of a sale with {orders:,} orders", value=middle, unit="s", at_most=1.0, limit=limit),
        Figure("its rows counted once", value=limit, unit="s"),
        Figure("audit ÷ rows counted", value=ratio(middle, limit)),
    ]


def samples_of(results: Results) -> list[dict[str, Any]]:
    """Return every round; of the payments, what shares of them did not pass."""
    waits = results.payments
    measured = {
        "settlement, batch 500, orders/s": results.settled,
        "settlement, batch 1, orders/s": results.single,
        "the same rows copied, orders/s": results.copied,
        "expiry, s": results.expiry,
        "plain statements, s": results.plain_expiry,
        "audit, s": results.audits,
        "rows counted, s": results.counts,
    }
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
    panels = {
        "Settlement, orders a second (longer is better)": {
            OURS: median(results.settled),
            "the same rows copied": median(results.copied),
        },
        "Expiry of all due holds, s (shorter is better)": {
            OURS: median(results.expiry),
            "plain statements": median(results.plain_expiry),
        },
        "Payment confirmed alongside a flood, p99 in ms (shorter is better)": {
            OURS: quantile(waits.confirm_ms, 0.99),
            "one row written": quantile(waits.commit_ms, 0.99),
            "a call without a store": quantile(waits.call_ms, 0.99),
        },
        "Audit, s (shorter is better)": {OURS: median(results.audits), "its rows counted": median(results.counts)},
    }
    limits = [side for values in panels.values() for side in values if side != OURS]
    text = "Each measurement alongside its limit; the same numbers stand in the table"
    return bars(panels, ours=[OURS], limits=limits, description=text)
