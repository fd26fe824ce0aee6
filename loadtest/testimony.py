"""Orders the clients' record: which wishes there were, which places they got, what each was told and when.
Never asks the shop and never judges. Called by the checks and by the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from loadtest.history import FAIL, OK, UNKNOWN, Operation

HELD_STATES = frozenset({"held", "paid"})  # units are with the buyer
GIVEN_STATES = HELD_STATES | {"expired", "cancelled"}  # units were with the buyer at some time
WAITING_STATES = frozenset({"", "queued"})
# What may follow what; a state that is missing here is the last one.
FOLLOWERS = {
    "queued": frozenset({"queued", "waitlisted", "held", "paid", "expired", "cancelled", "sold_out", "refused"}),
    "waitlisted": frozenset({"waitlisted", "held", "paid", "expired", "cancelled", "sold_out", "refused"}),
    "held": frozenset({"held", "paid", "expired", "cancelled"}),
}


@dataclass(slots=True)
class Wish:
    """Everything one buyer did under one idempotency key."""

    buyer: str
    sale: str
    key: str
    quantity: int
    asks: list[Operation] = field(default_factory=list)

    @property
    def ids(self) -> set[str]:
        """The request ids the shop gave for this wish; there must be one at most."""
        return {ask.request_id for ask in self.asks if ask.outcome == OK and ask.request_id}

    @property
    def may_have_been_admitted(self) -> bool:
        """Say whether the shop may know this wish, be it that the answer got lost."""
        return any(ask.outcome in (OK, UNKNOWN) for ask in self.asks)

    @property
    def last_no(self) -> str:
        """The code of the last definite refusal ("" when there is none)."""
        codes = [ask.code for ask in self.asks if ask.outcome == FAIL]
        return codes[-1] if codes else ""

    @property
    def could_begin_ns(self) -> int:
        """The earliest moment at which the shop may have admitted it: a definite no before that did not count."""
        return min(ask.began_ns for ask in self.asks if ask.outcome != FAIL)


@dataclass(slots=True)
class Place:
    """Everything the clients were told about one request id."""

    request_id: str
    sale: str
    wishes: list[Wish] = field(default_factory=list)
    sightings: list[Operation] = field(default_factory=list)  # in the order the answers came in
    no_answers: list[Operation] = field(default_factory=list)  # questions about it that were answered with a no

    @property
    def seqs(self) -> set[int]:
        """The places in line it was told; there must be exactly one."""
        return {sighting.seq for sighting in self.sightings if sighting.seq}

    @property
    def state(self) -> str:
        """The last state it was told."""
        return self.sightings[-1].state if self.sightings else ""

    @property
    def units(self) -> int:
        """How many units it asked for."""
        return self.wishes[0].quantity if self.wishes else 0

    def told_seq_ns(self) -> int:
        """When a client first knew its place in line."""
        return min(sighting.ended_ns for sighting in self.sightings if sighting.seq)

    def decided_ns(self) -> int:
        """When a client first saw it decided (0: never)."""
        return next((seen.ended_ns for seen in self.sightings if seen.state not in WAITING_STATES), 0)


class Testimony:
    """What the clients say about one sale."""

    __test__ = False  # its name begins like a test's

    def __init__(self, sale: str, operations: Iterable[Operation]) -> None:
        self.sale = sale
        self.operations = list(operations)

    @cached_property
    def asks(self) -> list[Operation]:
        """Every purchase attempt."""
        return [operation for operation in self.operations if operation.kind == "ask"]

    @cached_property
    def wishes(self) -> list[Wish]:
        """Every wish, in the order of its first click."""
        found: dict[tuple[str, str], Wish] = {}
        for ask in self.asks:
            wish = found.setdefault((ask.buyer, ask.key), Wish(ask.buyer, self.sale, ask.key, ask.quantity))
            wish.asks.append(ask)
        return list(found.values())

    @cached_property
    def places(self) -> dict[str, Place]:
        """Every place the clients were told of, by request id."""
        found: dict[str, Place] = {}
        for wish in self.wishes:
            for request_id in wish.ids:
                found.setdefault(request_id, Place(request_id, self.sale)).wishes.append(wish)
        for operation in sorted(self.operations, key=lambda operation: operation.ended_ns):
            place = found.get(operation.request_id)
            if place and operation.outcome == OK:
                place.sightings.append(operation)
            elif place and operation.outcome == FAIL:
                place.no_answers.append(operation)
        return found

    def results(self) -> dict[str, int]:
        """Count wishes by how they ended, so that the counts add up to all wishes."""
        counts: dict[str, int] = defaultdict(int)
        for wish in self.wishes:
            counts[self.result_of(wish)] += 1
        return dict(counts)

    def result_of(self, wish: Wish) -> str:
        """Say how a wish ended: held, sold_out, refused, waitlisted, waiting or unknown."""
        states = {self.places[request_id].state for request_id in wish.ids}
        if states & GIVEN_STATES:
            return "held"
        if states:
            state = min(states)
            return "waiting" if state in WAITING_STATES else state
        if wish.may_have_been_admitted and not wish.last_no:
            return "unknown"
        return "sold_out" if wish.last_no == "sold_out" else "refused"
