"""What is promised of purchases alongside live streams and mails: figures with their floors, samples, chart. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from loadtest.bench.harness.charts import bars
from loadtest.bench.harness.report import KEPT, Figure, middle_ratio

MAX_SLOWER_BY_STREAMS = {"p99": 1.5}
MAX_SLOWER_BY_MAILS = {"p50": 1.05, "p99": 1.15}
MAX_SLOWER_BY_RETENTION = {"p50": 1.05, "p99": 1.15}
MIN_PAGES = 5_000
# As many as on two such cores before purchases were answered without Django.
MIN_RENDERED = 189
# Each stream must have news at least every ten seconds, or nothing was measured.
MIN_NEWS = 0.1


@dataclass(frozen=True, kw_only=True)
class PurchaseRound:
    """One round of one side. asked: purchases; messages: of all streams; busy: the web process' share of its core."""

    side: str
    asked_per_second: float
    p50_ms: float
    p99_ms: float
    busy: float
    messages_per_second: float


# Of rounds (alone, alongside), right after each other.
Pairs = Sequence[tuple[PurchaseRound, PurchaseRound]]


def middle(pairs: Pairs, name: str) -> tuple[float, float]:
    """Return the median over the rounds of what has this `name` in each, alone and alongside."""
    alone, alongside = (median(getattr(pair[side], name) for pair in pairs) for side in (0, 1))
    return alone, alongside


def figures_of(
    pairs: Pairs, *, mailed: Pairs, cleaned: Pairs, pages: Mapping[str, float], streams: int, asks: int, mails: int
) -> list[Figure]:
    """Return every figure with its bound. pairs: with streams; mailed, cleaned: with mails, and with retention."""
    none, some = "no stream open", f"{streams:,} streams open"
    p50, p99, busy = (middle(pairs, name) for name in ("p50_ms", "p99_ms", "busy"))
    asked, news = (middle(pairs, name)[1] for name in ("asked_per_second", "messages_per_second"))
    kept, rendered = pages["kept"], pages["rendered"]
    meant = f"purchases asked alongside them, of {asks} meant"
    return [
        Figure(f"purchase p50, {none}", value=p50[0], unit="ms"),
        Figure(f"purchase p50, {some}", value=p50[1], unit="ms"),
        Figure(f"purchase p99, {none}", value=p99[0], unit="ms"),
        Figure(f"purchase p99, {some}", value=p99[1], unit="ms"),
        *_slower(pairs, by="streams", bounds=MAX_SLOWER_BY_STREAMS),
        Figure(meant, value=asked, unit="/s", at_least=KEPT * asks),
        Figure(f"web process busy, {none}", value=busy[0], unit="of a core"),
        Figure(f"web process busy, {some}", value=busy[1], unit="of a core"),
        Figure("messages to all streams", value=news, unit="/s", at_least=MIN_NEWS * streams),
        *_slower(mailed, by=f"a mailer with {mails:,} mails", bounds=MAX_SLOWER_BY_MAILS),
        *_slower(cleaned, by="retention", bounds=MAX_SLOWER_BY_RETENTION),
        Figure("sale page, one core, from memory", value=kept, unit="pages/s", at_least=MIN_PAGES),
        Figure("sale page, one core, rendered by Django", value=rendered, unit="pages/s", at_least=MIN_RENDERED),
    ]


def _slower(pairs: Pairs, *, by: str, bounds: Mapping[str, float]) -> list[Figure]:
    """Return how much slower purchases are alongside something, of each pair the ratio."""
    return [
        Figure(
            f"{name} alongside {by} ÷ without, median of pairs",
            value=middle_ratio(*([getattr(pair[side], f"{name}_ms") for pair in pairs] for side in (1, 0))),
            at_most=bound,
        )
        for name, bound in bounds.items()
    ]


def samples_of(pairs: Pairs, *, of: str) -> list[dict[str, Any]]:
    """Return every round."""
    return [{"pair": number, "of": of, **vars(each)} for number, rounds in enumerate(pairs, 1) for each in rounds]


def picture_of(pairs: Pairs, *, pages: Mapping[str, float]) -> str:
    """Return the chart: both sides of each measurement."""
    ours = ("alongside the streams", "from memory")
    panels = {}
    for title, name in (
        ("Purchase, p99 in ms (shorter is better)", "p99_ms"),
        ("Purchase, p50 in ms (shorter is better)", "p50_ms"),
        ("Web process, share of its core (shorter is better)", "busy"),
    ):
        alone, alongside = middle(pairs, name)
        panels[title] = {ours[0]: alongside, "no stream open": alone}
    panels["Sale page, answers a second on one core (longer is better)"] = {
        ours[1]: pages["kept"],
        "rendered by Django": pages["rendered"],
    }
    return bars(panels, ours=ours, description="Both sides of each measurement; the same numbers stand in the table")
