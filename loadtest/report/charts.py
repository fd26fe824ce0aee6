"""Draws a chart over time: lines or stacked areas as SVG, its texts as HTML alongside it, its figures as a table below.
The drawing stretches with the page and the texts do not, so both read at every width. Needs no script.
Never shows what the table lacks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor, log10

from loadtest.report.reading import Mark
from loadtest.report.timeline import Point, thinned

WIDTH, HEIGHT = 1000.0, 100.0
TABLE_ROWS = 24
LINES, STACKED = "lines", "stacked"
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)
NICE_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
MAX_TIMES = 7
FLAG_WIDTH, MAX_FLAG_ROWS = 10.0, 4  # in hundredths of a phone's plot
MAX_HEIGHTS = 5.001  # five, and what a division of floats may add


@dataclass(frozen=True, slots=True)
class Series:
    """One line or layer. colour: a name of the page's palette; dashed: told apart without colour too."""

    name: str
    colour: str
    points: Sequence[Point]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at a place, in hundredths of the plot."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A path of the drawing. kind: line or area."""

    path: str
    colour: str
    kind: str
    dashed: bool


@dataclass(frozen=True, slots=True)
class Flag:
    """A fault at a place in hundredths of the plot, in a row above it (0: the lowest)."""

    number: int
    at: float
    fault: str
    row: int


@dataclass(kw_only=True)
class Chart:
    """One chart. Times in seconds; burst: where the opening burst ends (0: not shown)."""

    key: str
    title: str
    meaning: str
    unit: str
    series: Sequence[Series]
    seconds: float
    kind: str = LINES
    burst: float = 0.0
    faults: Sequence[Mark] = field(default_factory=tuple)
    top: float = 0.0
    wide: bool = False

    def __post_init__(self) -> None:
        self.series = [one for one in self.series if one.points]
        self.top = self.top or nice_top(self._highest())

    @property
    def is_empty(self) -> bool:
        """Say whether there is nothing to draw."""
        return not self.series

    @property
    def description(self) -> str:
        """What the drawing shows, for those who do not see it."""
        told = [f"{one.name} {_text(one.points[0][1])} at first, {_peak(one)}" for one in self.series]
        return f"{self.meaning} {self.seconds:.0f} seconds; {'; '.join(told)}."

    @property
    def shapes(self) -> list[Shape]:
        """The paths, the lowest first."""
        if self.kind == STACKED:
            return self._layers()
        return [Shape(self._line(one.points), one.colour, "line", one.dashed) for one in self.series]

    @property
    def heights(self) -> list[Tick]:
        """Labels of the vertical axis, from below."""
        step = nice_step(self.top)
        count = round(self.top / step)
        return [Tick(100 - 100 * n * step / self.top, _text(n * step)) for n in range(count + 1)]

    @property
    def times(self) -> list[Tick]:
        """Labels of the time axis."""
        step = next((step for step in NICE_SECONDS if self.seconds / step <= MAX_TIMES), NICE_SECONDS[-1])
        return [Tick(100 * at / self.seconds, f"{at} s") for at in range(0, int(self.seconds) + 1, step)]

    @property
    def burst_share(self) -> float:
        """How much of the width the opening burst takes, in hundredths."""
        return min(100.0, 100 * self.burst / self.seconds)

    @property
    def marks(self) -> list[Flag]:
        """The faults, in their order; a flag that would lie on those before it stands above them."""
        found: list[Flag] = []
        for number, mark in enumerate(self.faults, 1):
            at = min(100.0, max(0.0, 100 * mark.at / self.seconds))
            taken = {flag.row for flag in found if at - flag.at < FLAG_WIDTH}
            row = next((row for row in range(MAX_FLAG_ROWS) if row not in taken), 0)
            found.append(Flag(number, at, mark.fault, row))
        return found

    @property
    def flag_rows(self) -> int:
        """How many rows of flags stand above the plot."""
        return max((flag.row + 1 for flag in self.marks), default=0)

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """The table: a time, and each series' value then."""
        longest = max((one.points for one in self.series), key=len, default=())
        times = [at for at, _ in thinned(longest, limit=TABLE_ROWS)]
        return [(f"{at:.1f} s", [_text(_value_at(one.points, at)) for one in self.series]) for at in times]

    def _highest(self) -> float:
        if self.kind != STACKED:
            return max((value for one in self.series for _, value in one.points), default=1.0)
        times = {at for one in self.series for at, _ in one.points}
        return max((sum(_value_at(one.points, at) or 0 for one in self.series) for at in times), default=1.0)

    def _layers(self) -> list[Shape]:
        """Stack the series: each layer lies on the sum of those before it."""
        times = sorted({at for one in self.series for at, _ in one.points})
        below = [0.0] * len(times)
        shapes = []
        for one in self.series:
            above = [low + (_value_at(one.points, at) or 0.0) for low, at in zip(below, times, strict=True)]
            edge = self._line(list(zip(times, above, strict=True)))
            back = self._line(list(zip(reversed(times), reversed(below), strict=True))).replace("M", "L", 1)
            shapes.append(Shape(f"{edge}{back}Z", one.colour, "area", one.dashed))
            below = above
        return shapes

    def _line(self, points: Sequence[Point]) -> str:
        pieces = [f"{self._x(at):.1f} {self._y(value):.2f}" for at, value in points]
        if len(pieces) == 1:
            pieces.append(pieces[0])
        return "M" + "L".join(pieces)

    def _x(self, at: float) -> float:
        return min(WIDTH, max(0.0, WIDTH * at / self.seconds))

    def _y(self, value: float) -> float:
        return HEIGHT - HEIGHT * min(value, self.top) / self.top


def nice_step(top: float) -> float:
    """Return a round step that cuts `top` into two to five."""
    rough = top / 4
    size = 10 ** floor(log10(rough))
    steps = [size * nice for nice in NICE if top / (size * nice) <= MAX_HEIGHTS]
    return float(min(steps, default=size))


def nice_top(highest: float) -> float:
    """Return a round number not below `highest`."""
    if highest <= 0:
        return 1.0
    step = nice_step(highest)
    count = -(-highest // step)
    return float(step * count)


def _value_at(points: Sequence[Point], at: float) -> float | None:
    """Return the value a series had at a time; none before its first."""
    place = bisect_right(points, at, key=lambda point: point[0])
    return points[place - 1][1] if place else None


def _peak(one: Series) -> str:
    at, value = max(one.points, key=lambda point: point[1])
    return f"{_text(value)} at most after {at:.1f} s, {_text(one.points[-1][1])} at the end"


def _text(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:,.1f}"
