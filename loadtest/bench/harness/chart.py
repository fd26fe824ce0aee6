"""Draws bars as an SVG that reads in light and in dark: a panel a measurement, a bar a side. Pure.
Never scales one panel by another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from loadtest.bench.harness.figures import number

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 760, 210, 90
HEAD_HEIGHT, BAR_HEIGHT, GAP, PANEL_GAP = 34, 18, 6, 22
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 14px; }
.side { text-anchor: end; }
.ours { fill: #1f7a4d; } .rival { fill: #8c959f; } .limit { fill: #d0d7de; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .ours { fill: #3fb950; } .rival { fill: #6e7681; } .limit { fill: #30363d; }
}
"""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One measurement. values: side → value; ours, limits: which sides are drawn as such, all others as rivals."""

    title: str
    values: Mapping[str, float]
    ours: Sequence[str] = ()
    limits: Sequence[str] = ()

    @property
    def height(self) -> int:
        """Pixels the panel takes."""
        return HEAD_HEIGHT + len(self.values) * (BAR_HEIGHT + GAP) + PANEL_GAP

    def kind(self, side: str) -> str:
        """Return the class a side's bar is drawn with."""
        return "ours" if side in self.ours else "limit" if side in self.limits else "rival"


def chart(panels: Sequence[Panel], *, description: str) -> str:
    """Return the panels below each other as the text of an SVG file."""
    height = sum(panel.height for panel in panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{escape(description)}">',
        f"<style>{STYLE}</style>",
    ]
    top = 0
    for panel in panels:
        parts += _panel(panel, top=top)
        top += panel.height
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, *, top: int) -> list[str]:
    longest = max(panel.values.values())
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    parts = [f'<text class="title" x="0" y="{top + 20}">{escape(panel.title)}</text>']
    for place, (side, value) in enumerate(panel.values.items()):
        y = top + HEAD_HEIGHT + place * (BAR_HEIGHT + GAP)
        width = max(1.0, room * value / longest) if longest > 0 else 1.0
        parts += [
            f'<text class="side" x="{LABEL_WIDTH - 10}" y="{y + 14}">{escape(side)}</text>',
            f'<rect class="{panel.kind(side)}" x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" '
            f'height="{BAR_HEIGHT}" rx="2"/>',
            f'<text x="{LABEL_WIDTH + width + 8:.1f}" y="{y + 14}">{number(value)}</text>',
        ]
    return parts
