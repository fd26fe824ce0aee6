"""What the shop promises of a shop with a past: figures with their floors, samples. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from loadtest.bench.harness.machine import WEB
from loadtest.bench.harness.report import KEPT, Figure, middle_ratio, ratio

if TYPE_CHECKING:
    from loadtest.bench.age.plan import Plan
    from loadtest.bench.age.processes import Ends

YOUNG, OLD = "no past", "old"
PROCESSES = (WEB, "settler", "expirer", "reconciler", "payments")
MAX_IDLE_PERCENT = 3
MAX_SLOWER, MAX_SLOWER_P99 = 1.10, 1.25
MAX_LIST_BYTES, MAX_LIST_MS = 20_000, 2
MAX_MY_TICKETS_MS = 50
MAX_METRICS_BYTES, MAX_METRICS_CPU_MS = 100_000, 10
MAX_LOOK_MS = 20
# The index that finds what is open must keep this look so short however many payments there were.
MAX_PAYMENTS_LOOK_MS = 5
MAX_LARGE_PERCENT, MAX_LARGE_SECONDS = 8, 600
MIN_SPREAD = 0.25
MAX_LATE_SECONDS, MAX_SWEEPING_PERCENT = 1, 1
LOOK_NAMES = {
    "expirer": "holds that are due",
    "settler": "lines with work",
    "reconciler": "sales not retired",
    "retirement": "sales to retire and to forget",
    "retention": "rows kept long enough",
    "payments worker": "payments left open",
}


@dataclass(frozen=True, kw_only=True)
class AgeRound:
    """One round of one shop. Waits in ms: to the 202, and from the place in line to the committed decision."""

    side: str
    decided: int
    told_p50_ms: float
    decided_p50_ms: float
    decided_p99_ms: float
    cpu_us: float
    list_bytes: int
    list_ms: float
    metrics_bytes: int
    looks_ms: Mapping[str, Sequence[float]] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Large:
    """A live sale with many records. share: of a core, all processes and stores; round_seconds: NaN when never over."""

    records: int
    round_seconds: float
    share: float
    drifts: int


@dataclass(frozen=True, kw_only=True)
class Results:
    """pairs: (no past, old); idle: shares of a core by process, of each pair and shop.

    metrics_ms: CPU time of each page of metrics, by process.
    """

    pairs: Sequence[tuple[AgeRound, AgeRound]]
    idle: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]
    my_tickets_ms: float
    metrics_ms: Mapping[str, Sequence[float]]
    from_memory: Mapping[str, float]
    retired_bytes: tuple[int, int]
    spread: Sequence[tuple[float, float]]
    large: Large
    ends: Ends


def figures_of(results: Results, *, plan: Plan) -> list[Figure]:
    """Return every figure with its bound."""
    return [
        *_idle_figures(results),
        *_purchase_figures(results, meant=plan.asks_per_second * plan.seconds),
        *_size_figures(results, plan=plan),
        *_look_figures(results),
        *_redis_figures(results, plan=plan),
        *_end_figures(results.ends, plan=plan),
    ]


def _idle_figures(results: Results) -> list[Figure]:
    percent = {name: median(old[name] for _, old in results.idle) * 100 for name in PROCESSES}
    return [
        Figure(f"idle, old shop: {name}", value=value, unit="% of a core", at_most=MAX_IDLE_PERCENT)
        for name, value in percent.items()
    ]


def _purchase_figures(results: Results, *, meant: float) -> list[Figure]:
    figures = []
    for title, unit, max_ratio, name in (
        ("ask to decision, p50", "ms", MAX_SLOWER, "decided_p50_ms"),
        ("ask to decision, p99", "ms", MAX_SLOWER_P99, "decided_p99_ms"),
        ("CPU per purchase", "µs", MAX_SLOWER, "cpu_us"),
        ("wait for the 202, p50", "ms", None, "told_p50_ms"),
    ):
        young, old = ([getattr(pair[side], name) for pair in results.pairs] for side in (0, 1))
        figures += [
            Figure(f"{title}, {YOUNG}", value=median(young), unit=unit),
            Figure(f"{title}, {OLD}", value=median(old), unit=unit),
        ]
        if max_ratio is not None:
            middle = middle_ratio(old, young)
            figures.append(Figure(f"{title}: {OLD} ÷ {YOUNG}, median of pairs", value=middle, at_most=max_ratio))
    fewest = min(each.decided for pair in results.pairs for each in pair)
    return [*figures, Figure("decided in the round with the fewest", value=fewest, at_least=KEPT * meant)]


def _size_figures(results: Results, *, plan: Plan) -> list[Figure]:
    rounds = [old for _, old in results.pairs]
    size, metrics = max(each.list_bytes for each in rounds), max(each.metrics_bytes for each in rounds)
    wait_ms = median(each.list_ms for each in rounds)
    return [
        Figure("GET /api/v1/sales, old shop", value=size, unit="bytes", at_most=MAX_LIST_BYTES),
        Figure("GET /api/v1/sales, old shop, median", value=wait_ms, unit="ms", at_most=MAX_LIST_MS),
        Figure("My tickets, old shop, median", value=results.my_tickets_ms, unit="ms", at_most=MAX_MY_TICKETS_MS),
        Figure("/metrics, old shop", value=metrics, unit="bytes", at_most=MAX_METRICS_BYTES),
        *[
            Figure(
                f"/metrics of {kind} with {plan.metrics_sales:,} live sales, CPU, median",
                value=median(took),
                unit="ms",
                at_most=MAX_METRICS_CPU_MS,
            )
            for kind, took in results.metrics_ms.items()
        ],
    ]


def _look_figures(results: Results) -> list[Figure]:
    figures = []
    for worker, what in LOOK_NAMES.items():
        looks = [took for _, old in results.pairs for took in old.looks_ms[worker]]
        name = f"a look of the {worker} ({what})"
        max_ms = MAX_PAYMENTS_LOOK_MS if worker == "payments worker" else MAX_LOOK_MS
        figures += [
            Figure(f"{name}, median", value=median(looks), unit="ms", at_most=max_ms),
            Figure(f"{name}, slowest", value=max(looks), unit="ms"),
        ]
    return figures


def _redis_figures(results: Results, *, plan: Plan) -> list[Figure]:
    before, after = results.retired_bytes
    spread = median(ratio(many, one) for one, many in results.spread)
    large, named = results.large, f"{results.large.records:,} records in one live sale"
    share, settled = large.share * 100, f"settled in {plan.spread_skus:,} SKUs ÷ in one, median of rounds"
    return [
        *[
            Figure(f"sold-out answers from memory, {name}", value=share * 100, unit="%", at_least=100)
            for name, share in results.from_memory.items()
        ],
        Figure("Redis memory of a SKU before its sale is retired", value=before, unit="bytes", at_least=1),
        Figure("Redis memory of a retired SKU", value=after, unit="bytes", at_most=0),
        Figure(f"{named}: everything idle", value=share, unit="% of a core", at_most=MAX_LARGE_PERCENT),
        Figure(f"{named}: a full comparison", value=large.round_seconds, unit="s", at_most=MAX_LARGE_SECONDS),
        Figure(f"{named}: differences found", value=large.drifts, at_most=0),
        Figure(settled, value=spread, at_least=MIN_SPREAD),
    ]


def _end_figures(ends: Ends, *, plan: Plan) -> list[Figure]:
    named = f"{ends.holds:,} holds that end within {plan.ending_seconds:g} s"
    sweeping = {
        "sweeping when nothing is held": ends.sweeping,
        f"sweeping after {plan.ended_holds:,} holds, before a vacuum": ends.sweeping_after,
    }
    return [
        *[
            Figure(name, value=share * 100, unit="% of a core", at_most=MAX_SWEEPING_PERCENT)
            for name, share in sweeping.items()
        ],
        Figure(f"{named}: ended", value=ends.ended, at_least=plan.ending_holds),
        Figure(f"{named}: late, median", value=ends.late_p50_seconds, unit="s"),
        Figure(f"{named}: late, p99", value=ends.late_p99_seconds, unit="s", at_most=MAX_LATE_SECONDS),
        Figure(f"{named}: late, the last", value=ends.latest_seconds, unit="s"),
    ]


def samples_of(results: Results) -> list[dict[str, Any]]:
    """Return every round of both shops; their looks are too many for a row."""
    return [
        {
            "pair": number,
            **{name: value for name, value in vars(each).items() if name != "looks_ms"},
            **{f"idle_{name}_percent": share * 100 for name, share in idle.items()},
        }
        for number, (rounds, shares) in enumerate(zip(results.pairs, results.idle, strict=True), 1)
        for each, idle in zip(rounds, shares, strict=True)
    ]
