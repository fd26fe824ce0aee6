"""Turns a request into what its buyer sees: place, estimate, hold, bill, the timeline of what happened.
Never reads a store and never decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from django.utils.safestring import mark_safe
from django.utils.translation import gettext

from inventory.states import TOO_LATE, WAITING_STATES, PauseReason, Reason, State
from shop.orders.status import eta_range_seconds, is_out_of_reach
from shop.orders.ticket_links import qr_code
from shop.web.sale_presenter import SaleFace, clock, grouped, milliseconds, money

if TYPE_CHECKING:
    from inventory.line.reading import LineFigures
    from shop.models import OrderEvent
    from shop.orders.deliveries import Delivery
    from shop.orders.requests import RequestView
    from shop.payments.checkout import Bill

FIRST_POLL_MS = 1_000
HELD_POLL_MS = 15_000
LATE_STATES = {State.EXPIRED, State.CANCELLED}
LATE_FOR = timedelta(minutes=10)
# Of a cancelled order: its buyer ended it. Staff who do so say why, and after a restore nobody knows who did.
GIVEN_UP = ("", Reason.CANCELLED_BY_BUYER)


def rough(seconds: int) -> str:
    """Return a length of time nobody should count on to the second; ticket.js writes the same form."""
    if seconds < 90:
        return gettext("%(n)d s") % {"n": seconds}
    return gettext("%(n)d min") % {"n": math.ceil(seconds / 60)}


class Step(NamedTuple):
    """One line of a request's timeline."""

    what: str
    at: datetime


@dataclass(frozen=True)
class TicketFace:
    """A request as its buyer sees it, as of one moment of the server's clock."""

    ticket: RequestView
    sale: SaleFace
    now: datetime
    bill: Bill | None = None
    figures: LineFigures | None = None
    decided_per_second: float = 0.0
    events: Sequence[OrderEvent] = ()
    proof: str = ""
    link: str = ""
    by_link: bool = False
    mail_address: str = ""
    delivery: Delivery | None = None

    @property
    def waits(self) -> bool:
        return self.ticket.state in WAITING_STATES

    @property
    def won(self) -> bool:
        return self.ticket.state in {State.HELD, State.PAID}

    @property
    def poll_after_ms(self) -> int:
        """When ticket.js asks first; every answer then names the next time. 0: nothing can change any more."""
        if self.waits or self.payment_begun or self.is_over:
            # A browser opened by the link is unknown to the API: ticket.js loads the page each time, which costs more.
            return 1000 * self.refresh_seconds if self.by_link else FIRST_POLL_MS
        return HELD_POLL_MS if self.ticket.state == State.HELD else 0

    @property
    def refresh_seconds(self) -> int:
        """When a page without script loads itself again, 0 never: soon near the front, and when the hold has ended."""
        if self.waits or self.payment_begun or self.is_over:
            return 10 if self.ticket.state == State.STANDBY else min(10, 2 + (self.ticket.position or 0) // 500)
        ends = self.ticket.hold_expires_at
        if self.ticket.state == State.HELD and ends is not None:
            return math.ceil((ends - self.now).total_seconds()) + 2
        return 0

    @property
    def own_pause_reason(self) -> str:
        """What the API may give as the reason, in English: ticket.js shows its translation, which the page carries."""
        return PauseReason.AFTER_RESTORE

    @property
    def position(self) -> str:
        return grouped(self.ticket.position) if self.ticket.position else ""

    @property
    def is_over(self) -> bool:
        """The hold has run out, and nobody has ended it yet: that takes a moment."""
        ends = self.ticket.hold_expires_at
        return self.ticket.state == State.HELD and ends is not None and ends <= self.now

    @property
    def shown(self) -> str:
        """What this ticket shows, in a word: a page that shows the same need not be put in again."""
        payment = self.bill.payment_state if self.bill else ""
        place = str(self.ticket.position) if self.by_link and self.ticket.position else ""
        kept = self.delivery.address if self.delivery else None
        sent_to = str(milliseconds(kept.changed_at)) if kept else ""
        return " ".join(filter(None, (self.ticket.state, payment, self.sale.state, place, sent_to)))

    @property
    def lacks_address(self) -> bool:
        """Its goods are sent, and it must be said where to before it can be paid."""
        return self.delivery is not None and self.delivery.address is None

    @property
    def qr_code(self) -> str:
        """The link as a drawing."""
        return mark_safe(qr_code(self.link))  # noqa: S308 - a drawing of our own, of numbers only

    @property
    def line_length(self) -> int:
        """How many wait, at least as many as the place says."""
        return max(self.figures.waiting if self.figures else 0, self.ticket.position or 0)

    @property
    def way(self) -> int:
        """How long the bar is: from the end of the line to its front."""
        return max(self.line_length - 1, 1)

    @property
    def passed(self) -> int:
        """How far the bar is filled: full at the front of the line."""
        place = self.ticket.position or 1
        return self.way if place == 1 else self.line_length - place

    @property
    def eta(self) -> tuple[int, int] | None:
        """Between how many seconds the turn is expected; None when no honest number is known."""
        if self.ticket.state != State.QUEUED or self.sale.state == "paused":
            return None
        low_high = eta_range_seconds(self.ticket.position or 0, self.decided_per_second)
        return (low_high[0], low_high[1]) if low_high else None

    @property
    def eta_text(self) -> str:
        if self.eta is None:
            return gettext("not known yet")
        low, high = self.eta
        return gettext("%(low)s to %(high)s") % {"low": rough(low), "high": rough(high)}

    @property
    def out_of_reach(self) -> bool:
        """More people are ahead than units can come free; of standby that is no news."""
        queues = self.waits and self.ticket.state != State.STANDBY
        return queues and bool(is_out_of_reach(self.ticket.position or 0, self.figures))

    @property
    def steps(self) -> list[Step]:
        """What happened to the request, with times: asked, then every change the books have of it."""
        steps = [Step(gettext("Asked"), self.asked_at)]
        steps += [Step(self.name_of(event), event.at) for event in self.events]
        if not self.events and self.ticket.decided_at:
            steps.append(Step(gettext("Decided"), self.ticket.decided_at))
        return steps

    def name_of(self, event: OrderEvent) -> str:
        """Return a change of the order in the buyer's words."""
        if event.to_state == State.CANCELLED and event.from_state != State.HELD:
            return gettext("You left the line")
        if event.to_state == State.PAID and event.from_state == State.EXPIRED:
            return gettext("Paid late, and the unit was still free")
        if event.to_state == State.CANCELLED and event.reason not in GIVEN_UP:
            return gettext("The hold was ended")
        return {
            State.HELD: gettext("Held for you"),
            State.PAID: gettext("Paid"),
            State.EXPIRED: gettext("The hold ran out"),
            State.CANCELLED: gettext("Given back"),
            State.SOLD_OUT: gettext("Sold out"),
            State.REFUSED: gettext("Refused"),
            State.REFUNDED: gettext("Your money goes back"),
        }[State(event.to_state)]

    @property
    def total(self) -> str:
        """What it costs: by the order's own terms, and before there is one, by those that it was promised."""
        if self.bill:
            return money(self.bill.amount, currency=self.bill.currency)
        return money(self.sale.card.price * self.ticket.quantity, currency=self.sale.card.currency)

    @property
    def unit_price(self) -> str:
        if self.bill:
            return money(self.bill.amount / self.ticket.quantity, currency=self.bill.currency)
        return self.sale.price

    @property
    def payment_begun(self) -> bool:
        """The buyer went to pay, and the provider has not said what came of it."""
        if self.bill is None or self.bill.payment_state != "pending":
            return False
        if self.ticket.state == State.HELD:
            return True
        # Money that comes late buys the unit again or goes back; nobody is watched for it for ever.
        ends = self.ticket.hold_expires_at
        return self.ticket.state in LATE_STATES and ends is not None and self.now - ends < LATE_FOR

    @property
    def nothing_was_charged(self) -> bool:
        """No payment was begun, or its provider ended it. A pending one may still be collected after days; so may one
        that the shop declined after too many cards, until its provider has ended its page.
        """
        if self.bill is None or self.bill.payment_state == "":
            return True
        return self.bill.payment_state == "declined" and self.bill.takes_cards

    @property
    def payment_declined(self) -> bool:
        return self.ticket.state == State.HELD and self.bill is not None and self.bill.payment_state == "declined"

    @property
    def takes_no_cards(self) -> bool:
        """Too many were declined for it to be paid; it stays held."""
        return self.ticket.state == State.HELD and self.bill is not None and not self.bill.takes_cards

    @property
    def refund_is_due(self) -> bool:
        """The money goes back, but the provider has not done it yet."""
        return self.bill is not None and self.bill.payment_state == "refund_due"

    @property
    def holds_ahead(self) -> int:
        """Units that are held and may still come back."""
        return self.figures.held if self.figures else 0

    @property
    def next_lapse(self) -> datetime | None:
        """When the first of the holds may end."""
        return self.sale.card.next_lapse_at

    @property
    def was_taken_back(self) -> bool:
        """The hold was ended before its time, and not by its buyer as far as is known."""
        return self.ticket.hold_expires_at is not None and self.ticket.reason not in GIVEN_UP

    @property
    def was_late(self) -> bool:
        return self.ticket.reason in TOO_LATE

    @property
    def was_over_limit(self) -> bool:
        """The payment came late, and the buyer had other units by then."""
        return self.ticket.reason == Reason.TOO_LATE_LIMIT_REACHED

    @property
    def asked_at(self) -> datetime:
        """The moment of admission: seq is the server's clock in microseconds."""
        return datetime.fromtimestamp(self.ticket.seq / 1_000_000, tz=UTC)

    @property
    def hold_ms(self) -> int:
        return milliseconds(self.ticket.hold_expires_at) if self.ticket.hold_expires_at else 0

    @property
    def hold_left(self) -> str:
        return clock(self.ticket.hold_expires_at - self.now) if self.ticket.hold_expires_at else ""

    @property
    def closed_first(self) -> bool:
        """It waited until the sale closed, and no unit had come free for it."""
        decided_at = self.ticket.decided_at
        return self.ticket.on_standby or (decided_at is not None and decided_at >= self.sale.card.closes_at)

    @property
    def refused_for_limit(self) -> bool:
        return self.ticket.reason == Reason.LIMIT_REACHED
