"""What the SKUs of healthy shards go on with while one shard is away: figures with their floors, samples. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from loadtest.bench.harness.report import Figure, ratio

WHOLE, AWAY = "all shards up", "one shard frozen"
# What the shop promises to the SKUs of all other shards.
MIN_KEPT = 0.9


@dataclass(frozen=True, kw_only=True)
class Window:
    """What the SKUs of the healthy shards had in one window. unavailable: the share of their asks answered 503.

    stolen: the share of the machine's time that its host gave to others meanwhile.
    """

    side: str
    admitted_per_second: float
    decided_per_second: float
    unavailable: float
    stolen: float


def figures_of(windows: Sequence[Window]) -> list[Figure]:
    """Return the pace with all shards and without one, and what was kept of it: of each pair, and of these the median.

    windows: as they were measured, each kind as often as the other.
    """
    whole, away = ([each for each in windows if each.side == side] for side in (WHOLE, AWAY))
    figures = []
    for what, name in (("admissions", "admitted_per_second"), ("decisions", "decided_per_second")):
        before, meanwhile = ([getattr(each, name) for each in side] for side in (whole, away))
        kept = median(map(ratio, meanwhile, before))
        figures += [
            Figure(f"{what} at healthy shards, {WHOLE}", value=median(before), unit="per second"),
            Figure(f"{what} at healthy shards, {AWAY}", value=median(meanwhile), unit="per second"),
            Figure(f"{what} at healthy shards: {AWAY} ÷ {WHOLE}, median of pairs", value=kept, at_least=MIN_KEPT),
        ]
    refused = max(each.unavailable for each in away)
    return [*figures, Figure(f"asks at healthy shards answered 503, {AWAY}, most", value=100 * refused, unit="%")]


def samples_of(windows: Sequence[Window]) -> list[dict[str, object]]:
    """Return every window as a row."""
    return [
        {
            "window": each.side,
            "admissions per second": each.admitted_per_second,
            "decisions per second": each.decided_per_second,
            "answered 503": each.unavailable,
            "stolen": each.stolen,
        }
        for each in windows
    ]
