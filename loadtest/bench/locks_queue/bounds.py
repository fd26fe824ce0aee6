"""What the lock and the queue promise of their speed: every figure of a run with its floor. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from loadtest.bench.harness.figures import Figure, ratio
from loadtest.bench.locks_queue.lock_crowds import LockCrowd
from loadtest.bench.locks_queue.lock_sides import FAIR, RAW, REDIS_PY
from loadtest.bench.locks_queue.queue_sides import OURS, RIVALS

# Of each side, what each round measured.
Rates = Mapping[str, Sequence[float]]


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


def pair_figures(rates: Rates, *, on_disk: Rates) -> list[Figure]:
    """Return the figures of a lock that nobody else wants. on_disk: where every write is on disk before its answer.

    There the disk takes most of the time of every lock, so that the floor against redis-py's would be a toss-up.
    """
    return [
        Figure(name="acquire and release, everysec", value=medians(rates)[FAIR], unit="pairs/s"),
        Figure(name="… ÷ redis-py's Lock, everysec", value=paired(rates, FAIR, REDIS_PY), at_least=1.0),
        Figure(name="… ÷ two raw script calls, everysec", value=paired(rates, FAIR, RAW), at_least=0.8),
        Figure(name="acquire and release, always", value=medians(on_disk)[FAIR], unit="pairs/s"),
        Figure(name="… ÷ redis-py's Lock, always", value=paired(on_disk, FAIR, REDIS_PY)),
        Figure(name="… ÷ two raw script calls, always", value=paired(on_disk, FAIR, RAW), at_least=0.8),
    ]


def hand_over_figures(gaps_ms: Rates) -> list[Figure]:
    """Return the figures of the hand-over to one waiter."""
    return [Figure(name="hand-over to one waiter, median", value=medians(gaps_ms)[FAIR], unit="ms", at_most=2)]


def crowd_rates(crowds: Mapping[str, Sequence[LockCrowd]]) -> Rates:
    """Return the acquisitions a second of each side, round by round."""
    return {side: [crowd.per_second for crowd in rounds] for side, rounds in crowds.items()}


def crowd_figures(crowds: Mapping[str, Sequence[LockCrowd]]) -> list[Figure]:
    """Return the figures of many processes at one lock."""
    ours, rates = crowds[FAIR], crowd_rates(crowds)
    best = fastest(rates, among=list(rates))
    return [
        Figure(
            name="crowd: worst wait ÷ mean wait",
            value=statistics.median(crowd.worst_to_mean for crowd in ours),
            at_most=2,
        ),
        Figure(
            name="crowd: furthest from an even share",
            value=statistics.median(crowd.unevenness for crowd in ours),
            unit="%",
            at_most=5,
        ),
        Figure(name=f"crowd: acquisitions ÷ the fastest ({best})", value=paired(rates, FAIR, best), at_least=0.95),
    ]


def renewal_figures(renewal_ms: Rates) -> list[Figure]:
    """Return the figures of the watchdog."""
    return [Figure(name="1,000 locks renewed in one go", value=medians(renewal_ms)[FAIR], unit="ms", at_most=50)]


def queue_figures(name: str, rates: Rates, *, at_least: float) -> list[Figure]:
    """Return the figures of one direction of the queue. at_least: tasks a second."""
    best = fastest(rates, among=RIVALS)
    return [
        Figure(name=name, value=medians(rates)[OURS], unit="tasks/s", at_least=at_least),
        Figure(name=f"{name} ÷ the fastest rival ({best})", value=paired(rates, OURS, best), at_least=5),
    ]


def overlap_faults(crowds: Mapping[str, Sequence[LockCrowd]]) -> list[str]:
    """Return a sentence for each lock that had two holders at once."""
    return [
        f"{side} had two holders at once {overlaps} times"
        for side, rounds in crowds.items()
        if (overlaps := sum(crowd.overlaps for crowd in rounds))
    ]
