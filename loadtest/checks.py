"""The checks of a flood: each compares the clients' record of one sale with the shop's own audit of it.
Never asks anybody and never trusts a counter of the load generator.
Called by the verdict.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from loadtest.contract import ADMITTED, NOT_FOUND, OK_STATUS, is_foreseen
from loadtest.history import OK, STOPPED, UNKNOWN, Operation
from loadtest.testimony import FOLLOWERS, GIVEN_STATES, HELD_STATES, WAITING_STATES, Place, Testimony

COUNTS = ("total", "available", "held", "sold", "queued", "in_flight", "decided")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, in a sentence, and how many units or requests it concerns."""

    detail: str
    weight: int = 1


@dataclass(slots=True, kw_only=True)
class Case:
    """All that is known about one sale: from its clients, and from the shop before and after."""

    testimony: Testimony
    sku: str = ""
    per_buyer_limit: int = 1
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)

    def count(self, name: str) -> int:
        """Return a count of the audit at rest."""
        return int(self.after.get("counts", {}).get(name, 0))

    def grown(self, name: str) -> int:
        """Return by how much a count grew during the run."""
        return self.count(name) - int(self.before.get("counts", {}).get(name, 0))

    def units_told(self, states: frozenset[str]) -> int:
        """Return how many units the clients were told they have, by the last state of each place."""
        return sum(place.units for place in self.testimony.places.values() if place.state in states)


Check = Callable[[Case], Iterator[Fault]]


def audit_given(case: Case) -> Iterator[Fault]:
    """The shop's audit was read and has every count the verdict needs."""
    if not case.after:
        yield Fault("the shop's audit could not be read")
        return
    missing = [name for name in COUNTS if name not in case.after.get("counts", {})]
    if missing:
        yield Fault(f"the audit lacks {', '.join(missing)}")


def audit_holds(case: Case) -> Iterator[Fault]:
    """Every invariant of the shop's own audit holds."""
    broken = [invariant for invariant in case.after.get("invariants", []) if not invariant.get("ok")]
    for invariant in broken:
        yield Fault(f"{invariant.get('id')} {invariant.get('name')}: {invariant.get('detail')}")
    if case.after and not broken and not case.after.get("ok"):
        yield Fault("the audit says it is not in order and names no reason")


def oversold(case: Case) -> Iterator[Fault]:
    """No more units were given than there are, by the books and by what buyers were told."""
    if not case.after:
        return
    total, given = case.count("total"), case.count("held") + case.count("sold")
    told = case.units_told(HELD_STATES)
    excess = max(given, told, case.count("units_held")) - total
    if excess > 0:
        yield Fault(f"{total} units, {given} given by the books, {told} told to buyers", excess)
    elif case.count("available") < 0:
        yield Fault(f"{case.count('available')} units are free", -case.count("available"))


def sold_twice(case: Case) -> Iterator[Fault]:
    """No wish and no unit was sold a second time: a repeated click got the same place."""
    for wish in case.testimony.wishes:
        if len(wish.ids) > 1:
            yield Fault(f"key {wish.key} of buyer {wish.buyer} got {len(wish.ids)} requests: {_list(wish.ids)}")
    for place in case.testimony.places.values():
        if len({wish.buyer for wish in place.wishes}) > 1 or len({wish.key for wish in place.wishes}) > 1:
            yield Fault(f"request {place.request_id} was given to {len(place.wishes)} wishes")
    # The audit counts orders of this sale and units of its SKU, so only too many orders are a fault.
    excess = case.count("units_held") - case.count("held")
    if excess > 0:
        yield Fault(f"orders hold {case.count('units_held')} units, the stock row gave {case.count('held')}", excess)


def in_line(audit: dict[str, Any]) -> int:
    """Return how many requests an audit still finds without an answer; the waitlisted have theirs."""
    counts = audit.get("counts", {})
    waiting = counts.get("waiting", counts.get("queued", 0))
    return int(waiting + counts.get("in_flight", 0) - counts.get("waitlisted", 0))


def lost(case: Case) -> Iterator[Fault]:
    """Everybody who was let into the line got a decision."""
    for place in case.testimony.places.values():
        if place.state in WAITING_STATES:
            yield Fault(f"request {place.request_id} was admitted and is still {place.state or 'without a state'}")
        elif any(answer.status == NOT_FOUND for answer in place.no_answers):
            yield Fault(f"request {place.request_id} was admitted and then not known any more")
    stranded = in_line(case.after)
    if stranded > 0:
        yield Fault(f"{stranded} requests are still in line at rest", stranded)
    decided = sum(place.state not in WAITING_STATES for place in case.testimony.places.values())
    missing = decided - case.grown("decided")
    if case.after and missing > 0:
        yield Fault(f"buyers saw {decided} decisions, the books have {case.grown('decided')}", missing)


def from_nowhere(case: Case) -> Iterator[Fault]:
    """Nothing was decided that nobody asked for."""
    asked = len(case.testimony.places)
    asked += sum(wish.may_have_been_admitted and not wish.ids for wish in case.testimony.wishes)
    excess = case.grown("decided") - asked
    if case.after and excess > 0:
        yield Fault(f"the books have {case.grown('decided')} decisions, buyers can account for {asked}", excess)
    for place in case.testimony.places.values():
        strangers = {seen.buyer for seen in place.sightings} - {wish.buyer for wish in place.wishes} - {""}
        if strangers:
            yield Fault(f"request {place.request_id} was shown to {_list(strangers)}, who never asked for it")


def out_of_order(case: Case) -> Iterator[Fault]:
    """Who had an answer before another asked stands before them in line."""
    by_clock: dict[str, list[Place]] = defaultdict(list)
    for place in case.testimony.places.values():
        if place.seqs:
            by_clock[place.sightings[0].clock].append(place)
    for places in by_clock.values():
        yield from _overtaken(places)


def _overtaken(places: list[Place]) -> Iterator[Fault]:
    """Find places whose seq is not above that of one answered before they were asked for; all times on one clock."""
    answered = sorted(places, key=lambda place: place.told_seq_ns())
    times = [place.told_seq_ns() for place in answered]
    furthest = list(accumulate(answered, _further))
    for place in places:
        earlier = bisect_left(times, min(wish.could_begin_ns for wish in place.wishes))
        ahead = furthest[earlier - 1] if earlier else None
        if ahead is not None and ahead is not place and max(ahead.seqs) >= min(place.seqs):
            seqs = f"(seq {min(place.seqs)}) overtook {ahead.request_id} (seq {max(ahead.seqs)})"
            yield Fault(f"request {place.request_id} {seqs}")


def _further(one: Place, other: Place) -> Place:
    """Return the one that stands further back in line."""
    return other if max(other.seqs) > max(one.seqs) else one


def told_wrongly(case: Case) -> Iterator[Fault]:
    """Nobody was told one thing and another later, and nobody was told of units the books did not give."""
    for place in case.testimony.places.values():
        if len(place.seqs) != 1:
            yield Fault(f"request {place.request_id} was told {len(place.seqs)} places in line: {_list(place.seqs)}")
        yield from _took_back(place)
    for wish in case.testimony.wishes:
        firsts = sum(ask.outcome == OK and ask.status == ADMITTED for ask in wish.asks)
        if firsts > 1:
            yield Fault(f"key {wish.key} of buyer {wish.buyer} was called new {firsts} times")
        if wish.ids and wish.last_no and _no_after_yes(wish.asks):
            yield Fault(f"key {wish.key} of buyer {wish.buyer} was refused ({wish.last_no}) after it had been admitted")
    told, given = case.units_told(HELD_STATES), case.count("held") + case.count("sold")
    if case.after and told > given:
        yield Fault(f"buyers were told of {told} units, the books gave {given}", told - given)


def _took_back(place: Place) -> Iterator[Fault]:
    """Find a state that cannot follow the one a client had already been told when it asked."""
    for number, later in enumerate(place.sightings):
        before = (seen for seen in reversed(place.sightings[:number]) if seen.ended_ns < later.began_ns)
        earlier = next(before, later)
        if later.state not in FOLLOWERS.get(earlier.state, frozenset()) | {earlier.state}:
            yield Fault(f"request {place.request_id} was told {earlier.state}, then {later.state or 'nothing'}")


def _no_after_yes(asks: list[Any]) -> bool:
    first_yes_ns = min(ask.ended_ns for ask in asks if ask.outcome == OK)
    later = [ask for ask in asks if ask.began_ns > first_yes_ns]
    return any(ask.code in ("sold_out", "limit_reached") for ask in later)


def undersold(case: Case) -> Iterator[Fault]:
    """Nobody was told "sold out" while units stayed free to the end."""
    if not case.after:
        return
    results = ((wish.quantity, case.testimony.result_of(wish)) for wish in case.testimony.wishes)
    sent_away = [quantity for quantity, result in results if result in ("sold_out", "waitlisted")]
    # Units that came back after somebody was sent away are no fault of that answer.
    came_back = case.units_told(GIVEN_STATES) - case.units_told(HELD_STATES)
    free = case.count("available") - came_back
    if sent_away and free >= min(sent_away):
        yield Fault(f"{free} units are free, {len(sent_away)} wishes were sent away", free)


def limit_broken(case: Case) -> Iterator[Fault]:
    """No buyer has more units than the sale allows."""
    units: dict[str, int] = defaultdict(int)
    for place in case.testimony.places.values():
        if place.state in HELD_STATES and place.wishes:
            units[place.wishes[0].buyer] += place.units
    for buyer, count in units.items():
        if count > case.per_buyer_limit:
            excess = count - case.per_buyer_limit
            yield Fault(f"buyer {buyer} has {count} units, the limit is {case.per_buyer_limit}", excess)


def vacuous(case: Case) -> Iterator[Fault]:
    """The run was a test at all: units were held, the sale ran out, clicks were repeated."""
    asks = case.testimony.asks
    seen = {
        "nobody asked": bool(asks),
        "nobody was admitted": bool(case.testimony.places),
        "nobody got a unit": any(place.state in GIVEN_STATES for place in case.testimony.places.values()),
        "nobody was told it was sold out": "sold_out" in case.testimony.results(),
    }
    yield from (Fault(missing) for missing, found in seen.items() if not found)


def no_repeats(asks: list[Operation]) -> Iterator[Fault]:
    """Clicks were repeated: at once, after the answer, and for a request that was already in line."""
    seen = {
        "no double click was sent": any(ask.click == "double" for ask in asks),
        "nobody asked again after an answer": any(ask.click == "again" for ask in asks),
        "no repeat met an admitted request": any(ask.outcome == OK and ask.status == OK_STATUS for ask in asks),
    }
    yield from (Fault(missing) for missing, found in seen.items() if not found)


def unexpected(case: Case) -> Iterator[Fault]:
    """Every answer is one the contract foresees, and every unknown answer was cleared up by asking again."""
    for answer, count in unforeseen_answers(case.testimony.operations).items():
        yield Fault(f"{count} × {answer}", count)
    for wish in case.testimony.wishes:
        if all(ask.outcome == UNKNOWN for ask in wish.asks) and wish.asks[-1].code != STOPPED:
            yield Fault(f"key {wish.key} of buyer {wish.buyer} never got a definite answer")


def unforeseen_answers(operations: Iterable[Operation]) -> dict[str, int]:
    """Count the answers that the contract does not know; a missing answer is not one of them."""
    counts: dict[str, int] = defaultdict(int)
    for operation in operations:
        if operation.status and not is_foreseen(operation):
            counts[f"{operation.status} {operation.code} to {operation.kind}"] += 1
    return dict(counts)


def _list(things: set[Any]) -> str:
    return ", ".join(str(thing) for thing in sorted(things)[:3])


CHECKS: dict[str, Check] = {
    "oversold": oversold,
    "sold twice": sold_twice,
    "lost": lost,
    "from nowhere": from_nowhere,
    "out of order": out_of_order,
    "told wrongly": told_wrongly,
    "undersold": undersold,
    "limit broken": limit_broken,
    "unforeseen answer": unexpected,
    "vacuous": vacuous,
    "audit missing": audit_given,
    "audit broken": audit_holds,
}
