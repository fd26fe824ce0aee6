"""Counts and times in plain numbers, in the memory of one process. Formats nothing, locks nothing, asks nobody.

Counting is a part of the hot path, so it is one addition. Two threads that count the same thing in the same instant
may lose one of the two; what is counted by the thousand is counted by one thread.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence

# Upper ends, in seconds. A promise (1 s to an answer, 2 s to a decision) must be one of them.
ROUND_TRIP = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
ANSWER = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
HOLD = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)

TALLIES: list[Tally] = []
HISTOGRAMS: list[Histogram] = []


class Tally:
    """How often each of a few things happened. label: what tells them apart; known: shown from the start, as 0.

    Several labels are divided by commas, and so are their values, of which only the last one may have one itself.

    A rate can be taken only of what was there before it rose: so whatever an alert asks about is in `known`.
    """

    def __init__(self, name: str, about: str, *, label: str, known: Iterable[str] = ()) -> None:
        self.name = name
        self.about = about
        self.label = label
        self.counts: dict[str, int] = dict.fromkeys(known, 0)
        TALLIES.append(self)

    def add(self, which: str, times: int = 1) -> None:
        """Count `times` more."""
        self.counts[which] = self.counts.get(which, 0) + times


class Histogram:
    """How many took how long. label: what tells series apart, '' for a single one; bounds: upper ends in seconds."""

    def __init__(self, name: str, about: str, *, bounds: Sequence[float], label: str = "") -> None:
        self.name = name
        self.about = about
        self.label = label
        self.bounds = tuple(bounds)
        # By label: how many up to each bound and above the bound before it, the last one above all; then their sum.
        self.counts: dict[str, list[int]] = {}
        self.sums: dict[str, float] = {}
        if not label:
            self._series("")
        HISTOGRAMS.append(self)

    def _series(self, which: str) -> list[int]:
        self.sums[which] = 0.0
        self.counts[which] = [0] * (len(self.bounds) + 1)
        return self.counts[which]

    def observe(self, seconds: float, which: str = "") -> None:
        """Take in one that took `seconds`."""
        counts = self.counts.get(which) or self._series(which)
        counts[bisect_left(self.bounds, seconds)] += 1
        self.sums[which] += seconds

    def observe_since(self, began: Iterable[float], *, now: float | None = None) -> None:
        """Take in all that began at these moments and end now, by one clock (default: the monotonic one)."""
        end, counts = time.monotonic() if now is None else now, self.counts[""]
        # A batch is counted by its bounds and not one by one: it is in order, or nearly, so sorting it is one look.
        moments = sorted(began)
        left = len(moments)
        self.sums[""] += left * end - sum(moments)
        for number, bound in enumerate(self.bounds):
            if not left:
                return
            longer = bisect_left(moments, end - bound, 0, left)
            counts[number] += left - longer
            left = longer
        counts[-1] += left


# A Cluster has few servers; their names may change for as long as a process lives.
MAX_NODES = 64
STORE_ERRORS = Tally(
    "fairdrop_store_errors", "Calls that a store did not answer", label="store,node", known=("redis,", "postgresql,")
)
RETRIES = Tally(
    "fairdrop_retries", "Steps that failed for now and are tried again", label="step",
    known=("settle", "expire", "lost_notice", "refund_due", "redis", "database", "refused"),
)  # fmt: skip
SCRIPT_SECONDS = Histogram(
    "fairdrop_script_seconds", "Round trips of scripts to Redis", bounds=ROUND_TRIP, label="script"
)


def note_store_errors(store: str, node: str = "", *, times: int = 1) -> None:
    """Count calls that a store did not answer. node: which server of a Cluster, '' when there is but one.

    times: 0 shows the server before it fails, so that a rate can be taken of its first failure.
    """
    which = f"{store},{node}"
    if which not in STORE_ERRORS.counts and len(STORE_ERRORS.counts) >= MAX_NODES:
        which = f"{store},others"
    STORE_ERRORS.add(which, times)
