"""Orders a run by time: waits and counts a step of time, and where the opening burst ends. Pure.
Never mixes the burst with the steady state: each has its own figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from loadtest.checker.latency import NS_PER_MS, Wait, wait_of
from loadtest.report.reading import Look, Waited

Point = tuple[float, float]
MAX_STEPS = 90
STEPS_SECONDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
MIN_BURST_SECONDS = 1.0
BURST_STEP_SECONDS = 0.5
# The burst is over when the slowest hundredth is at most so many times what it is in the second half.
SETTLED = 1.5


def step_for(seconds: float) -> float:
    """Return a step that cuts `seconds` into at most MAX_STEPS."""
    return next((step for step in STEPS_SECONDS if seconds / step <= MAX_STEPS), STEPS_SECONDS[-1])


def in_steps(waits: Iterable[Waited], *, step: float) -> dict[int, list[float]]:
    """Sort waits by the step in which they began."""
    found: dict[int, list[float]] = {}
    for wait in waits:
        found.setdefault(int(wait.began // step), []).append(wait.took_ms)
    return found


def nearest_rank(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie."""
    return sorted(values)[max(1, ceil(share * len(values))) - 1]


def percentile(waits: Iterable[Waited], *, share: float, step: float) -> list[Point]:
    """Return a percentile of each step, at the middle of the step; steps in which nobody asked are left out."""
    return [
        ((number + 0.5) * step, nearest_rank(values, share))
        for number, values in sorted(in_steps(waits, step=step).items())
    ]


def a_second(waits: Iterable[Waited], *, step: float) -> list[Point]:
    """Return how many a second began in each step; a step in between without any is a zero."""
    counts = {number: len(values) for number, values in in_steps(waits, step=step).items()}
    span = range(min(counts), max(counts) + 1) if counts else range(0)
    return [((number + 0.5) * step, counts.get(number, 0) / step) for number in span]


def burst_end(asks: Sequence[Waited]) -> float:
    """Return when the opening burst was over, in seconds: 1 s at least, half of the rush at most."""
    last = max((wait.began for wait in asks), default=0.0)
    later = [wait.took_ms for wait in asks if wait.began >= last / 2]
    if not later or last <= 2 * MIN_BURST_SECONDS:
        return min(MIN_BURST_SECONDS, last)
    bound = SETTLED * nearest_rank(later, 0.99)
    for number, values in sorted(in_steps(asks, step=BURST_STEP_SECONDS).items()):
        began = number * BURST_STEP_SECONDS
        if began >= MIN_BURST_SECONDS and nearest_rank(values, 0.99) <= bound:
            return min(began, last / 2)
    return last / 2


@dataclass(frozen=True, slots=True)
class Parts:
    """The same wait in the opening burst and after it."""

    name: str
    burst: Wait
    steady: Wait


def in_parts(name: str, waits: Sequence[Waited], *, end: float) -> Parts:
    """Sum up the waits that began before `end` apart from the others."""

    def sum_up(part: Iterable[Waited]) -> Wait:
        return wait_of(int(wait.took_ms * NS_PER_MS) for wait in part)

    return Parts(name, sum_up(w for w in waits if w.began < end), sum_up(w for w in waits if w.began >= end))


def over_time(looks: Sequence[Look], name: str, *, sales: Iterable[str]) -> list[Point]:
    """Return a count of all `sales` together at each look; a sale that was not looked at keeps its last count."""
    wanted = set(sales)
    latest: dict[str, int] = {}
    points: dict[float, float] = {}
    for look in sorted(looks, key=lambda look: look.at):
        if look.sale in wanted and name in look.counts:
            latest[look.sale] = look.counts[name]
            if latest.keys() == wanted:
                points[look.at] = float(sum(latest.values()))
    return sorted(points.items())


def growth_a_second(points: Sequence[Point], *, step: float) -> list[Point]:
    """Return how fast a count grew, at the middle of each step of at least `step` seconds."""
    found: list[Point] = []
    if not points:
        return found
    then, before = points[0]
    for now, count in points[1:]:
        if now - then >= step * 0.9:
            found.append(((then + now) / 2, max(0.0, count - before) / (now - then)))
            then, before = now, count
    return found


def thinned(points: Sequence[Point], *, limit: int) -> list[Point]:
    """Return at most about `limit` of the points, the first and the last among them."""
    if len(points) <= limit:
        return list(points)
    stride = ceil(len(points) / limit)
    kept = list(points[::stride])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]
