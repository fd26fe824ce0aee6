"""The check of the order: nobody stands behind, or goes away with less, than somebody who came surely later.
Never compares times of two clocks, unless the run says how far they may differ.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate
from operator import attrgetter, itemgetter

from loadtest.checker.buyer_record import HELD_STATES, WAITING_STATES, ToldPlace
from loadtest.checker.case import Case, Fault
from loadtest.plan.population import ON_STANDBY
from loadtest.record.history import OK, Operation

STANDBY = "standby"
IN_LINE = WAITING_STATES - {""}


def out_of_order(case: Case) -> Iterator[Fault]:
    """A buyer answered before another asked is before them in line; nobody was passed over, on standby or not."""
    yield from _passed_over(case)
    yield from _passed_while_waiting(case)
    yield from _let_in_before_standby(case)
    by_clock: dict[str, list[ToldPlace]] = defaultdict(list)
    for place in case.record.places.values():
        if any(seen.seq and seen.clock == place.clock for seen in place.sightings):
            by_clock[place.clock].append(place)
    found: dict[str, Fault] = {}
    for places in by_clock.values():
        found |= _overtaken(places)
    if case.margin_ns is not None and len(by_clock) > 1:
        everybody = [place for places in by_clock.values() for place in places]
        found = _overtaken(everybody, shifts_ns=case.record.shifts_ns, margin_ns=case.margin_ns) | found
    owners: dict[int, ToldPlace] = {}
    for place in filter(attrgetter("first_seq"), case.record.places.values()):
        owner = owners.setdefault(place.first_seq, place)
        if owner is not place and not {place.request_id, owner.request_id} & found.keys():
            at = f"at the place of {owner.request_id} (seq {place.first_seq})"
            found[place.request_id] = Fault(f"request {place.request_id} stands {at}")
    yield from found.values()


def _overtaken(
    places: list[ToldPlace], *, shifts_ns: Mapping[str, int] | None = None, margin_ns: int = 0
) -> dict[str, Fault]:
    """Find places whose seq is not above that of one answered before they were asked for, by their request ids.

    shifts_ns: what to add to the times of each clock. margin_ns: how wrong two times may then be to each other.
    """
    shifts_ns = shifts_ns or {}
    told_ns = {place.request_id: place.told_seq_ns() + shifts_ns.get(place.clock, 0) for place in places}
    answered = sorted(places, key=lambda place: told_ns[place.request_id])
    times = [told_ns[place.request_id] for place in answered]
    furthest = list(accumulate(answered, _further))
    found = {}
    for place in places:
        began_ns = min(wish.could_begin_ns for wish in place.wishes) + shifts_ns.get(place.clock, 0)
        earlier = bisect_left(times, began_ns - margin_ns)
        ahead = furthest[earlier - 1] if earlier else None
        if ahead is not None and ahead is not place and ahead.first_seq >= place.first_seq:
            seqs = f"(seq {place.first_seq}) overtook {ahead.request_id} (seq {ahead.first_seq})"
            found[place.request_id] = Fault(f"request {place.request_id} {seqs}")
    return found


def _passed_over(case: Case) -> Iterator[Fault]:
    """Find who was told "sold out" in line while somebody behind them, who wanted as much, got units.

    Units that staff loaded during the run go to those who come later: of so many the last in line may have got.
    """
    places = [place for place in case.record.places.values() if place.seqs and place.units]
    lucky = [place for place in places if any(place.was(state) for state in HELD_STATES)]
    sent_away = [place for place in places if place.state == "sold_out"]
    wanted = {place.units for place in sent_away}
    last = {units: _last_but(case.loaded, [one for one in lucky if one.units >= units]) for units in wanted}
    for place in sent_away:
        other = last[place.units]
        if other is not None and other.first_seq > place.first_seq:
            yield Fault(f"request {place.request_id} was sold out, {other.request_id} behind it got units")


def _last_but(loaded: int, places: list[ToldPlace]) -> ToldPlace | None:
    """Return the last in line of those who did not get their units from so many that were loaded."""
    for place in sorted(places, key=attrgetter("first_seq"), reverse=True):
        loaded -= place.units
        if loaded < 0:
            return place
    return None


def _passed_while_waiting(case: Case) -> Iterator[Fault]:
    """Find who was still told to wait after somebody that came later had been told of as many units, or more.

    The line answers a batch at once, and nobody is decided before those who fit and came first. Places whose ticket was
    shown are left out: the line is told what the database decided of that one alone, before the batch is answered; and
    one that was lost and is back may have been passed over by right.
    """
    shown = {operation.request_id for operation in case.record.operations if operation.kind == "restore"}
    got: list[tuple[Operation, ToldPlace]] = []
    waiting: dict[tuple[str, int], list[tuple[Operation, ToldPlace]]] = defaultdict(list)
    for place in case.record.places.values():
        if not place.seqs or place.request_id in shown:
            continue
        got += [(seen, place) for seen in place.sightings if seen.state in HELD_STATES][:1]
        if told := [seen for seen in place.sightings if seen.state in IN_LINE]:
            last = max(told, key=attrgetter("began_ns"))
            waiting[last.clock, place.units].append((last, place))
    got.sort(key=lambda each: each[0].ended_ns)
    for (clock, units), group in waiting.items():
        served = [(seen.ended_ns, place) for seen, place in got if seen.clock == clock and place.units >= units]
        furthest = list(accumulate((place for _, place in served), _further))
        for last, place in group:
            earlier = bisect_left(served, last.began_ns, key=itemgetter(0))
            if earlier and furthest[earlier - 1].first_seq > place.first_seq:
                other = furthest[earlier - 1].request_id
                yield Fault(f"request {place.request_id} still waited while {other} behind it got units")


def _let_in_before_standby(case: Case) -> Iterator[Fault]:
    """Find who was let into the line while somebody surely stood by: nobody new may be, but on standby as well."""
    intervals: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for place in case.record.places.values():
        told = [seen for seen in place.sightings if seen.state == STANDBY and seen.clock == place.clock]
        if told:
            intervals[place.clock].append((min(seen.ended_ns for seen in told), max(seen.began_ns for seen in told)))
    furthest = {clock: list(accumulate((end for _, end in sorted(found)), max)) for clock, found in intervals.items()}
    begins = {clock: [begin for begin, _ in sorted(found)] for clock, found in intervals.items()}
    for place in case.record.places.values():
        asks = [ask for wish in place.wishes for ask in wish.asks]
        earlier = bisect_left(begins.get(place.clock, []), min(wish.could_begin_ns for wish in place.wishes))
        yes_ns = min(ask.ended_ns for ask in asks if ask.outcome == OK)
        may_stand_by = place.stood_by or any(ask.click == ON_STANDBY for ask in asks)
        if earlier and not may_stand_by and yes_ns < furthest[place.clock][earlier - 1]:
            yield Fault(f"request {place.request_id} was let in while others stood by")


def _further(one: ToldPlace, other: ToldPlace) -> ToldPlace:
    """Return the one that stands further back in line."""
    return other if other.first_seq > one.first_seq else one
