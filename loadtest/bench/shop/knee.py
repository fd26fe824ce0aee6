"""Finds the highest offered rate at which the shop keeps up, in few steps, and when it is well again. Pure.
Never measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Keeping up: so much of what is offered is decided within the same seconds.
KEEPS_UP = 0.95
FIRST_PER_SECOND = 6_000.0
GROWTH = 1.25
# The knee lies between two rates this close to each other.
CLOSE_ENOUGH = 1.07
MIN_PER_SECOND = 50.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """One offered rate and what came of it, both a second; waits in ms from the intended moment to the 202.

    cpu_us: µs of CPU of each part for an answer.
    """

    offered: float
    goodput: float
    wait_p50_ms: float = 0.0
    wait_p99_ms: float = 0.0
    cpu_us: Mapping[str, float] = field(default_factory=dict)

    @property
    def keeps_up(self) -> bool:
        """Say whether what was offered was decided as fast."""
        return self.goodput >= KEEPS_UP * self.offered


def next_offer(steps: Sequence[Step]) -> float | None:
    """Return the rate to offer next, None when the knee is known well enough."""
    if not steps:
        return FIRST_PER_SECOND
    kept = [step.offered for step in steps if step.keeps_up]
    failed = [step.offered for step in steps if not step.keeps_up]
    if not failed:
        return max(kept) * GROWTH
    if not kept:
        lower = min(failed) / 2
        return lower if lower >= MIN_PER_SECOND else None
    below, above = max(kept), min(failed)
    if above <= below * CLOSE_ENOUGH:
        return None
    return float((below * above) ** 0.5)


def knee_of(steps: Sequence[Step]) -> Step | None:
    """Return the step at the knee: of those that kept up, the one with the highest rate; None when none did."""
    return max((step for step in steps if step.keeps_up), key=lambda step: step.offered, default=None)


def well_after(p99_ms: Sequence[float], *, normal_ms: float, tolerance: float) -> float:
    """Return after how many seconds every later second's p99 is within `tolerance` × normal; inf when never.

    p99_ms: one for each second after the end of the overload.
    """
    for second in range(len(p99_ms)):
        if all(value <= tolerance * normal_ms for value in p99_ms[second:]):
            return float(second)
    return float("inf")


def spread(values: Sequence[float]) -> float:
    """Return how far the values lie from their middle at most, as a share of it: 0.15 means ± 15 %."""
    lowest, highest = min(values), max(values)
    return (highest - lowest) / (highest + lowest) if highest + lowest > 0 else float("nan")
