"""What the comparison must show: every promise kept, every naive way seen to fail, and Fairdrop far ahead; with the
tables and the chart, and what each rival is. Pure.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadtest.bench.harness.charts import bars
from loadtest.bench.harness.report import NOTHING, Comparison, Figure, number, ratio, text_table
from loadtest.rivals.strategies import RIVALS

OURS, OUR_TITLE = "fairdrop", "Fairdrop"
# Settled orders a second, Fairdrop's alongside those of the fastest rival that keeps its promise.
MIN_RATIO = 8.0


@dataclass(frozen=True, kw_only=True)
class Waits:
    """What some waits came to, in ms; not a number when there were none."""

    p50: float
    p99: float
    worst: float


@dataclass(frozen=True, kw_only=True)
class Selling:
    """What selling without end came to. commits, commands: an order; CPU in ms an order."""

    clicks_per_second: float
    settled_per_second: float
    admission: Waits
    commits: float
    commands: float
    seller_cpu_ms: float
    store_cpu_ms: float

    @property
    def cpu_ms(self) -> float:
        """CPU of sellers and stores, in ms an order."""
        return self.seller_cpu_ms + self.store_cpu_ms


@dataclass(frozen=True, kw_only=True)
class SellingOut:
    """What selling out came to. asked_all: whether every buyer could ask in time."""

    clicks_per_second: float
    units: int
    orders: int
    accepted: int
    refused: int
    lost: int
    unanswered: int
    asked_all: bool
    admission: Waits
    decision: Waits

    @property
    def oversold(self) -> int:
        """Orders above the units."""
        return max(0, self.orders - self.units)

    @property
    def undersold(self) -> int:
        """Units that nobody has although somebody was told sold out."""
        return max(0, self.units - self.orders) if self.refused else 0


@dataclass(frozen=True, kw_only=True)
class Result:
    """All about one way to sell."""

    name: str
    title: str
    correct: bool
    selling: Selling
    selling_out: SellingOut
    faults: list[str]


def wrong_units(result: Result) -> int:
    """Return how many units were sold too often, not at all, or promised and never given."""
    sold = result.selling_out
    return sold.oversold + sold.undersold + sold.lost


def best_rival(results: Sequence[Result]) -> Result | None:
    """Return the fastest rival that promised, and kept, that nothing is oversold, undersold or lost; None: none did."""
    kept = [each for each in results if each.correct and each.name != OURS and not wrong_units(each)]
    return max(kept, key=lambda result: result.selling.settled_per_second, default=None)


def figures_of(results: Sequence[Result], *, quick: bool) -> list[Figure]:
    """Return every figure with its bound. quick: too short a run to hold the speed against its floor."""
    ours = next(each for each in results if each.name == OURS).selling
    rival = best_rival(results)
    theirs = rival.selling if rival else None
    settled = theirs.settled_per_second if theirs else float("nan")
    cpu_ms = theirs.cpu_ms if theirs else float("nan")
    times = ratio(ours.settled_per_second, settled)
    return [
        *map(_promise, results),
        Figure("Fairdrop, settled", value=ours.settled_per_second, unit="orders/s"),
        Figure(f"best correct rival ({rival.title if rival else 'none'})", value=settled, unit="orders/s"),
        Figure("Fairdrop ÷ best correct rival", value=times, at_least=None if quick else MIN_RATIO),
        # What a neighbour on the machine disturbs least.
        Figure("the same, orders per second of CPU of sellers and stores", value=ratio(cpu_ms, ours.cpu_ms)),
    ]


def _promise(result: Result) -> Figure:
    return Figure(
        f"{result.title}: oversold + undersold + lost" + ("" if result.correct else ", must be seen to fail"),
        value=wrong_units(result),
        unit="units",
        at_most=0 if result.correct else None,
        at_least=None if result.correct else 1,
    )


def comparisons_of(results: Sequence[Result]) -> list[Comparison]:
    """Return every table."""
    return [_selling(results), _selling_out(results), _promises()]


def _selling(results: Sequence[Result]) -> Comparison:
    head = (
        "selling without end", "settled/s", "clicks/s", "admission p50 ms", "p99", "max", "commits an order",
        "Redis commands", "CPU ms, sellers", "CPU ms, stores",
    )  # fmt: skip
    rows = [
        (
            each.title,
            *map(number, (sold.settled_per_second, sold.clicks_per_second)),
            *_cells(sold.admission),
            *map(number, (sold.commits, sold.commands, sold.seller_cpu_ms, sold.store_cpu_ms)),
        )
        for each in results
        for sold in (each.selling,)
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


def wrong_table(results: Sequence[Result]) -> str:
    """Return a table for a terminal: how many units each way to sell oversold and undersold."""
    whole = _selling_out(results)
    return text_table(whole.head[:5], [row[:5] for row in whole.rows], range(1, 5))


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
    return tuple(NOTHING if value != value else number(value) for value in (waits.p50, waits.p99, waits.worst))


def samples_of(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return every measurement as a row, with a column for each way to sell."""
    columns = {
        each.title: _flat({"selling": asdict(each.selling), "selling out": asdict(each.selling_out)})
        for each in results
    }
    names = next(iter(columns.values()))
    return [{"measurement": name} | {title: flat[name] for title, flat in columns.items()} for name in names]


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested values under one name each."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        label = f"{before} {name}".strip().replace("_", " ")
        if isinstance(value, dict):
            flat |= _flat(value, label)
        else:
            flat[label] = value
    return flat


def picture_of(results: Sequence[Result]) -> str:
    """Return the chart."""
    panels: dict[str, dict[str, float]] = {
        "Orders settled a second, stock without end (longer is better)": {
            each.title: each.selling.settled_per_second for each in results
        },
        "Units sold twice, selling out (shorter is better)": {
            each.title: each.selling_out.oversold for each in results
        },
        "Units left unsold while buyers were told sold out (shorter is better)": {
            each.title: each.selling_out.undersold for each in results
        },
        "Time to decision, selling out, p99 in ms (shorter is better)": {
            each.title: each.selling_out.decision.p99 for each in results if each.selling_out.decision.worst >= 0
        },
        "CPU of sellers and stores, ms an order (shorter is better)": {
            each.title: each.selling.cpu_ms for each in results
        },
    }
    text = "Each way to sell alongside the others; the same numbers stand in the tables"
    return bars(panels, ours=[OUR_TITLE], description=text)
