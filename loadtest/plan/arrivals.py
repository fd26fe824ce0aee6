"""Turns a rate over time into the intended instant of every arrival: exact in number, in order, the same by seed.
Never waits for an answer and never reads a clock, so how fast a shop is changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of time in which the rate goes evenly from one value to another; rates are buyers a second."""

    name: str
    seconds: float
    rate: float
    end_rate: float
    at_once: int = 0  # buyers who come in the very instant in which the stage begins

    @property
    def buyers(self) -> float:
        """How many buyers come in this stage; need not be whole, what is over goes to the next stage."""
        return self.at_once + self.seconds * (self.rate + self.end_rate) / 2

    def seconds_until(self, buyers: float) -> float:
        """Return after how many seconds so many have come."""
        wanted = max(0.0, buyers - self.at_once)
        slope = (self.end_rate - self.rate) / self.seconds if self.seconds else 0.0
        if not wanted or not self.seconds:
            return 0.0
        if abs(slope) < 1e-9:
            return min(self.seconds, wanted / self.rate) if self.rate else self.seconds
        # rate·t + slope·t²/2 = wanted; the root that is the first moment at which it is true.
        root = sqrt(max(0.0, self.rate * self.rate + 2 * slope * wanted))
        return min(self.seconds, 2 * wanted / (self.rate + root))


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A plan of arrivals. Within its own even share of time each buyer's instant is drawn, so no comb of instants."""

    stages: tuple[Stage, ...]
    seed: int

    @property
    def total(self) -> int:
        """How many buyers come in all."""
        return int(sum(stage.buyers for stage in self.stages) + 1e-6)

    @property
    def seconds(self) -> float:
        """How long they keep coming."""
        return sum(stage.seconds for stage in self.stages)

    def instants_ns(self, *, part: int = 0, parts: int = 1) -> Iterator[int]:
        """Yield for each buyer of one of `parts` processes when they come, in ns from the start."""
        for number, stage, begins, before in self._places():
            if number % parts == part:
                dice = random.Random(f"{self.seed}:arrival:{number}")
                yield int((begins + stage.seconds_until(number + dice.random() - before)) * NS)

    def stage_at(self, instant_ns: int) -> int:
        """Return the number of the stage in which an instant lies; later ones lie in the last."""
        end = 0.0
        for place, stage in enumerate(self.stages):
            end += stage.seconds
            if instant_ns < end * NS:
                return place
        return len(self.stages) - 1

    def _places(self) -> Iterator[tuple[int, Stage, float, float]]:
        """Yield each buyer's number with their stage, when that begins (s), and how many came before it."""
        total, number, begins, before = self.total, 0, 0.0, 0.0
        for stage in self.stages:
            while number < total and number < before + stage.buyers - 1e-6:
                yield number, stage, begins, before
                number += 1
            begins, before = begins + stage.seconds, before + stage.buyers
