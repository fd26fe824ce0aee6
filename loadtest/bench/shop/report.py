"""Puts the results of the whole shop together: figures, facts, tables, curves. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from loadtest.bench.gate.bounds import median
from loadtest.bench.harness import machine
from loadtest.bench.harness.command import CHECKOUT
from loadtest.bench.harness.curves import Curve, curves
from loadtest.bench.harness.figures import number
from loadtest.bench.harness.report import Comparison, Report
from loadtest.bench.settle.bounds import quantile
from loadtest.bench.shop.bounds import (
    MAX_SPREAD,
    cost_figures,
    limit_figures,
    overload_figures,
    road_figures,
    sold_out_figures,
    spike_figures,
)
from loadtest.bench.shop.costs import Cost
from loadtest.bench.shop.overload import OverloadRun
from loadtest.bench.shop.plan import Plan, method_of
from loadtest.bench.shop.run import Results
from loadtest.bench.shop.shares import overload_shares, spike_shares

PACKAGES = ("django", "redis", "hiredis", "psycopg", "uvicorn", "httptools", "granian", "uvloop")
SHARES = (0.5, 0.9, 0.99, 1.0)


def report_of(results: Results, *, plan: Plan, hardware: Mapping[str, str], quick: bool, picture: str) -> Report:
    """Return the whole report. hardware: as it was before the run; picture: the chart's file name."""
    costs, copied = results.costs, results.limits.copied
    return Report(
        title="The whole shop: measured",
        command="make bench-shop",
        date=machine.now(),
        revision=machine.revision(CHECKOUT),
        quick=quick,
        figures=[
            *road_figures(results.road, copied=copied, noop=median(results.turns, side="no-op")),
            *spike_figures(results.spikes, results.noop_spike),
            *sold_out_figures(results.turns),
            *overload_figures(results.overload, sustained_us=results.road.shop_cpu_us, web_mib=results.web_mib),
            *cost_figures(costs.by_skus, costs.by_line, copied_us=1_000_000 / copied),
            *limit_figures(results.limits, results.turns),
        ],
        facts=machine.facts(hardware, packages=PACKAGES),
        method=method_of(plan),
        samples=[asdict(turn) for turn in results.turns],
        faults=results.faults,
        comparisons=[
            _spikes(results),
            spike_shares(results.spikes, results.noop_spike),
            _steps(results.overload),
            overload_shares(results.overload),
            _costs(costs.by_skus, costs.by_line),
        ],
        picture=(picture, "Curves of the knee, of every second around the overload, and of the cost of a purchase"),
    )


def _spikes(results: Results) -> Comparison:
    crowds = {"no-op server": results.noop_spike}
    crowds |= {f"shop, {place}": spike for place, spike in enumerate(results.spikes, start=1)}
    head = ("spike", "answer", "buyers", *(f"p{share * 100:g} ms" for share in SHARES), "last decision s", "503 again")
    rows = [
        (
            name,
            str(status),
            f"{count:,}",
            *(number(quantile(spike.waits_ms[status], share)) for share in SHARES),
            number(spike.last_decision_seconds) if spike.decided else "",
            f"{spike.shed:,}",
        )
        for name, spike in crowds.items()
        for status, count in spike.statuses.items()
    ]
    return Comparison(title="Spikes, each buyer's wait from the instant", head=head, rows=rows)


def _steps(found: OverloadRun) -> Comparison:
    rows = [
        (
            f"{step.offered:,.0f}",
            f"{step.goodput:,.0f}",
            number(step.wait_p50_ms),
            number(step.wait_p99_ms),
            "yes" if step.keeps_up else "no",
        )
        for step in sorted(found.steps, key=lambda step: step.offered)
    ]
    return Comparison(title="The knee", head=("offered/s", "decided/s", "p50 ms", "p99 ms", "keeps up"), rows=rows)


def _costs(by_skus: Mapping[int, Cost], by_line: Mapping[int, Cost]) -> Comparison:
    rows = [
        (f"{count:,}", what, number(cost.cpu_us), number(cost.wall_us), number(cost.bytes))
        for what, curve in (("SKUs", by_skus), ("in line", by_line))
        for count, cost in curve.items()
    ]
    return Comparison(title="Cost of a purchase", head=("how many", "of", "CPU µs", "wall µs", "bytes"), rows=rows)


def picture_of(results: Results) -> str:
    """Return the curves."""
    found, costs = results.overload, results.costs
    return curves(
        [*_pressure_curves(found), *_cost_curves(costs.by_skus, "SKUs"), *_cost_curves(costs.by_line, "in line")],
        description="The knee, every second around the overload, and the cost of a purchase; the tables have the same",
    )


def _pressure_curves(found: OverloadRun) -> list[Curve]:
    steps = sorted(found.steps, key=lambda step: step.offered)
    marks = tuple(range(0, len(found.decided) + 1, 10))
    shade = (float(found.begin), float(found.end))
    return [
        Curve(
            title="Decided a second, by what is offered a second",
            lines={
                "decided": [(step.offered, step.goodput) for step in steps],
                "offered": [(step.offered, step.offered) for step in steps],
            },
            marks=[step.offered for step in steps],
        ),
        Curve(
            title="Decided a second, around the overload (shaded), by second",
            lines={"decided": list(enumerate(map(float, found.decided)))},
            marks=marks,
            shade=shade,
        ),
        Curve(
            title="p99 to a 202 in ms, of those who came in each second",
            lines={"p99": list(enumerate(found.p99_ms))},
            marks=marks,
            shade=shade,
        ),
    ]


def _cost_curves(curve: Mapping[int, Cost], what: str) -> list[Curve]:
    return [
        Curve(
            title=f"CPU time a purchase in µs, by {what} (band: ± {MAX_SPREAD:.0%})",
            lines={"CPU": [(count, cost.cpu_us) for count, cost in curve.items()]},
            logarithmic=True,
            band=MAX_SPREAD,
        ),
        Curve(
            title=f"Redis memory a purchase in bytes, by {what} (band: ± {MAX_SPREAD:.0%})",
            lines={"bytes": [(count, cost.bytes) for count, cost in curve.items()]},
            logarithmic=True,
            band=MAX_SPREAD,
        ),
    ]
