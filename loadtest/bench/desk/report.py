"""What the shop promises of the lists of staff: figures with their bounds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from loadtest.bench.harness.report import Figure

MAX_PAGE_MS = 300
MAX_CSV_SECONDS, MAX_CSV_MIB = 10, 50
MAX_FORGET_MS, MAX_RETENTION_SECONDS, MAX_STEP_MS = 300, 60, 500


@dataclass(frozen=True, kw_only=True)
class Results:
    """Waits in ms of each call by the name of its page; seconds and MiB that the CSV took, and rows it had; ms of each
    buyer who was forgotten, and of each step in which all others were.
    """

    pages: Mapping[str, Sequence[float]]
    csv_seconds: float
    csv_mib: float
    csv_rows: int
    forget_ms: Sequence[float]
    step_ms: Sequence[float]


def figures_of(results: Results) -> list[Figure]:
    """Return every figure with its bound."""
    pages = [
        Figure(f"{name}, median", value=median(waits), unit="ms", at_most=MAX_PAGE_MS)
        for name, waits in results.pages.items()
    ]
    return [
        *pages,
        Figure(f"{results.csv_rows:,} orders as CSV", value=results.csv_seconds, unit="s", at_most=MAX_CSV_SECONDS),
        Figure("memory that the CSV took", value=results.csv_mib, unit="MiB", at_most=MAX_CSV_MIB),
        Figure("one buyer forgotten, median", value=median(results.forget_ms), unit="ms", at_most=MAX_FORGET_MS),
        Figure("all others forgotten", value=sum(results.step_ms) / 1000, unit="s", at_most=MAX_RETENTION_SECONDS),
        Figure("longest step of it", value=max(results.step_ms), unit="ms", at_most=MAX_STEP_MS),
    ]
