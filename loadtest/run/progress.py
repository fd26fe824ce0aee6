"""Shows in one line how far a flood is: on a terminal the line is redrawn, elsewhere a plain line comes now and then.
Never says whether the run is good; its numbers are the crowd's own counters.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TextIO

from loadtest.users.crowd import Counters, read_progress

PLAIN_LINE_SECONDS = 2.0
RATE_SECONDS = 0.5
CLEAR_LINE = "\r\x1b[2K"


class ProgressLine:
    """The line of one run."""

    def __init__(self, folder: Path, *, out: TextIO) -> None:
        self._folder = folder
        self._out = out
        self._redraw = out.isatty()
        self._last = (time.monotonic(), 0)
        self._rate = 0.0
        self._printed_at = 0.0

    def show(self) -> None:
        """Show how far the run is now."""
        counters = read_progress(self._folder)
        self._measure(counters.requests)
        text = self._text(counters)
        if self._redraw:
            self._out.write(CLEAR_LINE + text)
        elif counters.requests and time.monotonic() - self._printed_at >= PLAIN_LINE_SECONDS:
            self._printed_at = time.monotonic()
            self._out.write(text + "\n")
        self._out.flush()

    def clear(self) -> None:
        """Leave an empty line for what comes next."""
        if self._redraw:
            self._out.write(CLEAR_LINE)
            self._out.flush()

    def _measure(self, requests: int) -> None:
        """Follow the rate over the last half second or more."""
        now = time.monotonic()
        then, before = self._last
        if now - then >= RATE_SECONDS:
            self._rate = max(0.0, (requests - before) / (now - then))
            self._last = (now, requests)

    def _text(self, counters: Counters) -> str:
        return (
            f"flood: {counters.attempts:,} of {counters.planned:,} attempts, {self._rate:,.0f} requests/s, "
            f"{counters.admitted:,} admitted, {counters.decided:,} decided, {counters.paid:,} paid at once"
        )
