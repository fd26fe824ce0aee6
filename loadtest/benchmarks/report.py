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
class Comparison:
    """A table that compares sides: first column the side, numbers already written as text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole run. facts: group → name → value; samples: every single measurement behind the medians.

    command: what wrote the page; picture: file name and description of the chart beside it, if there is one.
    """

    title: str
    command: str
    date: str
    revision: str
    quick: bool
    figures: Sequence[Figure]
    facts: Mapping[str, Mapping[str, str]]
    method: Sequence[str]
    samples: Sequence[Mapping[str, Any]] = field(default_factory=list)
    faults: Sequence[str] = field(default_factory=list)
    comparisons: Sequence[Comparison] = field(default_factory=list)
    picture: tuple[str, str] | None = None

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
        f"# {report.title}",
        f"`{report.command}` wrote this page on {report.date} at revision `{report.revision}`"
        + (" (a quick run: too short to be quoted)." if report.quick else "."),
        sentence(report),
        _markdown_table(HEAD, rows_of(report.figures), right=RIGHT),
        f"![{report.picture[1]}]({report.picture[0]})" if report.picture else "",
        *[part for each in report.comparisons for part in (f"## {each.title}", _comparison(each))],
        "## How it was measured",
        "\n".join(f"- {line}" for line in report.method),
        "## On what",
        *[_facts(group, facts) for group, facts in report.facts.items()],
        "## Every measurement",
        *_samples(report.samples),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _comparison(comparison: Comparison) -> str:
    # A column is one of numbers when its first cell is one.
    right = [
        column for column, cell in enumerate(comparison.rows[0]) if cell.replace(",", "").replace(".", "").isdigit()
    ]
    return _markdown_table(comparison.head, comparison.rows, right=right)


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int]) -> str:
    rule = ["---:" if column in right else "---" for column in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def _facts(group: str, facts: Mapping[str, str]) -> str:
    return f"**{group}**: " + " · ".join(f"{name} {value}" for name, value in facts.items())


def _samples(samples: Sequence[Mapping[str, Any]]) -> list[str]:
    if not samples:
        return []
    names = list(samples[0])
    cells = [[_cell(sample[name]) for name in names] for sample in samples]
    head = [name.replace("_", " ") for name in names]
    return [_comparison(Comparison(title="", head=head, rows=cells))]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " · ".join(map(_cell, value))
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
