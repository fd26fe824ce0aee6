"""What the shop promises of a log of a million leaves: figures with their bounds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from loadtest.bench.harness.report import KEPT, Figure, middle_ratio, quantile

if TYPE_CHECKING:
    from loadtest.bench.log.road import RoadTurn

MAX_CHECKPOINT_MS, MAX_PROOF_MS = 5, 10
MAX_VERIFY_SECONDS = 60
MAX_FIRST_SECONDS = 3
MIN_OF_ROAD, MAX_LAG_SECONDS = 0.9, 1


def figures_of(
    *,
    checkpoints: Sequence[float],
    proofs: Sequence[float],
    verify_seconds: float,
    first_seconds: float,
    page_seconds: float,
    leaves: int,
) -> list[Figure]:
    """Return every figure with its bound. checkpoints, proofs: ms of each call; first_seconds, page_seconds: until the
    page's first result and its verdict.
    """
    figures = []
    for name, waits, max_ms in (
        ("checkpoint", checkpoints, MAX_CHECKPOINT_MS),
        ("proof of a place", proofs, MAX_PROOF_MS),
    ):
        figures += [
            Figure(f"{name}, median", value=median(waits), unit="ms", at_most=max_ms),
            Figure(f"{name}, p99", value=quantile(waits, 0.99), unit="ms"),
        ]
    each = verify_seconds / leaves * 1_000_000
    return [
        *figures,
        Figure(f"verify_sale.py, {leaves:,} leaves", value=verify_seconds, unit="s", at_most=MAX_VERIFY_SECONDS),
        Figure("verify_sale.py, a leaf", value=each, unit="µs"),
        Figure("the page's first result", value=first_seconds, unit="s", at_most=MAX_FIRST_SECONDS),
        Figure("the page's verdict", value=page_seconds, unit="s"),
    ]


def road_figures(turns: Sequence[RoadTurn], paced: RoadTurn, *, pace: int) -> list[Figure]:
    """Return what logs cost the whole road, and how far the notary lags. turns: of each round one with, one without."""
    kept, none = ([turn for turn in turns if turn.kept is side] for side in (True, False))
    rates = [[turn.decided_per_second for turn in side] for side in (kept, none)]
    return [
        Figure("whole road with logs", value=median(rates[0]), unit="decisions/s"),
        Figure("whole road without", value=median(rates[1]), unit="decisions/s"),
        Figure("whole road, with logs ÷ without", value=middle_ratio(*rates), at_least=MIN_OF_ROAD),
        Figure("notary's CPU for one decision", value=median(turn.notary_cpu_us for turn in kept), unit="µs"),
        Figure("the log's longest lag at full pace", value=max(turn.lag_seconds for turn in kept), unit="s"),
        Figure("drained, after full pace", value=max(turn.drain_seconds for turn in kept), unit="s"),
        Figure(f"asks a second, of {pace:,}", value=paced.decided_per_second, unit="asks/s", at_least=pace * KEPT),
        Figure(f"the log's longest lag at {pace:,}/s", value=paced.lag_seconds, unit="s", at_most=MAX_LAG_SECONDS),
        Figure(f"drained, after {pace:,}/s", value=paced.drain_seconds, unit="s", at_most=MAX_LAG_SECONDS),
    ]
