"""Keeps a comparison of many records to a pace, so that it costs little of a core and ends within minutes.
Never slows down a SKU of few records: it is compared in one go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from inventory.line.repair import Standing
from workers.reconciler.report import Drift

# The first entries of a SKU (records, live units, places) without pause; then so many a second, or as many as make a
# round of ROUND_SECONDS.
AT_ONCE = 5_000
ENTRIES_A_SECOND = 2_000
ROUND_SECONDS = 540.0

# How many entries a step has read, and the differences that were found by then.
Step = tuple[int, list[Drift]]


class Comparison:
    """A comparison of one SKU, under way or over. looked_at: when it began, last looked at the stock, or was over.

    standing: what the SKU had come to when it began; extent: how many entries there are to read, about.
    """

    def __init__(
        self, steps: Iterator[Step], *, sale_ids: Sequence[int], standing: tuple[Standing, int], extent: int
    ) -> None:
        self.sale_ids, self.extent = sale_ids, extent
        self.began_at = self.looked_at = time.monotonic()
        self.over = False
        self._steps, self._read, self._clean, self._standing = steps, 0, True, standing

    def is_due(self, now: tuple[Standing, int], *, busy_seconds: float, rest_seconds: float) -> bool:
        """Say whether to look again: something has moved or was wrong, or nothing was looked at for long."""
        moment = time.monotonic()
        rests = self.over and self._clean and now == self._standing
        return moment - self.began_at >= rest_seconds if rests else moment - self.looked_at >= busy_seconds

    def go_on(self, *, throttle: Callable[[], None]) -> list[Drift]:
        """Compare as much as the pace allows by now; return what was found. throttle: called after each step.

        An error ends the comparison, which is due again soon.
        """
        a_second = max(ENTRIES_A_SECOND, self.extent / ROUND_SECONDS)
        may_read = AT_ONCE + a_second * (time.monotonic() - self.began_at)
        drifts: list[Drift] = []
        try:
            while self._read <= may_read and not self.over:
                step = next(self._steps, None)
                if step is None:
                    self.over, self.looked_at = True, time.monotonic()
                else:
                    self._read += step[0]
                    drifts += step[1]
                    throttle()
        except BaseException:
            self.over, self._clean = True, False
            raise
        self._clean = self._clean and not drifts
        return drifts


def seconds_between_rounds(extent: int, *, min_seconds: float) -> float:
    """Return after how long a SKU that rests is compared again. extent: of all SKUs together."""
    return max(min_seconds, min(ROUND_SECONDS, extent / ENTRIES_A_SECOND))
