"""All that is known about one sale of a flood: what its clients say, and what the shop's audit said before and after.
Never judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loadtest.checker.buyer_record import BuyerRecord
from loadtest.checker.intervals import units_at_rest
from loadtest.record.expectations import FULL_SET

# What an audit must count; a shop without a line counts nobody in it.
COUNTS = ("total", "available", "held", "sold", "queued", "in_flight", "decided")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, in a sentence, and how many units or requests it concerns."""

    detail: str
    weight: int = 1


@dataclass(slots=True, kw_only=True)
class Case:
    """All that is known about one sale: from its clients, and from the shop before and after."""

    record: BuyerRecord
    sku: str = ""
    per_buyer_limit: int = 1  # units; 0: not known, and left to the books
    per_network_limit: int = 0  # units; 0: none, or not known
    expects: frozenset[str] = FULL_SET  # what the run must have shown
    margin_ns: int | None = None  # between times of two clocks that may be compared; None: they may not
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)

    @property
    def missing_counts(self) -> list[str]:
        """The counts that the audit at rest should have and has not."""
        return [name for name in COUNTS if name not in self.after.get("counts", {})]

    @property
    def has_books(self) -> bool:
        """Say whether the shop's books can be compared with anything."""
        return not self.missing_counts

    def count(self, name: str) -> int:
        """Return a count of the audit at rest."""
        return int(self.after.get("counts", {}).get(name) or 0)

    def grown(self, name: str) -> int:
        """Return by how much a count grew during the run."""
        return self.count(name) - int(self.before.get("counts", {}).get(name) or 0)

    @property
    def loaded(self) -> int:
        """How many units staff put into stock during the run; 0 where nobody looked both before and after it.

        Where the audit does not count them: how many more there are.
        """
        counted = "put_in" if "put_in" in self.before.get("counts", {}) else "total"
        return max(0, self.grown(counted)) if self._knows_stock else 0

    @property
    def taken_away(self) -> int:
        """How many units staff took out of stock during the run; 0 where nobody looked both before and after it."""
        return self.loaded - self.grown("total") if self._knows_stock else 0

    @property
    def _knows_stock(self) -> bool:
        return all("total" in audit.get("counts", {}) for audit in (self.before, self.after))

    @property
    def sold_before(self) -> int:
        """How many units were sold before the run, and stay sold; 0 where nobody looked before it."""
        return self.count("sold") - self.grown("sold")

    def units_told(self) -> int:
        """Return how many units buyers were told they have in the end, held or paid."""
        return units_at_rest(self.record.places.values())

    def units_paid(self) -> int:
        """Return how many units buyers were told are theirs for good."""
        return sum(place.units for place in self.record.places.values() if place.state == "paid")

    def units_unknown(self) -> int:
        """Return how many units may be with somebody who was never told so: each unknown maps to none or to one."""
        wishes = sum(wish.quantity for wish in self.record.wishes if wish.may_have_been_admitted and not wish.ids)
        return wishes + sum(place.units for place in self.record.places.values() if place.open_ended)


Check = Callable[[Case], Iterator[Fault]]


def in_line(audit: dict[str, Any]) -> int:
    """Return how many requests an audit still finds without a decision."""
    counts = audit.get("counts", {})
    return int((counts.get("waiting", counts.get("queued")) or 0) + (counts.get("in_flight") or 0))


def not_at_rest(audit: dict[str, Any]) -> int:
    """Return how many requests and held units an audit finds of which something is still to become."""
    return in_line(audit) + int(audit.get("counts", {}).get("held") or 0)


def listed(things: set[Any]) -> str:
    """Return the first few of some things, for the text of a fault."""
    return ", ".join(str(thing) for thing in sorted(things)[:3])
