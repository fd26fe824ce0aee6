"""Orders the clients' record: which wishes there were, which places they got, what each was told and when.
Never asks the shop and never judges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from loadtest.record.history import FAIL, OK, UNKNOWN, Operation
from loadtest.users.contract import NONE_LEFT

HELD_STATES = frozenset({"held", "paid"})  # units are with the buyer
HOLD_ENDS = frozenset({"paid", "expired", "cancelled"})  # a hold ends in one of these, once
ENDED_STATES = frozenset({"expired", "cancelled", "refunded"})  # a hold has ended without a sale, or a place was left
WAITING_STATES = frozenset({"", "queued", "waitlisted", "standby"})
UNANSWERED_STATES = frozenset({"", "queued"})
# Answers of the provider's page, which knows nothing of requests.
STATELESS_KINDS = frozenset({"page", "choose"})
# What may change a request that is in line or held; a look changes nothing.
ACTS = frozenset({"pay", "begin", "choose", "cancel"})
# What a later look may find after an earlier one, however many states lie between; a missing state is the last one.
# Nobody who has paid in time ever sees anything but "paid": in a flood nobody gives goods back.
AFTER_HOLD = frozenset({"held", "paid", "expired", "cancelled", "refunded"})
DECISIONS = AFTER_HOLD | {"sold_out", "refused"}
FOLLOWERS = {
    "queued": DECISIONS | {"queued", "waitlisted"},
    "waitlisted": DECISIONS | {"waitlisted"},
    "standby": DECISIONS | {"standby"},
    "held": AFTER_HOLD,
    "expired": frozenset({"paid", "refunded"}),
    "cancelled": frozenset({"refunded"}),
}


@dataclass(slots=True)
class AskedWish:
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
    def network(self) -> str:
        """The network that it came from, '' when that was not written down."""
        return self.asks[0].network

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
class ToldPlace:
    """Everything the clients were told about one request id."""

    request_id: str
    sale: str
    wishes: list[AskedWish] = field(default_factory=list)
    sightings: list[Operation] = field(default_factory=list)  # in the order the answers came in
    no_answers: list[Operation] = field(default_factory=list)  # questions about it that were answered with a no
    calls: list[Operation] = field(default_factory=list)  # other calls that were answered with a yes
    unknowns: list[Operation] = field(default_factory=list)  # acts that may or may not have happened

    @property
    def seqs(self) -> set[int]:
        """The places in line it was told; there must be exactly one."""
        return {sighting.seq for sighting in self.sightings if sighting.seq}

    @property
    def first_seq(self) -> int:
        """The place in line it was told first; another one later is a fault of what was told, not of the order."""
        return next((seen.seq for seen in self.sightings if seen.seq), 0)

    @property
    def state(self) -> str:
        """The last state it was told."""
        return self.sightings[-1].state if self.sightings else ""

    @property
    def units(self) -> int:
        """How many units it asked for."""
        return self.wishes[0].quantity if self.wishes else 0

    @property
    def clock(self) -> str:
        """Whose clock its first click is on."""
        return self.wishes[0].asks[0].clock if self.wishes else ""

    @property
    def open_ended(self) -> bool:
        """Say whether more may have become of it than its client saw: the client died, or an act stayed unanswered."""
        if not self.sightings or self.state == "paid":
            return not self.sightings
        last = self.sightings[-1]
        if last.client_died and last.kind != "recheck":
            return True
        return any(act.ended_ns >= last.began_ns for act in self.unknowns)

    def was(self, state: str) -> bool:
        """Say whether it was ever seen in this state."""
        return any(sighting.state == state for sighting in self.sightings)

    @property
    def moved_up(self) -> bool:
        """Say whether it was told to wait for a unit that may come back, and got one."""
        return (self.was("waitlisted") or self.stood_by) and any(self.was(state) for state in HELD_STATES)

    @property
    def stood_by(self) -> bool:
        """Say whether it waited on standby."""
        return self.was("standby")

    @property
    def charged_late(self) -> bool:
        """Say whether its buyer paid at the provider's page: they wait there until the hold is over."""
        return any(call.kind == "choose" for call in self.calls)

    def told_ns(self, states: frozenset[str]) -> int:
        """When a client was first told one of `states` (0: never)."""
        return next((seen.ended_ns for seen in self.sightings if seen.state in states), 0)

    def told_seq_ns(self) -> int:
        """When its client first knew its place in line."""
        return min(seen.ended_ns for seen in self.sightings if seen.seq and seen.clock == self.clock)

    def answered_ns(self) -> int:
        """When a client first saw what became of it: a decision, or that it must wait for a unit (0: never)."""
        return next((seen.ended_ns for seen in self.sightings if seen.state not in UNANSWERED_STATES), 0)


class BuyerRecord:
    """What the clients say about one sale."""

    def __init__(
        self, sale: str, operations: Iterable[Operation], *, shifts_ns: Mapping[str, int] | None = None
    ) -> None:
        """shifts_ns: what to add to the times of each clock to put answers of several machines into a row."""
        self.sale = sale
        self.operations = list(operations)
        self.shifts_ns = shifts_ns or {}

    @cached_property
    def asks(self) -> list[Operation]:
        """Every purchase attempt."""
        return [operation for operation in self.operations if operation.kind == "ask"]

    @cached_property
    def wishes(self) -> list[AskedWish]:
        """Every wish, in the order of its first click."""
        found: dict[tuple[str, str], AskedWish] = {}
        for ask in self.asks:
            wish = found.setdefault((ask.buyer, ask.key), AskedWish(ask.buyer, self.sale, ask.key, ask.quantity))
            wish.asks.append(ask)
        return list(found.values())

    @cached_property
    def places(self) -> dict[str, ToldPlace]:
        """Every place the clients were told of, by request id."""
        found: dict[str, ToldPlace] = {}
        for wish in self.wishes:
            for request_id in wish.ids:
                found.setdefault(request_id, ToldPlace(request_id, self.sale)).wishes.append(wish)
        for operation in sorted(self.operations, key=self._ended_ns):
            place = found.get(operation.request_id)
            if place and operation.outcome == OK:
                (place.calls if operation.kind in STATELESS_KINDS else place.sightings).append(operation)
            elif place and operation.outcome == FAIL:
                place.no_answers.append(operation)
            elif place and operation.kind in ACTS:
                place.unknowns.append(operation)
        return found

    def _ended_ns(self, operation: Operation) -> int:
        return operation.ended_ns + self.shifts_ns.get(operation.clock, 0)

    def results(self) -> dict[str, int]:
        """Count wishes by how they ended, so that the counts add up to all wishes."""
        counts: dict[str, int] = defaultdict(int)
        for wish in self.wishes:
            counts[self.result_of(wish)] += 1
        return dict(counts)

    def result_of(self, wish: AskedWish) -> str:
        """Say how a wish ended: the state of its place, waiting, unknown, or sold_out or refused at admission."""
        states = {self.places[request_id].state for request_id in wish.ids}
        if states:
            state = min(states & HELD_STATES or states)
            return "waiting" if state in UNANSWERED_STATES else state
        if wish.may_have_been_admitted and not wish.last_no:
            return "unknown"
        return "sold_out" if wish.last_no in NONE_LEFT else "refused"
