"""All that is known about one sale of a flood: what its clients say, and what the shop's audit said before and after.
Never judges. Called by the checks and by whoever waits for the shop to be at rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loadtest.testimony import Testimony


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, in a sentence, and how many units or requests it concerns."""

    detail: str
    weight: int = 1


@dataclass(slots=True, kw_only=True)
class Case:
    """All that is known about one sale: from its clients, and from the shop before and after."""

    testimony: Testimony
    sku: str = ""
    per_buyer_limit: int = 1
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)

    def count(self, name: str) -> int:
        """Return a count of the audit at rest."""
        return int(self.after.get("counts", {}).get(name) or 0)

    def grown(self, name: str) -> int:
        """Return by how much a count grew during the run."""
        return self.count(name) - int(self.before.get("counts", {}).get(name) or 0)

    def units_told(self, states: frozenset[str]) -> int:
        """Return how many units the clients were told they have, by the last state of each place."""
        return sum(place.units for place in self.testimony.places.values() if place.state in states)


Check = Callable[[Case], Iterator[Fault]]


def in_line(audit: dict[str, Any]) -> int:
    """Return how many requests an audit still finds without a decision."""
    counts = audit.get("counts", {})
    return int((counts.get("waiting", counts.get("queued")) or 0) + (counts.get("in_flight") or 0))


def not_at_rest(audit: dict[str, Any]) -> int:
    """Return how many requests and held units an audit finds of which something is still to become."""
    return in_line(audit) + int(audit.get("counts", {}).get("held") or 0)
