"""How fast the cores are now, against the fastest they were in this run, by a fixed loop of Python on each of them.
Never measures a shop, and never while one is measured.

A core whose host lends its other half to a neighbour takes up to twice as long for the same work, for seconds or
minutes, and the kernel counts nothing as stolen.
"""

from __future__ import annotations

import os
import time
import timeit
from collections.abc import Set

LOOP_TURNS = 1000
LOOPS = 100
# A core that is slower than the fastest by more than this is disturbed.
SLOWED = 0.2
FIRST_LOOKS = 20
PAUSE_SECONDS = 0.25
MAX_WAIT_SECONDS = 10.0


def loop_us() -> float:
    """Return how many microseconds a fixed loop takes here, of three times the shortest.

    A Python without profile-guided optimization takes a third longer than one with it, and has the same version.
    """

    def turn() -> int:
        kept = {number: (number, str(number)) for number in range(LOOP_TURNS)}
        return sum(len(text) for _, text in kept.values())

    return min(timeit.repeat(turn, number=LOOPS, repeat=3)) / LOOPS * 1_000_000


class CoreSpeed:
    """Looks at the cores between measurements. Until it was started it looks at nothing, and calls them quiet."""

    def __init__(self) -> None:
        self._fastest_us: float | None = None
        self._kept: list[float] = []
        self._repeated = 0

    def start(self) -> None:
        """Learn how fast the cores can be, for some seconds."""
        self._fastest_us = loop_us()
        for _ in range(FIRST_LOOKS):
            self.slowed()
            time.sleep(PAUSE_SECONDS)

    @property
    def fastest_us(self) -> float:
        """How many microseconds the loop took at best."""
        return loop_us() if self._fastest_us is None else self._fastest_us

    def slowed(self, *, cores: Set[int] = frozenset()) -> float:
        """Return how much longer the slowest core takes now than the fastest did in this run: 1.0 is twice as long.

        cores: these alone.
        """
        if self._fastest_us is None:
            return 0.0
        own = os.sched_getaffinity(0)
        took = []
        try:
            for core in sorted(cores or own):
                os.sched_setaffinity(0, {core})
                took.append(loop_us())
        finally:
            os.sched_setaffinity(0, own)
        self._fastest_us = min(self._fastest_us, *took)
        return max(took) / self._fastest_us - 1

    def await_quiet(self, *, cores: Set[int] = frozenset()) -> None:
        """Wait until no core of these (none: of all) is disturbed; not for ever."""
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while self.slowed(cores=cores) > SLOWED and time.monotonic() < deadline:
            time.sleep(PAUSE_SECONDS)

    def note(self, slowed: float, *, repeated: int) -> None:
        """Note how disturbed a measurement was that counts, and how many were thrown away for it."""
        self._kept.append(slowed)
        self._repeated += repeated

    def facts(self) -> dict[str, str]:
        """Return what a page says of it."""
        if self._fastest_us is None or not self._kept:
            return {}
        disturbed, worst = sum(slowed > SLOWED for slowed in self._kept), max(self._kept)
        return {
            "disturbed": f"{self._repeated} measurements were repeated; of {len(self._kept)} that count, {disturbed} "
            f"ended on a core that took over {SLOWED * 100:g} % longer than the fastest, the worst {worst * 100:.0f} %"
        }


CORE_SPEED = CoreSpeed()
