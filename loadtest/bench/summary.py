"""Puts the figures of all benchmarks into one table, from the JSON each of them wrote.
Never measures, never mends what they say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.bench.harness.report import Figure, Report, markdown_table, number

# In the order they run: package and page have the same name.
BENCHMARKS = (
    "gate", "locks_queue", "settle", "streams", "age", "shop", "compare", "bots", "log", "desk", "capacity", "shards",
)  # fmt: skip
HEAD = ("figure", "measured", "unit", "floor", "", "÷ limit")
FIELDS = ("name", "value", "unit", "at_least", "at_most", "aim", "limit")


def read_page(folder: Path, name: str) -> Report | None:
    """Return what the page `name` of `folder` says, None when it is not there; facts and method are left out.

    Raises ValueError when it is no such page.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    whole = json.loads(path.read_text())
    try:
        return Report(
            **{field: whole[field] for field in ("title", "command", "date", "revision", "quick", "faults")},
            figures=[_figure(each) for each in whole["figures"]],
            facts={},
            method=(),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not the page of a benchmark: {error!r}") from error


def _figure(row: dict[str, Any]) -> Figure:
    known = {field: row[field] for field in FIELDS if row.get(field) is not None}
    return Figure(**{"value": float("nan"), **known})  # what was not a number is null in JSON


def page_of(pages: Mapping[str, Report], *, reasons: Sequence[str]) -> str:
    """Return the table of all pages, each by its name, as Markdown. reasons: why not everything holds."""
    parts = [
        "# Benchmarks",
        "`make bench` runs all of them, one after the other, and writes this page from their JSON. ÷ limit is a figure "
        "over what the parts below could do at most in the same run; each page says what that is.",
        "\n".join(f"- ✗ {reason}" for reason in reasons) or "✓ Every floor holds.",
    ]
    for name, page in pages.items():
        parts += [
            f"## [{page.title}]({name}.md)",
            f"`{page.command}`, {page.date}, revision `{page.revision}`"
            + (" (a quick run: too short to be quoted)" if page.quick else ""),
            markdown_table(HEAD, list(map(_row, page.figures)), right=(1, 3, 5)),
            "\n".join(f"- ✗ {fault}" for fault in page.faults),
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _row(figure: Figure) -> tuple[str, ...]:
    share = "" if figure.of_limit is None else number(figure.of_limit)
    return figure.name, number(figure.value), figure.unit, figure.bound, figure.mark, share
