"""Lists every life a request may have, from the table of allowed changes, and the movements each must have made. Pure.
History, orders and ledger are held to this one table.

A change is one bit, so the changes of a life are one number; a movement is one in a byte of its kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from inventory.states import State

Change = tuple[State, State]

# A request waits as queued, whatever it is told, until it is decided; so does one on standby.
CHANGES: list[Change] = [
    (was, now)
    for was in State
    for now in State
    if was.may_become(now) and not {State.WAITLISTED, State.STANDBY} & {was, now}
]
UNKNOWN_CHANGE = 1 << 30
# What a change does to the free units of its SKU, and the movement it must leave. Other changes move nothing.
MOVEMENTS: dict[Change, tuple[str, int]] = {
    (State.QUEUED, State.HELD): ("hold", -1),
    (State.HELD, State.EXPIRED): ("release", 1),
    (State.HELD, State.CANCELLED): ("release", 1),
    (State.EXPIRED, State.PAID): ("retake", -1),
    (State.PAID, State.REFUNDED): ("return", 1),
}
MARKS = {"hold": 1, "release": 1 << 8, "retake": 1 << 16, "return": 1 << 24}
MARKS_TWICE = 0xFEFEFEFE  # set when a request has two movements of one kind


class Life(NamedTuple):
    """One way through the states. edges: its changes, a bit each; marks: the movements it makes."""

    edges: int
    last: str
    marks: int


def lives() -> list[Life]:
    """Return every life that is allowed, from being decided on."""
    return [_life(states) for states in _ways([State.QUEUED]) if len(states) > 1]


def _ways(states: list[State]) -> Iterator[list[State]]:
    yield states
    for now in State:
        if (states[-1], now) in CHANGES:
            yield from _ways([*states, now])


def _life(states: list[State]) -> Life:
    changes = list(pairwise(states))
    edges = sum(bit_of(*change) for change in changes)
    marks = sum(MARKS[MOVEMENTS[change][0]] for change in changes if change in MOVEMENTS)
    return Life(edges, states[-1].value, marks)


def bit_of(was: State, now: State) -> int:
    """Return the bit of the change `was` → `now`."""
    return 1 << CHANGES.index((was, now))


def changes_from(*states: State) -> int:
    """Return the bits of the changes that leave one of `states`."""
    return sum(1 << number for number, (was, _) in enumerate(CHANGES) if was in states)


def bit_of_change() -> str:
    """Return an SQL expression: the bit of the change from_state → to_state."""
    whens = (
        f"WHEN from_state = '{was}' AND to_state = '{now}' THEN {1 << number}"
        for number, (was, now) in enumerate(CHANGES)
    )
    return f"CASE {' '.join(whens)} ELSE {UNKNOWN_CHANGE} END"


def units_freed() -> str:
    """Return an SQL expression: how many units the change of `bit` makes free, of `quantity`."""
    whens = (f"WHEN {bit_of(*change)} THEN {sign} * quantity" for change, (_, sign) in MOVEMENTS.items())
    return f"CASE bit {' '.join(whens)} ELSE 0 END"


def mark_of_movement() -> str:
    """Return an SQL expression: the mark of a movement's kind, NULL for those that belong to no request."""
    return f"CASE kind {' '.join(f'''WHEN '{kind}' THEN {mark}''' for kind, mark in MARKS.items())} END"


def last_state() -> str:
    """Return an SQL expression: where a request whose changes are `edges` stands, NULL when no life has them."""
    return f"CASE edges {' '.join(f'WHEN {each.edges} THEN ' + repr(each.last) for each in lives())} END"


def marks_due() -> str:
    """Return an SQL expression: the movements that a request whose changes are `edges` has made."""
    return f"CASE edges {' '.join(f'WHEN {each.edges} THEN {each.marks}' for each in lives())} END"
