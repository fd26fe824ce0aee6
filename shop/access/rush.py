"""Says whether requests for a sale, or new tokens, come faster in this process than its staff expect. Never asks a
store: each web process sees only what it serves itself.
"""

from __future__ import annotations

from time import monotonic

from shop.models import Sale
from shop.sales.catalogue import SaleCard

# A rush is over when it has been calm for so long.
RUSH_SECONDS = 30.0


class Counted:
    """How many came in this second and in the one before."""

    def __init__(self) -> None:
        self._second = self._now = self._before = 0

    def note(self) -> None:
        """Count one."""
        self._turn()
        self._now += 1

    def per_second(self) -> int:
        """Return the larger of the two counts."""
        self._turn()
        return max(self._now, self._before)

    def _turn(self) -> None:
        second = int(monotonic())
        if second != self._second:
            self._before = self._now if second == self._second + 1 else 0
            self._second, self._now = second, 0


class Rushes:
    """What one process has counted, and since when it was a rush. A count that two threads lose is no harm."""

    def __init__(self) -> None:
        self._tokens = Counted()
        self._asks: dict[int, Counted] = {}
        self._until: dict[int, float] = {}

    def note_token(self) -> None:
        """Count a new token that was asked for by the API: it may be for any sale."""
        self._tokens.note()

    def note_ask(self, card: SaleCard) -> None:
        """Count a request for units of a sale."""
        self._asks.setdefault(card.sale_id, Counted()).note()

    def is_on(self, card: SaleCard) -> bool:
        """Say whether it is a rush now, or was one a moment ago."""
        asks = self._asks.get(card.sale_id)
        fastest = max(self._tokens.per_second(), asks.per_second() if asks else 0)
        if fastest >= card.pass_rush:
            self._until[card.sale_id] = monotonic() + RUSH_SECONDS
        return monotonic() < self._until.get(card.sale_id, 0.0)


RUSHES = Rushes()


def asks_for_pass(card: SaleCard) -> bool:
    """Say whether a request for units of this sale needs a pass now."""
    if card.pass_mode == Sale.PassMode.RUSH:
        return RUSHES.is_on(card)
    return card.pass_mode == Sale.PassMode.ALWAYS
