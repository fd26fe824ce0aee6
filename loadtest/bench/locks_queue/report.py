"""Puts what was measured of the locks and queues into one report: figures, comparisons, chart, every round. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from loadtest.bench.harness.chart import Panel, chart
from loadtest.bench.harness.figures import Figure, number
from loadtest.bench.harness.report import Comparison
from loadtest.bench.locks_queue.bounds import (
    crowd_figures,
    crowd_rates,
    hand_over_figures,
    medians,
    pair_figures,
    queue_figures,
    renewal_figures,
    steadiness,
)
from loadtest.bench.locks_queue.lock_sides import FAIR, RAW, UNFAIR
from loadtest.bench.locks_queue.plan import CROWDED_LOCKS, LOCK_FACTS, LOCKS, QUEUE_FACTS, QUEUES
from loadtest.bench.locks_queue.queue_sides import OURS, OURS_APART
from loadtest.bench.locks_queue.queue_sides import RAW as RAW_QUEUE
from loadtest.bench.locks_queue.run import Results

LOCK_HEAD = (
    "lock",
    "pairs/s, everysec",
    "always",
    "hand-over ms",
    "1,000 renewed ms",
    "fence",
    "fair",
    "waits",
    "renewal",
)
CROWD_HEAD = ("lock", "acquisitions/s", "mean wait ms", "worst wait ms", "fewest", "most", "worst ÷ mean", "uneven %")
QUEUE_HEAD = ("queue", "enqueued/s", "taken and settled/s", "enqueues", "works", "a task whose worker died")
NOTHING = "–"


def figures_of(results: Results) -> list[Figure]:
    """Return every figure with its floor."""
    return [
        *pair_figures(results.relaxed_pairs, on_disk=results.pairs),
        Figure(
            name="two raw script calls, pipelined", value=statistics.median(results.pipelined_pairs), unit="pairs/s"
        ),
        # What a neighbour on the machine did to the raw calls, it did to all.
        Figure(
            name="raw calls: lower quartile ÷ upper (disturbed below 0.8)", value=steadiness(results.relaxed_pairs[RAW])
        ),
        *hand_over_figures(results.hand_over_ms),
        *crowd_figures(results.crowds),
        *renewal_figures(results.renewal_ms),
        *queue_figures("enqueue", results.enqueued, at_least=40_000),
        *queue_figures("take and settle", results.worked, at_least=30_000),
    ]


def comparisons_of(results: Results) -> list[Comparison]:
    """Return the tables that show all sides alongside each other, and what each of them does."""
    return [
        Comparison(title="Locks", head=LOCK_HEAD, rows=_lock_rows(results)),
        Comparison(title="Sixteen processes at one lock", head=CROWD_HEAD, rows=_crowd_rows(results)),
        Comparison(title="Queues", head=QUEUE_HEAD, rows=_queue_rows(results)),
    ]


def _lock_rows(results: Results) -> list[tuple[str, ...]]:
    columns = [medians(rates) for rates in (results.relaxed_pairs, results.pairs, results.hand_over_ms)]
    columns.append(medians(results.renewal_ms))
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
    ours: Sequence[str] = (FAIR, UNFAIR, OURS, OURS_APART)
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
    drawn = [Panel(title=title, values=values, ours=ours, limits=(RAW, RAW_QUEUE)) for title, values in panels.items()]
    return chart(drawn, description="Locks and queues alongside each other; the same numbers stand in the tables")
