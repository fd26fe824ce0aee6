"""Measures how long buyers waited and how much was done a second, from the clients' record alone.
Never averages a wait away: it gives the middle, the slowest hundredth and the slowest. Called by the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from loadtest.history import FAIL, OK, Operation
from loadtest.testimony import Testimony

NS_PER_MS = 1_000_000
NS_PER_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Wait:
    """How long something took, in milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def wait_of(times_ns: Iterable[int]) -> Wait:
    """Sum up a list of waits (nearest rank)."""
    ordered = sorted(times_ns)
    if not ordered:
        return Wait(0, 0.0, 0.0, 0.0)

    def at(share: float) -> float:
        return round(ordered[ceil(share * len(ordered)) - 1] / NS_PER_MS, 1)

    return Wait(len(ordered), at(0.50), at(0.99), at(1.0))


def to_admission(testimonies: list[Testimony]) -> Wait:
    """From a click to the answer that gives a place in line."""
    return wait_of(a.ended_ns - a.began_ns for t in testimonies for a in t.asks if a.outcome == OK)


def to_refusal(testimonies: list[Testimony]) -> Wait:
    """From a click to a definite no."""
    return wait_of(a.ended_ns - a.began_ns for t in testimonies for a in t.asks if a.outcome == FAIL)


def to_decision(testimonies: list[Testimony]) -> Wait:
    """From a wish's first click to the moment its buyer saw the decision; polling is part of the wait."""
    places = [place for t in testimonies for place in t.places.values() if place.decided_ns()]
    return wait_of(place.decided_ns() - min(wish.asks[0].began_ns for wish in place.wishes) for place in places)


@dataclass(frozen=True, slots=True)
class Rate:
    """How much was done between the first call and the last one of the flood."""

    seconds: float
    requests: int
    requests_per_second: int
    attempts: int
    attempts_per_second: int


def rate_of(operations: list[Operation]) -> Rate:
    """Count calls a second; the questions at rest are not part of the flood."""
    flood = [operation for operation in operations if operation.kind != "recheck"]
    asks = [operation for operation in flood if operation.kind == "ask"]
    if not asks:
        return Rate(0.0, len(flood), 0, 0, 0)
    # Every machine has its own clock, so the span is taken on each and the longest counts.
    spans = [_span_ns([o for o in flood if o.clock == clock]) for clock in {o.clock for o in flood}]
    seconds = max(max(spans) / NS_PER_SECOND, 0.001)
    return Rate(round(seconds, 2), len(flood), int(len(flood) / seconds), len(asks), int(len(asks) / seconds))


def _span_ns(operations: list[Operation]) -> int:
    return max(operation.ended_ns for operation in operations) - min(operation.began_ns for operation in operations)
