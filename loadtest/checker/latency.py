"""Measures how long buyers waited and how much was done a second, from the clients' record alone.
Never averages a wait away: it gives the middle, the slowest hundredth and the slowest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from loadtest.checker.buyer_record import BuyerRecord
from loadtest.record.history import OK, Operation
from loadtest.users.contract import is_refusal

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


def due_ns(operation: Operation) -> int:
    """When this call should have begun: the wait for a free user is a wait like any other, and so are earlier tries."""
    return operation.planned_ns or operation.clicked_ns or operation.began_ns


def to_admission(records: list[BuyerRecord]) -> Wait:
    """From a click, as it was planned or first sent, to the answer that gives a place in line."""
    return wait_of(a.ended_ns - due_ns(a) for r in records for a in r.asks if a.outcome == OK)


def to_refusal(records: list[BuyerRecord]) -> Wait:
    """From a click, as it was planned or first sent, to a definite no."""
    return wait_of(a.ended_ns - due_ns(a) for r in records for a in r.asks if is_refusal(a))


def to_decision(records: list[BuyerRecord]) -> Wait:
    """From a wish's first click to the moment its buyer saw what became of it; polling is part of the wait."""
    places = [place for r in records for place in r.places.values() if place.answered_ns()]
    return wait_of(place.answered_ns() - min(due_ns(wish.asks[0]) for wish in place.wishes) for place in places)


def to_payment(records: list[BuyerRecord]) -> Wait:
    """From the click on "pay" to the answer that the units are sold."""
    pays = [o for r in records for o in r.operations if o.kind == "pay" and o.outcome == OK]
    return wait_of(pay.ended_ns - pay.began_ns for pay in pays)


@dataclass(frozen=True, slots=True)
class Rate:
    """How much was done between the first purchase attempt and the last one."""

    seconds: float
    requests: int
    requests_per_second: int
    attempts: int
    attempts_per_second: int


def rate_of(operations: list[Operation]) -> Rate:
    """Count calls a second while buyers asked; what came after it (waiting, paying) is not the rush."""
    asks = [operation for operation in operations if operation.kind == "ask"]
    if not asks:
        return Rate(0.0, 0, 0, 0, 0)
    # Every machine has its own clock, so the interval is taken on each and the longest counts.
    intervals = {
        clock: _interval_ns([ask for ask in asks if ask.clock == clock]) for clock in {ask.clock for ask in asks}
    }
    rush = [
        o for o in operations if o.clock in intervals and intervals[o.clock][0] <= o.ended_ns <= intervals[o.clock][1]
    ]
    seconds = max(max(end - begin for begin, end in intervals.values()) / NS_PER_SECOND, 0.001)
    return Rate(round(seconds, 2), len(rush), int(len(rush) / seconds), len(asks), int(len(asks) / seconds))


def _interval_ns(operations: list[Operation]) -> tuple[int, int]:
    return min(operation.began_ns for operation in operations), max(operation.ended_ns for operation in operations)
