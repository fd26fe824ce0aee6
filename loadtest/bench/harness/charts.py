"""Draws bars and curves as an SVG that reads in light and in dark: a panel a measurement, a bar or a line a side. Pure.
Never scales one panel by another, never leaves zero out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from loadtest.bench.harness.report import number

WIDTH = 760
# Of bars.
LABEL_WIDTH, VALUE_WIDTH = 210, 90
HEAD_HEIGHT, BAR_HEIGHT, BAR_GAP, PANEL_GAP = 34, 18, 6, 22
BAR_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 14px; }
.side { text-anchor: end; }
.ours { fill: #1f7a4d; } .rival { fill: #8c959f; } .limit { fill: #d0d7de; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .ours { fill: #3fb950; } .rival { fill: #6e7681; } .limit { fill: #30363d; }
}
"""
# Of curves.
HEIGHT, GAP = 170, 62
LEFT, RIGHT, TOP = 70, 110, 30
COLOURS = 3
CURVE_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 14px; }
.tick { text-anchor: end; } .mark { text-anchor: middle; }
.axis, .grid { stroke: #d0d7de; stroke-width: 1; } .band { fill: #1f7a4d; opacity: .12; }
.shade { fill: #bf3989; opacity: .10; }
polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
.c0 { stroke: #1f7a4d; fill: #1f7a4d; } .c1 { stroke: #8c959f; fill: #8c959f; } .c2 { stroke: #0969da; fill: #0969da; }
polyline.c0, polyline.c1, polyline.c2 { fill: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .axis, .grid { stroke: #30363d; } .band { fill: #3fb950; } .shade { fill: #f778ba; }
  .c0 { stroke: #3fb950; fill: #3fb950; } .c1 { stroke: #6e7681; fill: #6e7681; }
  .c2 { stroke: #58a6ff; fill: #58a6ff; }
  polyline.c0, polyline.c1, polyline.c2 { fill: none; }
}
"""
Points = Sequence[tuple[float, float]]


def bars(
    panels: Mapping[str, Mapping[str, float]], *, ours: Sequence[str], limits: Sequence[str] = (), description: str
) -> str:
    """Return panels below each other as the text of an SVG file. panels: title → side → value.

    ours, limits: which sides are drawn as such, all others as rivals.
    """
    parts: list[str] = []
    top = 0
    for title, values in panels.items():
        kinds = dict.fromkeys(values, "rival") | dict.fromkeys(limits, "limit") | dict.fromkeys(ours, "ours")
        parts += _bars(title, values, kinds, top=top)
        top += HEAD_HEIGHT + len(values) * (BAR_HEIGHT + BAR_GAP) + PANEL_GAP
    return _svg(parts, height=top, style=BAR_STYLE, description=description)


def _svg(parts: Sequence[str], *, height: int, style: str, description: str) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{escape(description)}">'
    )
    return "\n".join([head, f"<style>{style}</style>", *parts, "</svg>"]) + "\n"


def _bars(title: str, values: Mapping[str, float], kinds: Mapping[str, str], *, top: int) -> list[str]:
    longest = max(values.values())
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    parts = [f'<text class="title" x="0" y="{top + 20}">{escape(title)}</text>']
    for place, (side, value) in enumerate(values.items()):
        y = top + HEAD_HEIGHT + place * (BAR_HEIGHT + BAR_GAP)
        width = max(1.0, room * value / longest) if longest > 0 else 1.0
        parts += [
            f'<text class="side" x="{LABEL_WIDTH - 10}" y="{y + 14}">{escape(side)}</text>',
            f'<rect class="{kinds[side]}" x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2"/>',
            f'<text x="{LABEL_WIDTH + width + 8:.1f}" y="{y + 14}">{number(value)}</text>',
        ]
    return parts


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One panel. lines: name → points (x, y), at most three; logarithmic: of x; marks: what stands below the axis.

    band: a share, drawn round the middle of the first line; shade: from x to x, what is shaded.
    """

    title: str
    lines: Mapping[str, Points]
    logarithmic: bool = False
    marks: Sequence[float] = ()
    band: float = 0.0
    shade: tuple[float, float] | None = None


def curves(panels: Sequence[Curve], *, description: str) -> str:
    """Return the panels below each other as the text of an SVG file."""
    parts: list[str] = []
    for place, panel in enumerate(panels):
        parts += _Drawing(panel, top=place * (HEIGHT + GAP) + TOP).parts()
    return _svg(parts, height=len(panels) * (HEIGHT + GAP), style=CURVE_STYLE, description=description)


class _Drawing:
    def __init__(self, panel: Curve, *, top: int) -> None:
        self._panel, self._top = panel, top
        # What was not measured leaves a gap.
        self._lines = {name: [(x, y) for x, y in points if math.isfinite(y)] for name, points in panel.lines.items()}
        places = [x for points in panel.lines.values() for x, _ in points]
        self._from, self._to = min(places), max(places)
        self._highest = 1.1 * max((y for points in self._lines.values() for _, y in points), default=0.0) or 1.0

    def _x(self, value: float) -> float:
        begin, end, at = self._from, self._to, value
        if self._panel.logarithmic:
            begin, end, at = (math.log(each) for each in (begin, end, at))
        share = (at - begin) / (end - begin) if end > begin else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        return self._top + HEIGHT * (1 - value / self._highest)

    def parts(self) -> list[str]:
        """Return the elements of the panel."""
        title = f'<text class="title" x="0" y="{self._top - 10}">{escape(self._panel.title)}</text>'
        return [title, *self._grid(), *self._ground(), *self._all_lines(), *self._marks()]

    def _grid(self) -> list[str]:
        found = []
        for share in (0.0, 0.5, 1.0):
            value = share * self._highest
            y = self._y(value)
            found.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
            found.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}">{number(value)}</text>')
        return found

    def _ground(self) -> list[str]:
        panel, found = self._panel, []
        if panel.shade:
            begin, end = (self._x(value) for value in panel.shade)
            found.append(
                f'<rect class="shade" x="{begin:.1f}" y="{self._top}" width="{end - begin:.1f}" height="{HEIGHT}"/>'
            )
        first = next(iter(self._lines.values()), [])
        if panel.band and first:
            values = [y for _, y in first]
            middle = (min(values) + max(values)) / 2
            top, bottom = self._y(middle * (1 + panel.band)), self._y(middle * (1 - panel.band))
            found.append(
                f'<rect class="band" x="{LEFT}" y="{top:.1f}" width="{WIDTH - LEFT - RIGHT}" '
                f'height="{bottom - top:.1f}"/>'
            )
        return found

    def _all_lines(self) -> list[str]:
        found = []
        for place, (name, points) in enumerate(self._lines.items()):
            if not points:
                continue
            colour = f"c{place % COLOURS}"
            path = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in points)
            found.append(f'<polyline class="{colour}" points="{path}"/>')
            if len(points) <= len(self._panel.marks) or not self._panel.marks:
                dots = [(self._x(x), self._y(y)) for x, y in points]
                found += [f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in dots]
            x, y = points[-1]
            found.append(f'<text x="{self._x(x) + 8:.1f}" y="{self._y(y) + 4:.1f}">{escape(name)}</text>')
        return found

    def _marks(self) -> list[str]:
        marks = self._panel.marks or sorted({x for points in self._lines.values() for x, _ in points})
        return [
            f'<text class="mark" x="{self._x(value):.1f}" y="{self._top + HEIGHT + 18}">{value:,.0f}</text>'
            for value in marks
        ]
