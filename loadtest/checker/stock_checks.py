"""The checks of a flood: each compares the clients' record of one sale with the shop's own audit of it.
Never asks anybody and never trusts a counter of the load generator.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate

from loadtest.checker.answer_checks import hold_ended_twice, told_wrongly
from loadtest.checker.buyer_record import ENDED_STATES, WAITING_STATES, AskedWish, BuyerRecord, ToldPlace
from loadtest.checker.case import Case, Check, Fault, in_line, listed
from loadtest.checker.intervals import LAG_NS, units_at_once
from loadtest.checker.order_checks import out_of_order
from loadtest.checker.run_checks import inconclusive, unexpected
from loadtest.record.history import FAIL, Operation
from loadtest.users.contract import NONE_LEFT, NOT_FOUND


def audit_given(case: Case) -> Iterator[Fault]:
    """The shop's audit was read and has every count the verdict needs."""
    if not case.after:
        yield Fault("the shop's audit could not be read")
        return
    if case.missing_counts:
        yield Fault(f"the audit lacks {', '.join(case.missing_counts)}")


def audit_holds(case: Case) -> Iterator[Fault]:
    """Every invariant of the shop's own audit holds."""
    broken = [fault for _, fault in _broken(case)]
    yield from broken
    if case.after and not broken and not case.after.get("ok"):
        yield Fault("the audit says it is not in order and names no reason")


def oversold(case: Case) -> Iterator[Fault]:
    """No more units were given than there are, by the books and by what buyers were told."""
    if not case.has_books:
        return
    total, given = case.count("total"), case.count("held") + case.count("sold")
    # What was sold before is with buyers whom no record of this run has.
    told, before = units_at_once(case.record.places.values()), case.sold_before
    # What buyers had at one moment may have been taken away by staff after it; what they have at rest may not.
    had = before + max(case.units_told(), told - case.taken_away)
    excess = max(given, had, case.count("units_held")) - total
    if excess > 0:
        of_before = f" after {before} sold before" if before else ""
        yield Fault(f"{total} units, {given} given by the books, {told} told to buyers{of_before}", excess)
    elif case.count("available") < 0:
        yield Fault(f"{case.count('available')} units are free", -case.count("available"))


def sold_twice(case: Case) -> Iterator[Fault]:
    """No wish and no unit was sold a second time: a repeated click got the same place."""
    for wish in case.record.wishes:
        if len(wish.ids) > 1:
            yield Fault(f"key {wish.key} of buyer {wish.buyer} got {len(wish.ids)} requests: {listed(wish.ids)}")
    for place in case.record.places.values():
        if len({wish.buyer for wish in place.wishes}) > 1 or len({wish.key for wish in place.wishes}) > 1:
            yield Fault(f"request {place.request_id} was given to {len(place.wishes)} wishes")
    # The audit counts orders of this sale and units of its SKU, so only too many orders are a fault.
    excess = case.count("units_held") - case.count("held")
    if excess > 0:
        yield Fault(f"orders hold {case.count('units_held')} units, the stock row gave {case.count('held')}", excess)


def lost(case: Case) -> Iterator[Fault]:
    """Everybody who was let into the line got a decision; nobody waits for a unit at the end, on standby or not."""
    for place in case.record.places.values():
        # Where nobody asked on, the books alone know: it is due in them, below.
        if place.state in WAITING_STATES and not place.open_ended:
            yield Fault(f"request {place.request_id} was admitted and is still {place.state or 'without a state'}")
        elif any(answer.status == NOT_FOUND for answer in place.no_answers):
            yield Fault(f"request {place.request_id} was admitted and then not known any more")
    stranded = in_line(case.after)
    if stranded > 0:
        yield Fault(f"{stranded} requests are still in line at rest", stranded)
    told = sum(place.state not in WAITING_STATES for place in case.record.places.values())
    left_alone = sum(place.state in WAITING_STATES and place.open_ended for place in case.record.places.values())
    due = told + max(0, left_alone - stranded)
    missing = due - case.grown("decided")
    if case.has_books and missing > 0:
        yield Fault(f"{due} decisions are due to buyers, the books have {case.grown('decided')}", missing)


def from_nowhere(case: Case) -> Iterator[Fault]:
    """Nothing was decided that nobody asked for."""
    asked = len(case.record.places)
    asked += sum(wish.may_have_been_admitted and not wish.ids for wish in case.record.wishes)
    excess = case.grown("decided") - asked
    if case.has_books and excess > 0:
        yield Fault(f"the books have {case.grown('decided')} decisions, buyers can account for {asked}", excess)
    for place in case.record.places.values():
        strangers = {seen.buyer for seen in place.sightings} - {wish.buyer for wish in place.wishes} - {""}
        if strangers:
            yield Fault(f"request {place.request_id} was shown to {listed(strangers)}, who never asked for it")


def undersold(case: Case) -> Iterator[Fault]:
    """Nobody was told "sold out" while units stayed free to the end, or at the door while they had to be free."""
    yield from _shut_too_early(case)
    free = case.count("available")
    if not case.has_books or free <= 0:
        return
    ends = [
        (place.sightings[0].clock, place.told_ns(ENDED_STATES), place.units)
        for place in case.record.places.values()
        if place.state in ENDED_STATES and not place.open_ended
    ]
    # Units that staff loaded during the run may have come after that answer.
    unknown = case.units_unknown() + case.loaded
    for clock, told_ns, quantity in _sent_away(case.record):
        # Units that came back later are no fault of that answer, nor those of a moment before: a full line opens again
        # a third of a second after it got room.
        since_ns = told_ns - LAG_NS
        later = unknown + sum(units for its_clock, ended_ns, units in ends if its_clock != clock or ended_ns > since_ns)
        if free - later >= quantity:
            yield Fault(f"{free} units are free, and somebody was sent away who wanted {quantity}", free)
            return


def _shut_too_early(case: Case) -> Iterator[Fault]:
    """Find who was told at the door that nothing is left while all who may have been ahead wanted less than was free.

    What came back or was loaded meanwhile only adds to that; what staff took away may have been away then. Left out: a
    run that does not know what was free at first, or whose record lacks somebody who was let in.
    """
    counts, wishes = case.before.get("counts", {}), [w for w in case.record.wishes if w.may_have_been_admitted]
    if "available" not in counts or in_line(case.before) > 0:
        return
    if case.grown("decided") + in_line(case.after) > len(wishes):
        return
    free = int(counts["available"]) - case.taken_away
    told = [ask for ask in case.record.asks if ask.outcome == FAIL and ask.code in NONE_LEFT]
    too_early = sum(ahead + ask.quantity <= free for ask, ahead in zip(told, _ahead_of(told, wishes), strict=True))
    if too_early:
        yield Fault(
            f"{too_early} times somebody was told at the door that nothing is left, while units were", too_early
        )


def _ahead_of(asks: Iterable[Operation], wishes: Iterable[AskedWish]) -> Iterator[int]:
    """Yield of each ask for how many units others may have been let in before its end; of another clock all may."""
    begun: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for wish in wishes:
        begun[wish.asks[0].clock].append((wish.could_begin_ns, wish.quantity))
    times = {clock: sorted(began_ns for began_ns, _ in found) for clock, found in begun.items()}
    claimed = {clock: [0, *accumulate(units for _, units in sorted(found))] for clock, found in begun.items()}
    everything = sum(units[-1] for units in claimed.values())
    for ask in asks:
        units = claimed.get(ask.clock, [0])
        yield everything - units[-1] + units[bisect_left(times.get(ask.clock, []), ask.ended_ns)]


def _sent_away(record: BuyerRecord) -> Iterator[tuple[str, int, int]]:
    """Yield of each wish that was told "sold out": on whose clock, when that was asked, how many units it wanted."""
    for wish in record.wishes:
        if record.result_of(wish) != "sold_out":
            continue
        in_line = [seen for name in wish.ids for seen in record.places[name].sightings if seen.state == "sold_out"]
        # In line it was decided once, and is told again and again; at admission each answer is a new one.
        told = in_line[0] if in_line else [ask for ask in wish.asks if ask.code in NONE_LEFT][-1]
        yield told.clock, told.began_ns, wish.quantity


def charged_for_nothing(case: Case) -> Iterator[Fault]:
    """Every payment got its unit or a refund: no charge without goods."""
    for place in case.record.places.values():
        if place.charged_late and not place.open_ended and place.state not in ("paid", "refunded"):
            yield Fault(f"request {place.request_id} was paid for at the provider and is {place.state}")


def unaccounted(case: Case) -> Iterator[Fault]:
    """At rest every unit is sold or free, nothing is held, and the books sold what buyers were told is paid."""
    if not case.has_books:
        return
    held, free, sold, total = (case.count(name) for name in ("held", "available", "sold", "total"))
    if held:
        yield Fault(f"{held} units are still held at rest", held)
    elif sold + free != total:
        yield Fault(f"{sold} sold and {free} free are not {total}", abs(total - sold - free))
    excess = case.grown("sold") - case.units_paid()
    if excess > case.units_unknown():
        yield Fault(f"the books sold {case.grown('sold')} units, {excess} of them to nobody who says so", excess)


def limit_broken(case: Case) -> Iterator[Fault]:
    """No buyer had more units than the sale allows, at any moment."""
    by_buyer: dict[str, list[ToldPlace]] = defaultdict(list)
    for place in case.record.places.values():
        by_buyer[place.wishes[0].buyer].append(place)
    limit = case.per_buyer_limit
    for buyer, places in by_buyer.items():
        # Most buyers have one place within the limit: only the others are looked at closely.
        if limit and sum(place.units for place in places) > limit and (count := units_at_once(places)) > limit:
            yield Fault(f"buyer {buyer} had {count} units, the limit is {limit}", count - limit)


def network_limit_broken(case: Case) -> Iterator[Fault]:
    """No network was let in for more units than the sale allows one, whatever became of them."""
    let_in: dict[str, int] = defaultdict(int)
    for place in case.record.places.values():
        let_in[place.wishes[0].network] += place.units
    limit = case.per_network_limit
    for network, units in let_in.items():
        if network and limit and units > limit:
            yield Fault(f"network {network} was let in for {units} units, the limit is {limit}", units - limit)


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
    "network limit broken": network_limit_broken,
    "hold ended twice": hold_ended_twice,
    "unforeseen answer": unexpected,
    "inconclusive": inconclusive,
    "audit missing": audit_given,
    "audit broken": audit_holds,
}
# The invariants of the audit that say of the books what a check says of the clients' record.
IN_THE_BOOKS = {
    "oversold": ("I1",),
    "sold twice": ("I3", "I14"),
    "lost": ("I4",),
    "from nowhere": ("I5b",),
    "out of order": ("I8",),
    "told wrongly": ("I19",),
    "undersold": ("I9",),
    "charged for nothing": ("I12",),
    "limit broken": ("I7",),
    "hold ended twice": ("I10",),
}


def faults_of(name: str, case: Case) -> Iterator[Fault]:
    """Run one check; where the clients saw nothing, the books may have."""
    found = False
    for fault in CHECKS[name](case):
        found = True
        yield fault
    if not found:
        yield from (told for number, told in _broken(case) if number in IN_THE_BOOKS.get(name, ()))


def _broken(case: Case) -> Iterator[tuple[str, Fault]]:
    for invariant in case.after.get("invariants", []):
        if not invariant.get("ok"):
            number = str(invariant.get("id"))
            yield number, Fault(f"{number} {invariant.get('name')}: {invariant.get('detail')}")
