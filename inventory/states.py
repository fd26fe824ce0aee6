"""Names every state of a request and its reasons, its letter in Redis, and every allowed change. Decides nothing.
A database trigger holds orders to the same table.
"""

from __future__ import annotations

from enum import StrEnum

_ = str  # marks a text for translation: Django's own mark wants settings, which not every program has


class State(StrEnum):
    """Where a request stands; the words are fixed by the HTTP contract."""

    QUEUED = "queued"
    WAITLISTED = "waitlisted"
    STANDBY = "standby"
    HELD = "held"
    PAID = "paid"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SOLD_OUT = "sold_out"
    REFUSED = "refused"
    REFUNDED = "refunded"

    @property
    def letter(self) -> str:
        """The state as one byte, the first of a record in Redis."""
        return _LETTER[self]

    def may_become(self, other: State) -> bool:
        """Say whether a request in this state may go over to `other` (I13)."""
        return other in ALLOWED[self]


class Reason(StrEnum):
    """Why the shop brought an order into its state; staff write texts of their own.

    Stored in orders, payments and their history: a value never changes.
    """

    LIMIT_REACHED = _("limit_reached")
    DEAD_LETTER = _("dead_letter")
    LEFT_THE_LINE = _("left_the_line")
    DISCARDED_BY_STAFF = _("discarded_by_staff")
    NOT_PAID_IN_TIME = _("not paid in time")
    CANCELLED_BY_BUYER = _("cancelled by the buyer")
    PAID_LATE = _("paid late")
    TOO_LATE_UNITS_GONE = _("paid too late: the units went to the next in line")
    TOO_LATE_LIMIT_REACHED = _("paid too late: the buyer has other units, up to the limit")
    REFUNDED_BY_PROVIDER = _("given back by the payment provider")
    NEVER_COLLECTED = _("nothing was collected in time")
    HOLD_IS_OVER = _("the hold is over")
    TOO_MANY_DECLINED = _("too many cards were declined")
    TAKEN_BY_BANK = _("the buyer's bank took this money in a dispute")
    REFUND_FAILED = _("the buyer's bank did not take the refund")
    BROUGHT_BACK = _("brought_back")


class PauseReason(StrEnum):
    """Why the shop itself paused a sale; buyers read it. Staff write texts of their own. A value never changes."""

    AFTER_RESTORE = _("We restored our books from a backup and are checking every order before we sell on.")


# Brings orders back into a restored database: what was free at their decision is not known any more (I9).
AFTER_RESTORE = "after_restore"


# The money came after the hold had ended, and bought nothing.
TOO_LATE = frozenset({Reason.TOO_LATE_UNITS_GONE, Reason.TOO_LATE_LIMIT_REACHED})
_LETTER = {
    State.QUEUED: "q",
    State.WAITLISTED: "w",
    State.STANDBY: "b",
    State.HELD: "h",
    State.PAID: "p",
    State.EXPIRED: "e",
    State.CANCELLED: "c",
    State.SOLD_OUT: "s",
    State.REFUSED: "r",
    State.REFUNDED: "f",
}
STATE_OF_LETTER = {letter: state for state, letter in _LETTER.items()}

# An order begins in one of these: a request that only waits has no order.
FIRST_STATES = frozenset({State.HELD, State.SOLD_OUT, State.REFUSED, State.CANCELLED})
# The life of a request. Every edge leads to a higher rank (see RANK), so no life has a circle, and the answer that
# comes late to Redis is recognised by its rank alone.
ALLOWED: dict[State, frozenset[State]] = {
    State.QUEUED: FIRST_STATES | {State.WAITLISTED},
    State.WAITLISTED: FIRST_STATES,
    State.STANDBY: FIRST_STATES,
    State.HELD: frozenset({State.PAID, State.EXPIRED, State.CANCELLED}),
    State.EXPIRED: frozenset({State.PAID, State.REFUNDED}),  # a payment that came late: the unit again, or the money
    State.CANCELLED: frozenset({State.REFUNDED}),
    State.PAID: frozenset({State.REFUNDED}),
    State.SOLD_OUT: frozenset(),
    State.REFUSED: frozenset(),
    State.REFUNDED: frozenset(),
}
# scripts/line/settle.lua holds the same ranks by letter.
RANK = {
    State.QUEUED: 0,
    State.WAITLISTED: 0,
    State.STANDBY: 0,
    State.HELD: 1,
    State.EXPIRED: 2,
    State.CANCELLED: 2,
    State.SOLD_OUT: 2,
    State.REFUSED: 2,
    State.PAID: 3,
    State.REFUNDED: 4,
}

# Units of these states count against the buyer's limit.
LIVE_STATES = frozenset({State.QUEUED, State.WAITLISTED, State.STANDBY, State.HELD, State.PAID})
# A request in one of these waits for a decision.
WAITING_STATES = frozenset({State.QUEUED, State.WAITLISTED, State.STANDBY})
