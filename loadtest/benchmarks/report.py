"""Draws a finished run: a table for the terminal, a page for the docs, and the same as JSON. Pure.
Never decides anything beyond what the figures say. Called by the command.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from loadtest.benchmarks.figures import Figure, number

HEAD = ("figure", "measured", "unit", "floor", "aim", "")
RIGHT = (1, 3, 4)


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole run. facts: group → name → value; samples: every single measurement behind the medians."""

    date: str
    revision: str
    quick: bool
    figures: Sequence[Figure]
    facts: Mapping[str, Mapping[str, str]]
    method: Sequence[str]
    samples: Sequence[Mapping[str, Any]] = field(default_factory=list)
    faults: Sequence[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Say whether every figure keeps its bound and nothing else went wrong."""
        return not self.faults and all(figure.ok for figure in self.figures)


def rows_of(figures: Sequence[Figure]) -> list[tuple[str, ...]]:
    """Return a row of cells for each figure, under HEAD."""
    return [
        (each.name, number(each.value), each.unit, each.bound, "" if each.aim is None else number(each.aim), each.mark)
        for each in figures
    ]


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as a table for a terminal."""
    rows = [HEAD, *rows_of(figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = ["  ".join(_padded(row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def _padded(row: tuple[str, ...], widths: Sequence[int]) -> list[str]:
    return [
        cell.rjust(width) if column in RIGHT else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def sentence(report: Report) -> str:
    """Return the outcome in a sentence, with every reason when it is a bad one."""
    reasons = [f"{each.name} is {number(each.value)}, must be {each.bound}" for each in report.figures if not each.ok]
    reasons += report.faults
    return "✓ Every floor holds." if not reasons else "✗ " + "; ".join(reasons) + "."


def markdown(report: Report) -> str:
    """Return the page for docs/benchmarks."""
    parts = [
        "# The gate, the line and the road: measured",
        f"`make bench-gate` wrote this page on {report.date} at revision `{report.revision}`"
        + (" (a quick run: too short to be quoted)." if report.quick else "."),
        sentence(report),
        _markdown_table(HEAD, rows_of(report.figures)),
        "## How it was measured",
        "\n".join(f"- {line}" for line in report.method),
        "## On what",
        *[_facts(group, facts) for group, facts in report.facts.items()],
        "## Every measurement",
        *_samples(report.samples),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---:" if column in RIGHT else "---" for column in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def _facts(group: str, facts: Mapping[str, str]) -> str:
    return f"**{group}**: " + " · ".join(f"{name} {value}" for name, value in facts.items())


def _samples(samples: Sequence[Mapping[str, Any]]) -> list[str]:
    if not samples:
        return []
    names = list(samples[0])
    cells = [[_cell(sample[name]) for name in names] for sample in samples]
    return [_markdown_table([name.replace("_", " ") for name in names], cells)]


def _cell(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


def as_json(report: Report) -> str:
    """Return the report for other programs: every figure with its bound and whether it holds."""
    whole = asdict(report)
    whole["ok"] = report.ok
    whole["figures"] = [_figure(figure) for figure in report.figures]
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _figure(figure: Figure) -> dict[str, Any]:
    # JSON has no "not a number".
    value = None if math.isnan(figure.value) else round(figure.value, 4)
    return {**asdict(figure), "value": value, "ok": figure.ok}
