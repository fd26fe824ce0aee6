"""What the shop promises of a log of a million leaves: figures with their bounds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from loadtest.bench.harness.report import Figure, quantile

MAX_CHECKPOINT_MS, MAX_PROOF_MS = 5, 10
MAX_VERIFY_SECONDS = 60
MAX_FIRST_SECONDS = 3


@dataclass(frozen=True, kw_only=True)
class Results:
    """Waits in ms of each call; seconds of a whole check, of the page's first result and of its verdict."""

    checkpoints: Sequence[float]
    proofs: Sequence[float]
    verify_seconds: float
    first_seconds: float
    page_seconds: float


def figures_of(results: Results, *, leaves: int) -> list[Figure]:
    """Return every figure with its bound."""
    figures = []
    for name, waits, most in (
        ("checkpoint", results.checkpoints, MAX_CHECKPOINT_MS),
        ("proof of a place", results.proofs, MAX_PROOF_MS),
    ):
        figures += [
            Figure(f"{name}, median", value=median(waits), unit="ms", at_most=most),
            Figure(f"{name}, p99", value=quantile(waits, 0.99), unit="ms"),
        ]
    each = results.verify_seconds / leaves * 1_000_000
    return [
        *figures,
        Figure(
            f"verify_sale.py, {leaves:,} leaves", value=results.verify_seconds, unit="s", at_most=MAX_VERIFY_SECONDS
        ),
        Figure("verify_sale.py, a leaf", value=each, unit="µs"),
        Figure("the page's first result", value=results.first_seconds, unit="s", at_most=MAX_FIRST_SECONDS),
        Figure("the page's verdict", value=results.page_seconds, unit="s"),
    ]
