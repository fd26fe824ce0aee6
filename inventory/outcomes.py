"""Names every state of a request and its one-letter form in Redis. Decides nothing. Called by every floor."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a request stands; the words are fixed by the HTTP contract."""

    QUEUED = "queued"
    WAITLISTED = "waitlisted"
    HELD = "held"
    PAID = "paid"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SOLD_OUT = "sold_out"
    REFUSED = "refused"

    @property
    def letter(self) -> str:
        """The state as one byte, the first of a record in Redis."""
        return _LETTER[self]


_LETTER = {
    State.QUEUED: "q",
    State.WAITLISTED: "w",
    State.HELD: "h",
    State.PAID: "p",
    State.EXPIRED: "e",
    State.CANCELLED: "c",
    State.SOLD_OUT: "s",
    State.REFUSED: "r",
}
STATE_OF_LETTER = {letter: state for state, letter in _LETTER.items()}

# Units of these states count against the buyer's limit.
LIVE_STATES = frozenset({State.QUEUED, State.WAITLISTED, State.HELD, State.PAID})
# A request in one of these waits for a decision.
WAITING_STATES = frozenset({State.QUEUED, State.WAITLISTED})
