"""Puts the results of a comparison together: figures, tables, samples, chart, and what each rival is.
Decides nothing.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from loadtest.bench.compare.bounds import figures_of
from loadtest.bench.compare.plan import Plan, method_of
from loadtest.bench.compare.run import Result, Waits
from loadtest.bench.compare.sides import OURS
from loadtest.bench.harness import machine
from loadtest.bench.harness.chart import Panel, chart
from loadtest.bench.harness.command import CHECKOUT
from loadtest.bench.harness.figures import number
from loadtest.bench.harness.report import Comparison, Report
from loadtest.rivals.strategies import RIVALS

PACKAGES = ("django", "redis", "hiredis", "psycopg", "uvicorn", "httptools", "granian", "uvloop", "rq")
NONE = "–"


def report_of(
    results: Sequence[Result], *, plan: Plan, hardware: Mapping[str, str], quick: bool, picture: str
) -> Report:
    """Return the whole report. hardware: as it was before the run; picture: the chart's file name."""
    return Report(
        title="Ten ways to sell the same goods: compared",
        command="make compare",
        date=machine.now(),
        revision=machine.revision(CHECKOUT),
        quick=quick,
        figures=figures_of(results, quick=quick),
        facts=machine.facts(hardware, packages=PACKAGES),
        method=method_of(plan),
        samples=_samples(results),
        faults=[fault for each in results for fault in each.faults],
        comparisons=[_selling(results), _selling_out(results), _promises()],
        picture=(picture, "Bars of each way to sell: orders settled a second, wrong units, waits and CPU"),
    )


def _selling(results: Sequence[Result]) -> Comparison:
    head = (
        "selling without end", "settled/s", "clicks/s", "admission p50 ms", "p99", "max", "commits an order",
        "Redis commands", "CPU ms, sellers", "CPU ms, stores",
    )  # fmt: skip
    rows = [
        (
            each.title,
            *map(number, (each.selling.settled_per_second, each.selling.clicks_per_second)),
            *_cells(each.selling.admission),
            *map(number, (each.selling.commits, each.selling.commands)),
            *map(number, (each.selling.seller_cpu_ms, each.selling.store_cpu_ms)),
        )
        for each in results
    ]
    return Comparison(title="A stock without end", head=head, rows=rows)


def _selling_out(results: Sequence[Result]) -> Comparison:
    head = (
        "selling out", "orders", "oversold", "undersold", "lost", "clicks/s", "admission p50 ms", "p99", "max",
        "decision p50 ms", "p99", "max", "no answer", "all asked in time",
    )  # fmt: skip
    rows = [
        (
            each.title,
            *(f"{count:,}" for count in (sold.orders, sold.oversold, sold.undersold, sold.lost)),
            number(sold.clicks_per_second),
            *_cells(sold.admission),
            *_cells(sold.decision),
            str(sold.unanswered),
            "yes" if sold.asked_all else "no",
        )
        for each in results
        for sold in (each.selling_out,)
    ]
    return Comparison(title=f"{results[0].selling_out.units:,} units for many at once", head=head, rows=rows)


def _promises() -> Comparison:
    """Return what each rival is and why it fails, in its own words: the heads of their modules."""
    return Comparison(
        title="What each rival is, and why it fails",
        head=("rival", "file", "in its own words"),
        rows=[(rival.title, *_own_words(type(rival).__module__)) for rival in RIVALS.values()],
    )


def _own_words(module: str) -> tuple[str, str]:
    text = " ".join((inspect.getdoc(sys.modules[module]) or "").split())
    return f"`{module.replace('.', '/')}.py`", text


def _cells(waits: Waits) -> tuple[str, ...]:
    return tuple(NONE if value != value else number(value) for value in (waits.p50, waits.p99, waits.most))


def _samples(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return every measurement as a row, with a column for each side."""
    sides = {
        each.title: _flat({"selling": asdict(each.selling), "selling out": asdict(each.selling_out)})
        for each in results
    }
    names = next(iter(sides.values()))
    return [{"measurement": name} | {title: flat[name] for title, flat in sides.items()} for name in names]


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested values under one name each; a number that is none as a dash."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        label = f"{before} {name}".strip().replace("_", " ")
        if isinstance(value, dict):
            flat |= _flat(value, label)
        else:
            flat[label] = NONE if value != value else value
    return flat


def picture_of(results: Sequence[Result]) -> str:
    """Return the chart."""
    panels = {
        "Orders settled a second, stock without end (longer is better)": {
            each.title: each.selling.settled_per_second for each in results
        },
        "Units sold twice, selling out (shorter is better)": {
            each.title: float(each.selling_out.oversold) for each in results
        },
        "Units left unsold while buyers were told sold out (shorter is better)": {
            each.title: float(each.selling_out.undersold) for each in results
        },
        "Time to decision, selling out, p99 in ms (shorter is better)": {
            each.title: each.selling_out.decision.p99 for each in results if each.selling_out.decision.most >= 0
        },
        "CPU of sellers and stores, ms an order (shorter is better)": {
            each.title: each.selling.cpu_ms for each in results
        },
    }
    drawn = [Panel(title=title, values=values, ours=(OURS,)) for title, values in panels.items()]
    return chart(drawn, description="Each way to sell alongside the others; the same numbers stand in the tables")
