"""Remembers how fast each line was decided lately, from the figures that pages read anyway. Never asks a store.
The gate's board keeps its own.
"""

from __future__ import annotations

import threading
import time

LEAST_SECONDS = 2.0
# An older sample says nothing of the pace of now.
OLDEST_SECONDS = 30.0


class DecisionRates:
    """Decisions a second by SKU, between two looks a while apart."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, tuple[float, float]] = {}

    def seen(self, sku: str, *, decided: int, now: float | None = None) -> float:
        """Take in that `decided` requests are decided by now (monotonic seconds); return the pace, 0 when unknown."""
        moment = time.monotonic() if now is None else now
        with self._lock:
            since, before = self._samples.get(sku, (moment, decided))
            if sku not in self._samples or moment - since > OLDEST_SECONDS or decided < before:
                self._samples[sku] = (moment, decided)
                self._rates.pop(sku, None)
            elif moment - since >= LEAST_SECONDS:
                self._samples[sku] = (moment, decided)
                self._rates[sku] = (moment, (decided - before) / (moment - since))
            measured_at, rate = self._rates.get(sku, (moment, 0.0))
            return rate if moment - measured_at <= OLDEST_SECONDS else 0.0


RATES = DecisionRates()
