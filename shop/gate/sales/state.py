"""One sale as a web process knows it: its card and what Redis last said of its stock. Never asks a store."""

from __future__ import annotations

import time

from inventory.line.reading import LineFigures
from inventory.redis import clocks
from shop.models import sale_state
from shop.replies import Head
from shop.sales.catalogue import SaleCard
from shop.sales.decision_rates import Sample, measure

FRESH_SECONDS = 0.25  # a sold-out answer from memory is never older
QUIET_SECONDS = 60.0  # so long after its end a sale is looked at as if it were open


class SaleEntry:
    """One sale as this process knows it: its card, the line's figures, and, when sold out, who was admitted."""

    def __init__(self, card: SaleCard) -> None:
        self.figures: LineFigures | None = None
        # How often something changed: anything, what concerns those who wait already, what the sale's page shows.
        self.changes = 0
        self.moves = 0
        self.shown = 0
        self.use(card)
        self.seen_at = 0.0
        self.is_due = True  # one look, however far its opening is, says whether anybody was let in
        # What is answered from memory when there is no room: code, head and body, of the look at this moment.
        self.refusal: tuple[str, Head, bytes]
        self.refused_at = -1.0
        self.known_buyers: frozenset[str] = frozenset()
        self.known_at_admitted = self.known_at_records = -1  # the figures before they were read
        self.admissions = 0  # how many this process was told of
        # At the last read of the catalogue: the look at Redis, and its stock version if the database's was newer.
        self._judged_at, self._old_stock = -1.0, -1
        self._sample: Sample | None = None

    def use(self, card: SaleCard) -> bool:
        """Take over `card`; say whether it differs from the one before."""
        changed = getattr(self, "card", None) != card
        self.card = card
        self.changes += changed
        self.moves += changed
        self.shown += changed
        self.opens = card.opens_at.timestamp()
        self.closes = card.closes_at.timestamp()
        self.request_key = card.request_id_key()
        return changed

    def see(self, figures: LineFigures | None, *, moment: float) -> bool:
        """Take over what Redis said and say whether it is news; moment: monotonic seconds at which it was asked."""
        before = self.figures
        changed = figures != before
        self.changes += changed
        # A request that joins behind changes nothing for those that are there.
        self.moves += changed and (
            figures is None
            or before is None
            or figures
            != before._replace(
                admitted=figures.admitted, queued=figures.queued, waiting=figures.waiting, records=figures.records
            )
        )
        self.shown += figures is not None and (before is None or figures.version != before.version)
        self.figures = figures
        self.seen_at, self.is_due = moment, False
        if figures is not None:
            self._sample = measure(self._sample, decided=figures.decided, at=moment)
        return changed

    @property
    def decided_per_second(self) -> float:
        """How fast the line was decided lately, 0 when that is not known."""
        return (self._sample and self._sample.rate) or 0.0

    def has_requests(self) -> bool:
        """Say whether anybody was let in, or waits or holds, by what Redis last said."""
        figures = self.figures
        return figures is not None and figures.admitted + figures.queued + figures.held > 0

    def may_come_free(self) -> bool:
        """Say whether units that are not sold were there when Redis last said so: free, or held."""
        return self.figures is not None and self.figures.available + self.figures.held > 0

    def is_surely_sold_out(self, buyer: str) -> bool:
        """Say whether a request may be refused from memory: no room, fresh, and of nobody who was admitted before."""
        figures = self.figures
        return (
            figures is not None
            and time.monotonic() - self.seen_at <= FRESH_SECONDS
            and self.known_at_admitted == figures.admitted
            # A place that came back with its ticket was admitted before: only the records tell of it.
            and self.known_at_records == figures.records
            and buyer not in self.known_buyers
            and self.is_sold_out()
        )

    def is_sold_out(self) -> bool:
        """Say whether this sale is open and has no room, by what Redis last said."""
        figures = self.figures
        if figures is None:
            return False
        may_be_had = figures.available + figures.held
        has_room = may_be_had > 0 and may_be_had + self.card.line_capacity > figures.queued
        return not has_room and self.state_at(clocks.seconds()) == "open"

    def forget_known_buyers(self) -> None:
        """Keep nobody's id: nobody is refused from memory now."""
        self.known_buyers, self.known_at_admitted, self.known_at_records = frozenset(), -1, -1

    def note_admission(self) -> None:
        """Forget the known buyers: one was admitted a moment ago, and their second click must reach the line."""
        self.known_at_admitted = -1
        self.admissions += 1

    def is_behind(self) -> bool:
        """Say whether Redis has an older revision, or the same older stock as at the previous read: it was never told.

        Called once a catalogue read. While batches are settled Redis is always a moment behind; that is no news, and
        a line that rested until now is behind too when its first batch has just been settled. Without a newer look at
        Redis nothing is known of it.
        """
        figures = self.figures
        if figures is None or self.seen_at == self._judged_at:
            return False
        self._judged_at = self.seen_at
        before, self._old_stock = self._old_stock, figures.version if figures.version < self.card.version else -1
        return figures.version == before or figures.revision < self.card.revision

    def state_at(self, moment: float) -> str:
        """Return scheduled, open, paused or closed as of `moment`, in seconds since 1970."""
        return sale_state(self.card.operator_state, opens=self.opens, closes=self.closes, moment=moment)

    def is_quiet(self, moment: float) -> bool:
        """Say whether this sale is over and nothing moves in its line any more, as of `moment` (seconds since 1970)."""
        figures = self.figures
        at_rest = figures is None or figures.queued == figures.held == 0
        return at_rest and self.state_at(moment) == "closed" and moment > self.closes + QUIET_SECONDS

    def opens_in_seconds(self) -> float:
        """Return the seconds until this sale opens, by the clock of the line."""
        return self.opens - clocks.seconds()
