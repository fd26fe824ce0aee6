"""How long and how often the locks and queues are measured, and what they promise of their speed: figures with their
floors, tables, chart, every round. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.bench.harness.charts import bars
from loadtest.bench.harness.report import NOTHING, Comparison, Figure, middle_ratio, number, ratio
from loadtest.bench.locks_queue.lock_sides import FAIR, POTTERY, RAW, REDIS_LOCK, REDIS_PY, REDIS_PY_FAST, UNFAIR
from loadtest.bench.locks_queue.queue_sides import DRAMATIQ, HUEY, OURS, OURS_APART, RIVALS, RQ, SAQ
from loadtest.bench.locks_queue.queue_sides import RAW as RAW_QUEUE
from loadtest.bench.locks_queue.turns import LockCrowd

LOCKS = (FAIR, UNFAIR, REDIS_PY, REDIS_LOCK, POTTERY, RAW)
CROWDED_LOCKS = (FAIR, UNFAIR, REDIS_PY, REDIS_PY_FAST, REDIS_LOCK, POTTERY)
RENEWED_LOCKS = (FAIR, REDIS_PY, REDIS_LOCK, POTTERY)
QUEUES = (OURS, OURS_APART, RQ, HUEY, DRAMATIQ, SAQ, RAW_QUEUE)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Rounds and seconds of each measurement; depths in tasks."""

    pair_rounds: int = 31
    pair_seconds: float = 0.06
    hand_overs: int = 24
    crowd_rounds: int = 7
    crowd_seconds: float = 3.0
    renewal_rounds: int = 3
    renewed_sides: tuple[str, ...] = RENEWED_LOCKS
    queue_rounds: int = 5
    queue_seconds: float = 0.3
    rival_depth: int = 4_000
    processes: int = 16
    hold_seconds: float = 0.005
    renewed: int = 1000
    depth: int = 100_000

    def depth_of(self, side: str) -> int:
        """Return how many tasks lie in the queue of `side` before a turn."""
        return self.rival_depth if side in RIVALS else self.depth


FULL = Plan()
QUICK = Plan(
    pair_rounds=9,
    pair_seconds=0.05,
    hand_overs=6,
    crowd_rounds=1,
    crowd_seconds=1.5,
    renewed_sides=(FAIR,),
    queue_rounds=1,
    queue_seconds=0.2,
    rival_depth=1_000,
)
METHOD = (
    "Everything in one run on one machine and one Valkey that has every write on disk before it answers "
    "(appendfsync always). Each library has a process of its own; rivals have a client with the redis package's "
    "defaults, or make their own from the address.",
    "In turns, every second round backwards. Figures are medians of the rounds, ratios are the median of the ratios of "
    "each round. Alone: Valkey on one core, the libraries on another. Crowds and hand-overs: nothing is bound.",
    "Acquire and release: {pair_rounds} rounds of {pair_seconds:g} s, on that Valkey and on a second one with "
    "appendfsync everysec. With always the disk takes most of the time of every lock; the floors are held where it "
    "does not. Two raw script calls: SET NX PX, and compare and delete, sent by the redis package with no library "
    "round them: less than any lock here does.",
    "Hand-over: two processes, {hand_overs} times; from just before the release to the moment the waiter has the lock. "
    "It has waited 20 to 120 ms by then, a time drawn again each time.",
    "Crowd: {processes} processes take one lock again and again and sleep {hold_seconds:g} s in it; {crowd_rounds} "
    "rounds of {crowd_seconds:g} s after a warm-up. A wait that is under way at the end is waited to its end and "
    "counts. Shares are counted over whole turns of {processes}. Fewest and most are of the most uneven "
    "round. Every entry and exit is noted by one clock: two holders at once fail the run.",
    "Renewal: {renewed} locks of one process. Ours as the watchdog does it, in one round trip; the others have no such "
    "call, and each lock is extended by itself.",
    "Queues: {queue_rounds} rounds of {queue_seconds:g} s in batches of 100 ids of 32 characters. Ours and the raw one "
    "begin each turn with {depth:,} tasks; the rivals with {rival_depth:,}, which is in their favour.",
    "A task worked is one taken, done (the job does nothing) and removed for good, in one process. No rival keeps "
    "results. rq: the loop of a SimpleWorker, which does not fork. huey: its consumer's worker loop. dramatiq: its "
    "consumer with a prefetch of 100, and an acknowledgement each, without the worker's threads. saq: ten of its "
    "worker's process() at a time. Raw: ZADD of 100 and ZPOPMIN of 100; what is popped is lost when its worker dies.",
    "saq's extra for Redis still asks for a redis package below 8; it ran here with the version named below. arq is "
    "left out: since 0.26 it asks for a redis package below 6.",
)
LOCK_FACTS = {
    FAIR: ("yes", "yes, in order of asking", "BLPOP, woken by name", "watchdog, all at once"),
    UNFAIR: ("yes", "no", "BLPOP", "watchdog, all at once"),
    REDIS_PY: ("no", "no", "polls every 100 ms (default)", "by hand, one by one"),
    REDIS_PY_FAST: ("no", "no", "polls every millisecond", "by hand, one by one"),
    REDIS_LOCK: ("no", "no", "BLPOP, any waiter", "by hand, or a thread a lock"),
    POTTERY: ("no", "no", "polls within 200 ms, at random", "by hand, one by one"),
    RAW: ("no", "no", "does not wait", "none"),
}
QUEUE_FACTS = {
    OURS: ("100 in a script", "settles and takes 100 in a round trip", "is handed to the next worker"),
    OURS_APART: ("100 in a script", "takes 100, settles 100", "is handed to the next worker"),
    RQ: ("100 in a transaction", "one by one", "is marked failed after its timeout"),
    HUEY: ("one by one", "one by one", "is lost"),
    DRAMATIQ: ("one by one", "fetches 100, acknowledges each", "is queued again after a minute"),
    SAQ: ("one by one, 20 at a time", "one by one, 10 at a time", "is swept after its timeout"),
    RAW_QUEUE: ("100 in a command", "100 in a command", "is lost"),
}


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
    return middle_ratio(rates[above], rates[below])


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
