"""Knows on whose clock the times of a record are, and what it takes to compare times of two machines.
Never calls two clocks comparable by itself: that is the operator's word.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

NS_PER_MS = 1_000_000
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TIME_NAMESPACE = Path("/proc/self/ns/time")


def clock_name() -> str:
    """Return a name of this host's monotonic clock: times of two names differ by any amount.

    Containers of one machine have one boot id; only a time namespace of its own gives one of them another clock.
    """
    if not BOOT_ID.exists():
        return socket.gethostname()
    namespace = f" {os.readlink(TIME_NAMESPACE)}" if TIME_NAMESPACE.is_symlink() else ""
    return BOOT_ID.read_text().strip() + namespace


def wall_offset_ns() -> int:
    """Return what to add to this host's monotonic time for the time of day (ns)."""
    return time.time_ns() - time.monotonic_ns()


class Clocks:
    """The clocks of a record, each with what it was seen to be away from the time of day."""

    def __init__(self) -> None:
        self._offsets_ns: dict[str, list[int]] = {}

    def note(self, name: str, *, offset_ns: int) -> None:
        """Take down what a file says of its clock, at its beginning and at its end."""
        self._offsets_ns.setdefault(name, []).append(offset_ns)

    @property
    def offsets_ns(self) -> dict[str, int]:
        """What to add to a time on each clock for the time of day, as it was first seen."""
        return {name: seen[0] for name, seen in self._offsets_ns.items()}

    @property
    def shifts_ns(self) -> dict[str, int]:
        """What to add to a time on each clock to have it on the first one, as well as their times of day agree."""
        first = next(iter(self.offsets_ns.values()), 0)
        return {name: offset - first for name, offset in self.offsets_ns.items()}

    @property
    def drift_ns(self) -> int:
        """By how much the time of day of any one machine was moved against its monotonic clock during the run."""
        return max((max(seen) - min(seen) for seen in self._offsets_ns.values()), default=0)

    def margin_ns(self, wall_error_ms: float | None) -> int | None:
        """Return how far apart times of two machines must be to say which came first; None: that can't be said.

        wall_error_ms: how far any two of the machines' times of day may differ, by the operator's word; None: unknown.
        """
        return None if wall_error_ms is None else int(wall_error_ms * NS_PER_MS) + 2 * self.drift_ns
