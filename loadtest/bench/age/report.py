"""Puts a run of the benchmark of age together: figures with their floors, method, samples. Decides nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from loadtest.bench.age.past import CAPTURED, DECLINED
from loadtest.bench.age.plan import METHOD, WARM_UP_SECONDS, Plan
from loadtest.bench.age.run import OLD, PROCESSES, YOUNG, AgeRound, Results
from loadtest.bench.age.shops import LOOKS
from loadtest.bench.harness import machine
from loadtest.bench.harness.command import CHECKOUT
from loadtest.bench.harness.figures import Figure, ratio
from loadtest.bench.harness.method import filled
from loadtest.bench.harness.report import Report

MAX_IDLE_PERCENT = 3
MAX_SLOWER, MAX_SLOWER_P99 = 1.10, 1.25
MAX_LIST_BYTES, MAX_LIST_MS = 20_000, 2
MAX_METRICS_BYTES = 100_000
MAX_LOOK_MS = 20
MAX_LARGE_PERCENT, MAX_LARGE_SECONDS = 8, 600
MIN_SPREAD = 0.25
MAX_LATE_SECONDS, MAX_SWEEPING_PERCENT = 1, 1
# Of the pace that is meant; below it the waits are those of fewer purchases.
KEPT = 0.95
LOOK_NAMES = {
    "expirer": "holds that are due",
    "settler": "lines with work",
    "reconciler": "sales not retired",
    "payments worker": "payments left open",
}
PACKAGES = ("django", "redis", "hiredis", "uvicorn", "httptools", "uvloop")


def figures_of(results: Results, *, plan: Plan) -> list[Figure]:
    """Return every figure with its bound."""
    return [
        *_idle_figures(results),
        *_purchase_figures(results, meant=plan.asks_per_second * plan.seconds),
        *_size_figures(results),
        *_look_figures(results),
        *_redis_figures(results, plan=plan),
        *_end_figures(results, plan=plan),
    ]


def _idle_figures(results: Results) -> list[Figure]:
    return [
        Figure(
            name=f"idle, old shop: {name}",
            value=statistics.median(old[name] for _, old in results.idle) * 100,
            unit="% of a core",
            at_most=MAX_IDLE_PERCENT,
        )
        for name in PROCESSES
    ]


def _purchase_figures(results: Results, *, meant: float) -> list[Figure]:
    figures = []
    for name, unit, most, value in (
        ("ask to decision, p50", "ms", MAX_SLOWER, decided_p50),
        ("ask to decision, p99", "ms", MAX_SLOWER_P99, decided_p99),
        ("CPU per purchase", "µs", MAX_SLOWER, cpu),
        ("wait for the 202, p50", "ms", None, told),
    ):
        young, old = ([value(pair[side]) for pair in results.pairs] for side in (0, 1))
        figures += [
            Figure(name=f"{name}, {YOUNG}", value=statistics.median(young), unit=unit),
            Figure(name=f"{name}, {OLD}", value=statistics.median(old), unit=unit),
        ]
        if most is not None:
            middle = statistics.median(ratio(above, below) for above, below in zip(old, young, strict=True))
            figures.append(Figure(name=f"{name}: {OLD} ÷ {YOUNG}, median of pairs", value=middle, at_most=most))
    fewest = min(each.decided for pair in results.pairs for each in pair)
    return [*figures, Figure(name="decided in the round with the fewest", value=fewest, at_least=KEPT * meant)]


def _size_figures(results: Results) -> list[Figure]:
    rounds = old_rounds(results)
    size = max(each.list_bytes for each in rounds)
    wait = statistics.median(each.list_ms for each in rounds)
    metrics = max(each.metrics_bytes for each in rounds)
    return [
        Figure(name="GET /api/v1/sales, old shop", value=size, unit="bytes", at_most=MAX_LIST_BYTES),
        Figure(name="GET /api/v1/sales, old shop, median", value=wait, unit="ms", at_most=MAX_LIST_MS),
        Figure(name="/metrics, old shop", value=metrics, unit="bytes", at_most=MAX_METRICS_BYTES),
    ]


def _look_figures(results: Results) -> list[Figure]:
    figures = []
    for worker, what in LOOK_NAMES.items():
        looks = [took for each in old_rounds(results) for took in each.looks_ms[worker]]
        name = f"a look of the {worker} ({what})"
        figures += [
            Figure(name=f"{name}, median", value=statistics.median(looks), unit="ms", at_most=MAX_LOOK_MS),
            Figure(name=f"{name}, slowest", value=max(looks), unit="ms"),
        ]
    return figures


def _redis_figures(results: Results, *, plan: Plan) -> list[Figure]:
    before, after = results.retired_bytes
    spread = statistics.median(ratio(many, one) for one, many in results.spread)
    large, named = results.large, f"{results.large.records:,} records in one live sale"
    return [
        *[
            Figure(name=f"sold-out answers from memory, {name}", value=share * 100, unit="%", at_least=100)
            for name, share in results.from_memory.items()
        ],
        Figure(name="Redis memory of a SKU before its sale is retired", value=before, unit="bytes", at_least=1),
        Figure(name="Redis memory of a retired SKU", value=after, unit="bytes", at_most=0),
        Figure(
            name=f"{named}: everything idle", value=large.share * 100, unit="% of a core", at_most=MAX_LARGE_PERCENT
        ),
        Figure(name=f"{named}: a full comparison", value=large.round_seconds, unit="s", at_most=MAX_LARGE_SECONDS),
        Figure(name=f"{named}: differences found", value=large.drifts, at_most=0),
        Figure(
            name=f"settled in {plan.spread_skus:,} SKUs ÷ in one, median of rounds",
            value=spread,
            at_least=MIN_SPREAD,
        ),
    ]


def _end_figures(results: Results, *, plan: Plan) -> list[Figure]:
    ends = results.ends
    named = f"{ends.holds:,} holds that end within {plan.ending_seconds:g} s"
    sweeping = [
        Figure(name=name, value=share * 100, unit="% of a core", at_most=MAX_SWEEPING_PERCENT)
        for name, share in (
            ("sweeping when nothing is held", ends.sweeping),
            (f"sweeping after {plan.ended_holds:,} holds, before a vacuum", ends.sweeping_after),
        )
    ]
    return [
        *sweeping,
        Figure(name=f"{named}: ended", value=ends.ended, at_least=plan.ending_holds),
        Figure(name=f"{named}: late, median", value=ends.late_p50_seconds, unit="s"),
        Figure(name=f"{named}: late, p99", value=ends.late_p99_seconds, unit="s", at_most=MAX_LATE_SECONDS),
        Figure(name=f"{named}: late, the last", value=ends.latest_seconds, unit="s"),
    ]


def old_rounds(results: Results) -> list[AgeRound]:
    """Return the rounds of the old shop."""
    return [old for _, old in results.pairs]


def decided_p50(each: AgeRound) -> float:
    return each.decided_p50_ms


def decided_p99(each: AgeRound) -> float:
    return each.decided_p99_ms


def cpu(each: AgeRound) -> float:
    return each.cpu_us


def told(each: AgeRound) -> float:
    return each.told_p50_ms


def report_of(results: Results, *, plan: Plan, hardware: Mapping[str, str], quick: bool) -> Report:
    """Return the whole report. hardware: as it was before the run."""
    stolen = {"CPU time stolen during the run": f"{results.stolen:.1%}"}
    return Report(
        title="A shop without a past alongside an old one: measured",
        command="make bench-age",
        date=machine.now(),
        revision=machine.revision(CHECKOUT),
        quick=quick,
        figures=figures_of(results, plan=plan),
        facts=machine.facts({**hardware, **stolen}, packages=PACKAGES),
        method=filled(METHOD, plan, captured=CAPTURED, declined=DECLINED, warm_up=WARM_UP_SECONDS, looks=LOOKS),
        samples=[sample for number, pair in enumerate(results.pairs) for sample in _samples(results, number, pair)],
    )


def _samples(results: Results, number: int, pair: tuple[AgeRound, AgeRound]) -> list[dict[str, Any]]:
    return [
        {
            "pair": number + 1,
            "shop": each.side,
            "decided": each.decided,
            "told_p50_ms": round(each.told_p50_ms, 2),
            "decided_p50_ms": round(each.decided_p50_ms, 2),
            "decided_p99_ms": round(each.decided_p99_ms, 2),
            "cpu_us": round(each.cpu_us, 1),
            "list_ms": round(each.list_ms, 2),
            **{f"idle_{name}_percent": round(share * 100, 2) for name, share in idle.items()},
        }
        for each, idle in zip(pair, results.idle[number], strict=True)
    ]
