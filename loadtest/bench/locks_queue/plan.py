"""How long and how often the locks and queues are measured, and what each of them does, in words. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.bench.locks_queue.lock_sides import FAIR, POTTERY, RAW, REDIS_LOCK, REDIS_PY, REDIS_PY_FAST, UNFAIR
from loadtest.bench.locks_queue.queue_sides import DRAMATIQ, HUEY, OURS, OURS_APART, RIVALS, RQ, SAQ
from loadtest.bench.locks_queue.queue_sides import RAW as RAW_QUEUE

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
