"""The checks of a flood: each compares the clients' record of one sale with the shop's own audit of it.
Never asks anybody and never trusts a counter of the load generator.
Called by the verdict.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from loadtest.case import Case, Check, Fault, in_line
from loadtest.contract import ADMITTED, NOT_FOUND
from loadtest.history import OK
from loadtest.run_checks import unexpected, vacuous
from loadtest.testimony import ENDED_STATES, FOLLOWERS, HELD_STATES, WAITING_STATES, Place, Testimony

COUNTS = ("total", "available", "held", "sold", "queued", "in_flight", "decided")


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


def lost(case: Case) -> Iterator[Fault]:
    """Everybody who was let into the line got a decision; nobody waits for a unit at the end."""
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
    """Who had an answer before another asked stands before them in line, and nobody was passed over."""
    yield from _passed_over(case)
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


def _passed_over(case: Case) -> Iterator[Fault]:
    """Find who was told "sold out" in line while somebody behind them, who wanted as much, got units."""
    places = [place for place in case.testimony.places.values() if place.seqs and place.units]
    lucky = [place for place in places if any(place.was(state) for state in HELD_STATES)]
    for place in places:
        behind = (other for other in lucky if min(other.seqs) > max(place.seqs) and other.units >= place.units)
        if place.state == "sold_out" and (other := next(behind, None)):
            yield Fault(f"request {place.request_id} was sold out, {other.request_id} behind it got units")


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
    paid, sold = case.units_told(frozenset({"paid"})), case.grown("sold")
    if case.after and paid > sold:
        yield Fault(f"buyers were told that {paid} units are paid, the books sold {sold}", paid - sold)


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
    free = case.count("available")
    if not case.after or free <= 0:
        return
    ends = [
        (place.sightings[0].clock, place.told_ns(ENDED_STATES), place.units)
        for place in case.testimony.places.values()
        if place.state in ENDED_STATES
    ]
    for clock, told_ns, quantity in _sent_away(case.testimony):
        # Units that came back after somebody was sent away are no fault of that answer.
        later = sum(units for its_clock, ended_ns, units in ends if its_clock != clock or ended_ns > told_ns)
        if free - later >= quantity:
            yield Fault(f"{free} units are free, and somebody was sent away who wanted {quantity}", free)
            return


def _sent_away(testimony: Testimony) -> Iterator[tuple[str, int, int]]:
    """Yield of each wish that was told "sold out": on whose clock, when that was asked, how many units it wanted."""
    for wish in testimony.wishes:
        if testimony.result_of(wish) != "sold_out":
            continue
        in_line = [seen for name in wish.ids for seen in testimony.places[name].sightings if seen.state == "sold_out"]
        # In line it was decided once, and is told again and again; at the door each answer is a new one.
        told = in_line[0] if in_line else [ask for ask in wish.asks if ask.code == "sold_out"][-1]
        yield told.clock, told.began_ns, wish.quantity


def charged_for_nothing(case: Case) -> Iterator[Fault]:
    """Whoever paid has the goods or the money: no charge without goods."""
    for place in case.testimony.places.values():
        if place.charged_late and place.state not in ("paid", "refunded"):
            yield Fault(f"request {place.request_id} was paid for at the provider and is {place.state}")


def unaccounted(case: Case) -> Iterator[Fault]:
    """At rest every unit is sold or free, nothing is held, and the books sold what buyers were told is paid."""
    if not case.after:
        return
    held, free, sold, total = (case.count(name) for name in ("held", "available", "sold", "total"))
    if held:
        yield Fault(f"{held} units are still held at rest", held)
    elif sold + free != total:
        yield Fault(f"{sold} sold and {free} free are not {total}", abs(total - sold - free))
    unknown = sum(case.testimony.result_of(wish) == "unknown" for wish in case.testimony.wishes)
    excess = case.grown("sold") - case.units_told(frozenset({"paid"}))
    if excess > unknown:
        yield Fault(f"the books sold {case.grown('sold')} units, {excess} of them to nobody who says so", excess)


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
    "unaccounted": unaccounted,
    "charged for nothing": charged_for_nothing,
    "limit broken": limit_broken,
    "unforeseen answer": unexpected,
    "vacuous": vacuous,
    "audit missing": audit_given,
    "audit broken": audit_holds,
}
