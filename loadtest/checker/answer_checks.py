"""The checks of what buyers were told: one thing, and then nothing that cannot come after it.
Never takes two answers for contradictory that were on their way at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loadtest.checker.buyer_record import FOLLOWERS, HOLD_ENDS, ToldPlace
from loadtest.checker.case import Case, Fault, listed
from loadtest.record.history import OK, Operation
from loadtest.users.contract import ADMITTED, NONE_LEFT


def told_wrongly(case: Case) -> Iterator[Fault]:
    """Nobody was told one thing and another later, and nobody was told of units the books did not give."""
    for place in case.record.places.values():
        if len(place.seqs) != 1:
            yield Fault(f"request {place.request_id} was told {len(place.seqs)} places in line: {listed(place.seqs)}")
        yield from _took_back(place)
    for wish in case.record.wishes:
        firsts = sum(ask.outcome == OK and ask.status == ADMITTED for ask in wish.asks)
        if firsts > 1:
            yield Fault(f"key {wish.key} of buyer {wish.buyer} was called new {firsts} times")
        if wish.ids and wish.last_no and _no_after_yes(wish.asks):
            yield Fault(f"key {wish.key} of buyer {wish.buyer} was refused ({wish.last_no}) after it had been admitted")
    told, given = case.units_told(), case.count("held") + case.grown("sold")
    if case.has_books and told > given:
        yield Fault(f"buyers were told of {told} units, the books gave {given}", told - given)
    paid, sold = case.units_paid(), case.grown("sold")
    if case.has_books and paid > sold:
        yield Fault(f"buyers were told that {paid} units are paid, the books sold {sold}", paid - sold)


def _took_back(place: ToldPlace) -> Iterator[Fault]:
    """Find the states that cannot follow any state a client had already been told when it asked."""
    first_told_ns: dict[tuple[str, str], int] = {}  # by clock and state
    found: set[tuple[str, str]] = set()
    for later in place.sightings:
        for (clock, earlier), ended_ns in first_told_ns.items():
            if clock == later.clock and ended_ns < later.began_ns and not _may_follow(earlier, later.state):
                found.add((earlier, later.state))
        first_told_ns.setdefault((later.clock, later.state), later.ended_ns)
    # A state that cannot follow one cannot follow what came before that one either: one fault for each is enough.
    for state in sorted({state for _, state in found}):
        earlier = max(earlier for earlier, taken_back in found if taken_back == state)
        yield Fault(f"request {place.request_id} was told {earlier}, then {state or 'nothing'}")


def _may_follow(earlier: str, later: str) -> bool:
    if {earlier, later} <= HOLD_ENDS:
        return True  # that is a hold that ended twice
    return later == earlier or later in FOLLOWERS.get(earlier, frozenset())


def _surely_before(one: Operation, other: Operation) -> bool:
    return one.clock == other.clock and one.ended_ns < other.began_ns


def hold_ended_twice(case: Case) -> Iterator[Fault]:
    """A hold ended once: it was paid, or it lapsed, or it was given up."""
    for place in case.record.places.values():
        ends = {end: [seen for seen in place.sightings if seen.state == end] for end in HOLD_ENDS if place.was(end)}
        # A buyer who pays after the hold has lapsed may get the units again; the reverse cannot happen.
        if set(ends) == {"paid", "expired"} and not any(
            _surely_before(paid, expired) for paid in ends["paid"] for expired in ends["expired"]
        ):
            continue
        if len(ends) > 1:
            told = " and ".join(sorted(ends, key=lambda end: ends[end][0].ended_ns))
            yield Fault(f"the hold of request {place.request_id} was told to have ended as {told}")


def _no_after_yes(asks: list[Any]) -> bool:
    first_yes_ns = min(ask.ended_ns for ask in asks if ask.outcome == OK)
    later = [ask for ask in asks if ask.began_ns > first_yes_ns]
    return any(ask.code in NONE_LEFT | {"limit_reached", "sale_closed"} for ask in later)
