"""What the shop promises of settlement, expiry, payment and the audit: every figure with its floor. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from loadtest.bench.harness.figures import Figure, ratio


def settlement_figures(batched: Sequence[float], single: Sequence[float], raw: Sequence[float]) -> list[Figure]:
    """Return the figures of settlement, in orders a second. raw: the same rows copied."""
    middle, limit = statistics.median(batched), statistics.median(raw)
    return [
        Figure(name="settlement, batch 500", value=middle, unit="orders/s", at_least=8_000, limit=limit),
        Figure(name="settlement, batch 1", value=statistics.median(single), unit="orders/s"),
        Figure(name="the same rows copied, 500 a transaction", value=limit, unit="orders/s"),
        Figure(name="settlement ÷ the same rows copied", value=ratio(middle, limit), at_least=0.75),
    ]


def expiry_figures(seconds: Sequence[float], raw: Sequence[float], *, holds: int) -> list[Figure]:
    """Return the figures of expiry, in seconds for `holds` due holds. raw: the same rows by plain statements."""
    middle, limit = statistics.median(seconds), statistics.median(raw)
    return [
        Figure(name=f"expiry of {holds:,} due holds", value=middle, unit="s", at_most=3.0, limit=limit),
        Figure(name="the same rows by plain statements", value=limit, unit="s"),
        Figure(name="expiry ÷ plain statements", value=ratio(middle, limit)),
    ]


def payment_figures(
    *, confirm_ms: Sequence[float], commit_ms: Sequence[float], call_ms: Sequence[float]
) -> list[Figure]:
    """Return the figures of payment alongside a flood; each a list of waits in ms."""
    commit_p99 = quantile(commit_ms, 0.99)
    return [
        Figure(name="payment confirmed alongside a flood, median", value=quantile(confirm_ms, 0.5), unit="ms"),
        Figure(
            name="payment confirmed alongside a flood, p99",
            value=quantile(confirm_ms, 0.99),
            unit="ms",
            at_most=50,
            limit=commit_p99,
        ),
        Figure(name="one row written alongside the same flood, p99", value=commit_p99, unit="ms"),
        Figure(name="a call without a store alongside the same flood, p99", value=quantile(call_ms, 0.99), unit="ms"),
    ]


def audit_figures(seconds: Sequence[float], raw: Sequence[float], *, orders: int) -> list[Figure]:
    """Return the figures of the audit of a sale with `orders` orders, in seconds. raw: its rows counted once."""
    middle, limit = statistics.median(seconds), statistics.median(raw)
    return [
        Figure(name=f"audit of a sale with {orders:,} orders", value=middle, unit="s", at_most=1.0, limit=limit),
        Figure(name="its rows counted once", value=limit, unit="s"),
        Figure(name="audit ÷ rows counted", value=ratio(middle, limit)),
    ]


def quantile(values: Sequence[float], share: float) -> float:
    """Return what `share` (0 to 1) of the values do not pass; not a number when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")
