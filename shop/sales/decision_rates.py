"""Measures how many requests of a line are decided a second, from figures that are read anyway. Never asks a store."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

MIN_SECONDS = 2.0
# An older sample says nothing of the pace of now.
MAX_SECONDS = 30.0


class Sample(NamedTuple):
    """A look at a line. at: seconds of one clock; rate: decisions a second up to then, None when not known."""

    at: float
    decided: int
    rate: float | None = None


def measure(before: Sample | None, *, decided: int, at: float, min_seconds: float = MIN_SECONDS) -> Sample:
    """Return the sample that follows `before`; `before` itself while that is at most `min_seconds` old.

    Its rate is not known at the first look, after MAX_SECONDS without one, and when the line lost its count.
    """
    if before is None or at - before.at > MAX_SECONDS or decided < before.decided:
        return Sample(at, decided)
    if at - before.at <= min_seconds:
        return before
    return Sample(at, decided, (decided - before.decided) / (at - before.at))


class DecisionRates:
    """Decisions a second by SKU, between two looks a while apart."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: dict[str, Sample] = {}

    def seen(self, sku: str, *, decided: int, now: float | None = None) -> float:
        """Take in that `decided` requests are decided by now (monotonic seconds); return the pace, 0 when unknown."""
        moment = time.monotonic() if now is None else now
        with self._lock:
            sample = self._samples[sku] = measure(self._samples.get(sku), decided=decided, at=moment)
        return sample.rate or 0.0


RATES = DecisionRates()
