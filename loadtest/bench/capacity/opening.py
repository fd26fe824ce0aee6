"""The opening of a sale for a million buyers, in scaled time, and what a line of one pace makes of it. Pure.

A shop of `share` times the capacity of the one that runs has the same waits when `share` times as many buyers press a
second. In `speed_up` times less time every wait is as many times shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from loadtest.bench.capacity.report import MAX_OFF_PERCENT
from loadtest.bench.harness.report import Figure, quantile, ratio
from loadtest.plan.arrivals import NS, Arrivals, Stage

BUYERS = 1_000_000
# Half of them press in the first ten seconds; the rest comes in ten minutes, fewer and fewer.
STAGES = (
    Stage("at the opening", seconds=10, rate=50_000, end_rate=50_000),
    Stage("the first minute", seconds=50, rate=10_000, end_rate=2_000),
    Stage("ten minutes", seconds=540, rate=5_000 / 9, end_rate=5_000 / 27),
)


def scaled_moments(*, share: int, speed_up: int) -> list[float]:
    """Return when each buyer presses, in seconds from the opening."""
    stages = tuple(
        Stage(each.name, seconds=each.seconds / speed_up, rate=each.rate / share, end_rate=each.end_rate / share)
        for each in STAGES
    )
    return [moment / NS for moment in Arrivals(stages, seed=1).instants_ns()]


def predicted_decisions(moments: Sequence[float], *, per_second: float) -> list[float]:
    """Return when each of them is decided by a shop of that pace, one after the other."""
    each = 1 / per_second
    return list(accumulate(moments, lambda before, moment: max(before, moment) + each, initial=0.0))[1:]


def opening_figures(
    moments: Sequence[float], *, predicted: Sequence[float], measured: Sequence[float], speed_up: int
) -> list[Figure]:
    """Return what was predicted and measured, as of the whole opening. Both in the order of decisions."""
    half, figures = len(moments) // 2 - 1, []
    for name, decided in (("predicted", predicted), ("measured", measured)):
        waits = [(at - moment) * speed_up for at, moment in zip(decided, moments, strict=True)]
        half_after = decided[half] * speed_up
        figures += [
            Figure(f"{BUYERS:,} buyers, half of them decided after: {name}", value=half_after, unit="s"),
            Figure(f"{BUYERS:,} buyers, wait for the decision, p50: {name}", value=quantile(waits, 0.5), unit="s"),
            Figure(f"{BUYERS:,} buyers, wait for the decision, p99: {name}", value=quantile(waits, 0.99), unit="s"),
        ]
    off = 100 * ratio(abs(predicted[half] - measured[half]), measured[half])
    name = f"{BUYERS:,} buyers, half of them decided after: off by"
    return [*figures, Figure(name, value=off, unit="%", at_most=MAX_OFF_PERCENT)]
