"""What the lock and the queue promise of their speed: figures with their floors, tables, chart, every round. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.bench.harness.charts import bars
from loadtest.bench.harness.report import NOTHING, Comparison, Figure, number, ratio
from loadtest.bench.locks_queue.lock_sides import FAIR, RAW, REDIS_PY, UNFAIR
from loadtest.bench.locks_queue.plan import CROWDED_LOCKS, LOCK_FACTS, LOCKS, QUEUE_FACTS, QUEUES
from loadtest.bench.locks_queue.queue_sides import OURS, OURS_APART, RIVALS
from loadtest.bench.locks_queue.queue_sides import RAW as RAW_QUEUE
from loadtest.bench.locks_queue.turns import LockCrowd

# Of each side, what each round measured.
Rates = Mapping[str, Sequence[float]]
LOCK_HEAD = (
    "lock", "pairs/s, everysec", "always", "hand-over ms", "1,000 renewed ms", "fence", "fair", "waits", "renewal",
)  # fmt: skip
CROWD_HEAD = ("lock", "acquisitions/s", "mean wait ms", "worst wait ms", "fewest", "most", "worst ÷ mean", "uneven %")
QUEUE_HEAD = ("queue", "enqueued/s", "taken and settled/s", "enqueues", "works", "a task whose worker died")


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything measured: of each side, what each round came to. relaxed: on the server with appendfsync everysec."""

    pairs: Rates
    relaxed_pairs: Rates
    pipelined_pairs: list[float]
    renewal_ms: Rates
    enqueued: Rates
    worked: Rates
    hand_over_ms: Rates
    crowds: Mapping[str, Sequence[LockCrowd]]


def paired(rates: Rates, above: str, below: str) -> float:
    """Return the middle of the rounds' ratios: what disturbs a whole round disturbs both sides of it."""
    return statistics.median(map(ratio, rates[above], rates[below]))


def medians(rates: Rates) -> dict[str, float]:
    """Return the middle rate of each side."""
    return {side: statistics.median(values) for side, values in rates.items()}


def fastest(rates: Rates, *, among: Sequence[str]) -> str:
    """Return the side with the highest middle rate."""
    return max(among, key=medians(rates).__getitem__)


def steadiness(rounds: Sequence[float]) -> float:
    """Return the lower quartile of the rounds over the upper one: near 1 on a machine where nothing else runs."""
    lower, _, upper = statistics.quantiles(rounds, n=4)
    return ratio(lower, upper)


def figures_of(results: Results) -> list[Figure]:
    """Return every figure with its floor."""
    pipelined, relaxed = statistics.median(results.pipelined_pairs), results.relaxed_pairs
    handed, renewed = medians(results.hand_over_ms)[FAIR], medians(results.renewal_ms)[FAIR]
    return [
        *pair_figures(relaxed, on_disk=results.pairs),
        Figure("two raw script calls, pipelined", value=pipelined, unit="pairs/s"),
        # What a neighbour on the machine did to the raw calls, it did to all.
        Figure("raw calls: lower quartile ÷ upper (disturbed below 0.8)", value=steadiness(relaxed[RAW])),
        Figure("hand-over to one waiter, median", value=handed, unit="ms", at_most=2),
        *crowd_figures(results.crowds),
        Figure("1,000 locks renewed in one go", value=renewed, unit="ms", at_most=50),
        *queue_figures("enqueue", results.enqueued, at_least=40_000),
        *queue_figures("take and settle", results.worked, at_least=30_000),
    ]


def pair_figures(rates: Rates, *, on_disk: Rates) -> list[Figure]:
    """Return the figures of a lock that nobody else wants. on_disk: where every write is on disk before its answer.

    There the disk takes most of the time of every lock, so that the floor against redis-py's would be a toss-up.
    """
    return [
        Figure("acquire and release, everysec", value=medians(rates)[FAIR], unit="pairs/s"),
        Figure("… ÷ redis-py's Lock, everysec", value=paired(rates, FAIR, REDIS_PY), at_least=1.0),
        Figure("… ÷ two raw script calls, everysec", value=paired(rates, FAIR, RAW), at_least=0.8),
        Figure("acquire and release, always", value=medians(on_disk)[FAIR], unit="pairs/s"),
        Figure("… ÷ redis-py's Lock, always", value=paired(on_disk, FAIR, REDIS_PY)),
        Figure("… ÷ two raw script calls, always", value=paired(on_disk, FAIR, RAW), at_least=0.8),
    ]


def crowd_rates(crowds: Mapping[str, Sequence[LockCrowd]]) -> Rates:
    """Return the acquisitions a second of each side, round by round."""
    return {side: [crowd.per_second for crowd in rounds] for side, rounds in crowds.items()}


def crowd_figures(crowds: Mapping[str, Sequence[LockCrowd]]) -> list[Figure]:
    """Return the figures of many processes at one lock."""
    ours, rates = crowds[FAIR], crowd_rates(crowds)
    best = fastest(rates, among=list(rates))
    worst = statistics.median(crowd.worst_to_mean for crowd in ours)
    uneven = statistics.median(crowd.unevenness for crowd in ours)
    return [
        Figure("crowd: worst wait ÷ mean wait", value=worst, at_most=2),
        Figure("crowd: furthest from an even share", value=uneven, unit="%", at_most=5),
        Figure(f"crowd: acquisitions ÷ the fastest ({best})", value=paired(rates, FAIR, best), at_least=0.95),
    ]


def queue_figures(name: str, rates: Rates, *, at_least: float) -> list[Figure]:
    """Return the figures of one direction of the queue. at_least: tasks a second."""
    best = fastest(rates, among=RIVALS)
    return [
        Figure(name, value=medians(rates)[OURS], unit="tasks/s", at_least=at_least),
        Figure(f"{name} ÷ the fastest rival ({best})", value=paired(rates, OURS, best), at_least=5),
    ]


def overlap_faults(crowds: Mapping[str, Sequence[LockCrowd]]) -> list[str]:
    """Return a sentence for each lock that had two holders at once."""
    return [
        f"{side} had two holders at once {overlaps} times"
        for side, rounds in crowds.items()
        if (overlaps := sum(crowd.overlaps for crowd in rounds))
    ]


def comparisons_of(results: Results) -> list[Comparison]:
    """Return the tables that show all sides alongside each other, and what each of them does."""
    return [
        Comparison(title="Locks", head=LOCK_HEAD, rows=_lock_rows(results)),
        Comparison(title="Sixteen processes at one lock", head=CROWD_HEAD, rows=_crowd_rows(results)),
        Comparison(title="Queues", head=QUEUE_HEAD, rows=_queue_rows(results)),
    ]


def _lock_rows(results: Results) -> list[tuple[str, ...]]:
    measured = (results.relaxed_pairs, results.pairs, results.hand_over_ms, results.renewal_ms)
    columns = [medians(rates) for rates in measured]
    sides = [*CROWDED_LOCKS, *(side for side in LOCKS if side not in CROWDED_LOCKS)]
    return [(side, *(_or_nothing(column.get(side)) for column in columns), *LOCK_FACTS[side]) for side in sides]


def _crowd_rows(results: Results) -> list[tuple[str, ...]]:
    rows = []
    for side, rounds in results.crowds.items():
        middle = [
            number(statistics.median(getattr(crowd, name) for crowd in rounds))
            for name in ("per_second", "mean_wait_ms", "worst_wait_ms", "worst_to_mean", "unevenness")
        ]
        uneven = max(rounds, key=lambda crowd: crowd.unevenness)
        ends = [str(min(uneven.counts)), str(max(uneven.counts))]
        rows.append((side, *middle[:3], *ends, *middle[3:]))
    return rows


def _queue_rows(results: Results) -> list[tuple[str, ...]]:
    enqueued, worked = medians(results.enqueued), medians(results.worked)
    return [(side, _or_nothing(enqueued.get(side)), number(worked[side]), *QUEUE_FACTS[side]) for side in QUEUES]


def _or_nothing(value: float | None) -> str:
    return NOTHING if value is None else number(value)


def samples_of(results: Results) -> list[dict[str, Any]]:
    """Return every round of every side."""
    measured: dict[str, Mapping[str, Sequence[float]]] = {
        "acquire and release, pairs/s, everysec": results.relaxed_pairs,
        "the same, always": results.pairs,
        "1,000 renewed, ms": results.renewal_ms,
        "hand-over, ms": results.hand_over_ms,
        "crowd, acquisitions/s": crowd_rates(results.crowds),
        "crowd, acquisitions of each process": {
            side: [count for crowd in rounds for count in crowd.counts] for side, rounds in results.crowds.items()
        },
        "enqueued, tasks/s": results.enqueued,
        "taken and settled, tasks/s": results.worked,
    }
    return [
        {"measurement": name, "side": side, "rounds": [round(value, 3) for value in values]}
        for name, rates in measured.items()
        for side, values in rates.items()
    ]


def picture_of(results: Results) -> str:
    """Return the chart."""
    worst = {
        side: statistics.median(crowd.worst_wait_ms for crowd in rounds) for side, rounds in results.crowds.items()
    }
    panels = {
        "Acquire and release, pairs a second, everysec (longer is better)": medians(results.relaxed_pairs),
        "Hand-over to one waiter, ms (shorter is better)": medians(results.hand_over_ms),
        "Sixteen processes, worst wait in ms (shorter is better)": worst,
        "Enqueue in batches of 100, tasks a second (longer is better)": medians(results.enqueued),
        "Take and settle in batches of 100, tasks a second (longer is better)": medians(results.worked),
    }
    text = "Locks and queues alongside each other; the same numbers stand in the tables"
    return bars(panels, ours=(FAIR, UNFAIR, OURS, OURS_APART), limits=(RAW, RAW_QUEUE), description=text)
