"""Says when buyers surely had their units, from what they were told alone, and how many units were out at once.
Never guesses: a hold counts from the first answer that told of it to the last question answered with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loadtest.checker.buyer_record import HELD_STATES, ToldPlace
from loadtest.record.history import Operation

# An answer may lag behind the books by a moment, so the end of a hold is taken this much earlier.
LAG_NS = 1_000_000_000
FOR_EVER_NS = 2**63


@dataclass(frozen=True, slots=True)
class Interval:
    """A time on one clock (ns) during which these units were surely with one buyer."""

    clock: str
    begin_ns: int
    end_ns: int
    units: int


def units_at_rest(places: Iterable[ToldPlace]) -> int:
    """Return how many units buyers were told they have in the end; a hold of which more may have become is none."""
    return sum(
        place.units for place in places if place.state == "paid" or (place.state == "held" and not place.open_ended)
    )


def units_at_once(places: Iterable[ToldPlace]) -> int:
    """Return how many units these places surely had at one moment, during the run or at its end."""
    places = list(places)
    by_clock: dict[str, list[Interval]] = defaultdict(list)
    for place in places:
        for interval in _intervals(place):
            by_clock[interval.clock].append(interval)
    return max([units_at_rest(places), *(_most(intervals) for intervals in by_clock.values())])


def _intervals(place: ToldPlace) -> Iterator[Interval]:
    """Yield the times for which a place had its units; what is paid stays, since nobody gives goods back."""
    told: list[Operation] = []
    for seen in place.sightings:
        if told and not _goes_on(told[-1], seen, place=place):
            yield from _interval(told, units=place.units)
            told = []
        if seen.state in HELD_STATES:
            told.append(seen)
    if told:
        yield from _interval(told, units=place.units, to_the_end=told[-1].state == "paid")


def _goes_on(last: Operation, seen: Operation, *, place: ToldPlace) -> bool:
    """Say whether the units were with the buyer from one sighting to the next."""
    if place.charged_late and (last.state, seen.state) == ("held", "paid"):
        return False  # the hold may have lapsed in between, and the payment have taken the units again
    return seen.state in HELD_STATES and seen.clock == last.clock


def _interval(told: list[Operation], *, units: int, to_the_end: bool = False) -> Iterator[Interval]:
    begin_ns = told[0].ended_ns
    end_ns = FOR_EVER_NS if to_the_end else max(seen.began_ns for seen in told) - LAG_NS
    if end_ns > begin_ns:
        yield Interval(told[0].clock, begin_ns, end_ns, units)


def _most(intervals: list[Interval]) -> int:
    """Return the largest number of units that were out at one moment of one clock."""
    changes = sorted(
        [(interval.begin_ns, interval.units) for interval in intervals]
        + [(interval.end_ns, -interval.units) for interval in intervals]
    )
    most = now = 0
    for _, units in changes:
        now += units
        most = max(most, now)
    return most
