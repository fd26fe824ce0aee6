"""A figure with its bound, and the report of a finished run: as a table, as a page for the docs, as JSON. Pure.
Never decides anything beyond what the figures say.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from statistics import median
from typing import Any

HEAD = ("figure", "measured", "unit", "floor", "aim", "")
LIMIT = "÷ limit"
RIGHT = (1, 3, 4)
# What a table shows where nothing was measured.
NOTHING = "–"
# Of a pace that is meant; below it the waits, or the lag, are those of fewer asks.
KEPT = 0.95


@dataclass(frozen=True)
class Figure:
    """One measured figure. at_least, at_most: the bounds by which a run can fail; without one it is only printed.

    unit: '' for a ratio; limit: what the parts below could do at most, in the same unit, measured in the same run.
    """

    name: str
    _: KW_ONLY
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    aim: float | None = None
    limit: float | None = None

    @property
    def of_limit(self) -> float | None:
        """Return the figure as a ratio to its limit, None without one."""
        return None if self.limit is None else ratio(self.value, self.limit)

    @property
    def ok(self) -> bool:
        """Say whether the figure keeps its bound; one that is not a number never does."""
        if math.isnan(self.value):
            return False
        enough = self.at_least is None or self.value >= self.at_least
        return enough and (self.at_most is None or self.value <= self.at_most)

    @property
    def mark(self) -> str:
        """Return ✓, ✗, or nothing for a figure without a bound."""
        return "" if not self.bound else "✓" if self.ok else "✗"

    @property
    def bound(self) -> str:
        """Return the bound as text."""
        if self.at_least is not None:
            return f"≥ {number(self.at_least)}"
        return f"≤ {number(self.at_most)}" if self.at_most is not None else ""


def number(value: float) -> str:
    """Return `value` with two digits behind the point when it is small, with none when it is large."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def ratio(above: float, below: float) -> float:
    """Return above ÷ below; not a number when there is nothing to divide by."""
    return above / below if below else float("nan")


def middle_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Return the median of the ratios of pairs: what disturbs a whole pair disturbs both sides of it."""
    return median(ratio(*pair) for pair in zip(above, below, strict=True))


def quantile(values: Sequence[float], share: float) -> float:
    """Return what `share` (0 to 1) of the values do not pass; not a number when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def filled(method: Sequence[str], plan: object) -> list[str]:
    """Return the sentences of a method with every number of `plan`, by its name."""
    return [line.format(**vars(plan)) for line in method]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A table that compares sides: first column the side, numbers already written as text. note: what it means."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole run. facts: group → name → value; samples: every single measurement behind the medians.

    command: what wrote the page; picture: file name and description of the chart alongside it, if there is one.
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


def columns(figures: Sequence[Figure]) -> tuple[tuple[str, ...], list[tuple[str, ...]], tuple[int, ...]]:
    """Return the head, a row for each figure, and which columns are numbers; with the limits if there are any."""
    rows: list[tuple[str, ...]] = [
        (each.name, number(each.value), each.unit, each.bound, "" if each.aim is None else number(each.aim), each.mark)
        for each in figures
    ]
    if all(each.limit is None for each in figures):
        return HEAD, rows, RIGHT
    shares = ["" if each.of_limit is None else number(each.of_limit) for each in figures]
    rows = [(*row[:-1], share, row[-1]) for row, share in zip(rows, shares, strict=True)]
    return (*HEAD[:-1], LIMIT, HEAD[-1]), rows, (*RIGHT, len(HEAD) - 1)


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as a table for a terminal."""
    return text_table(*columns(figures))


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    """Return a table of texts for a terminal. right: which columns are numbers."""
    widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
    lines = ["  ".join(_padded(row, widths, right)).rstrip() for row in (head, *rows)]
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def _padded(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> list[str]:
    return [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def sentence(report: Report) -> str:
    """Return the outcome in a sentence, with every reason when it is a bad one."""
    reasons = missed(report.figures, faults=report.faults)
    return "✗ " + "; ".join(reasons) + "." if reasons else "✓ Every floor holds."


def missed(figures: Sequence[Figure], *, faults: Sequence[str]) -> list[str]:
    """Return a sentence for each floor that is missed, and each fault."""
    return [f"{each.name} is {number(each.value)}, must be {each.bound}" for each in figures if not each.ok] + [*faults]


def markdown(report: Report) -> str:
    """Return the page for docs/benchmarks."""
    head, rows, right = columns(report.figures)
    parts = [
        f"# {report.title}",
        f"`{report.command}` wrote this page on {report.date} at revision `{report.revision}`"
        + (" (a quick run: too short to be quoted)." if report.quick else "."),
        sentence(report),
        markdown_table(head, rows, right=right),
        f"![{report.picture[1]}]({report.picture[0]})" if report.picture else "",
        *[part for each in report.comparisons for part in (f"## {each.title}", _comparison(each), each.note)],
        "## How it was measured",
        "\n".join(f"- {line}" for line in report.method),
        "## On what",
        *[_facts(group, facts) for group, facts in report.facts.items()],
        "## Every measurement" if report.samples else "",
        *_samples(report.samples),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _comparison(comparison: Comparison) -> str:
    # A column is one of numbers when its first cell is one.
    first = [cell.replace(",", "").replace(".", "") for cell in comparison.rows[0]]
    right = [column for column, cell in enumerate(first) if cell.isdigit()]
    return markdown_table(comparison.head, comparison.rows, right=right)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int]) -> str:
    """Return a table of texts as Markdown. right: which columns are numbers."""
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
    if isinstance(value, float):
        return NOTHING if math.isnan(value) else number(value)
    return str(value)


def as_json(report: Report) -> str:
    """Return the report for other programs: every figure with its bound and whether it holds."""
    whole = asdict(report)
    whole["ok"] = report.ok
    whole["figures"] = [_figure(figure) for figure in report.figures]
    return json.dumps(_finite(whole), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _figure(figure: Figure) -> dict[str, Any]:
    exact = {
        name: value if value is None else round(value, 4)
        for name, value in {"value": figure.value, "limit": figure.limit, "of_limit": figure.of_limit}.items()
    }
    return {**asdict(figure), **exact, "ok": figure.ok}


def _finite(value: Any) -> Any:
    """Return a nested value with None for each number that is none: JSON has no word for it."""
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
