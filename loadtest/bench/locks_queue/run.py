"""Runs every measurement of the locks and queues in turns. Never judges what it finds, never writes a file."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loadtest.bench.gate.admission import two_cores
from loadtest.bench.harness import processes
from loadtest.bench.harness.figures import number
from loadtest.bench.harness.rounds import in_turns
from loadtest.bench.load.subprocesses import Hand, hands_of
from loadtest.bench.locks_queue.lock_crowds import LockCrowd, crowd_at, hand_overs_ms
from loadtest.bench.locks_queue.lock_sides import RAW, load_lock
from loadtest.bench.locks_queue.lock_turns import pairs_per_second, pipelined_pairs_per_second, renewal_ms
from loadtest.bench.locks_queue.plan import CROWDED_LOCKS, LOCKS, QUEUES, Plan
from loadtest.bench.locks_queue.queue_sides import OURS_APART, load_queue
from loadtest.bench.locks_queue.queue_turns import enqueued_per_second, fill, worked_per_second
from workers.embedded.server import Server

PIPELINED_ROUNDS = 5
Say = Callable[[str], None]
Rates = dict[str, list[float]]


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
    crowds: dict[str, list[LockCrowd]]


def measure_all(plan: Plan, *, strict: Server, relaxed: Server, say: Say) -> Results:
    """Measure on `strict` (appendfsync always), a lock alone on `relaxed` (everysec) too. Raises LoadFailed."""
    server_core, library_core = two_cores()
    for server in (strict, relaxed):
        _bind(server, to={server_core})
    say("A lock that nobody else wants: the libraries on one core, Valkey on another")
    with hands_of(LOCKS, redis_url=strict.url, load=load_lock, cores={library_core}) as hands:
        pairs = _pairs(hands, plan=plan, say=say)
        pipelined = [
            hands[RAW].ask(pipelined_pairs_per_second, side=RAW, seconds=plan.pair_seconds)
            for _ in range(PIPELINED_ROUNDS)
        ]
        say("A thousand locks renewed")
        renewals = _renewals(hands, plan=plan, say=say)
    say("A lock that nobody else wants, appendfsync everysec")
    with hands_of(LOCKS, redis_url=relaxed.url, load=load_lock, cores={library_core}) as hands:
        relaxed_pairs = _pairs(hands, plan=plan, say=say)
    say("Queues")
    with hands_of(QUEUES, redis_url=strict.url, load=load_queue, cores={library_core}) as hands:
        enqueued, worked = _queues(hands, plan=plan, say=say)
    everywhere = set(processes.cores())
    _bind(strict, to=everywhere)
    say("A lock that others want: nothing bound to a core")
    with hands_of(CROWDED_LOCKS, redis_url=strict.url, load=load_lock, cores=everywhere) as hands:
        gaps = _hand_overs(hands, plan=plan, say=say)
        crowds = _crowds(hands, plan=plan, say=say)
    return Results(
        pairs=pairs,
        relaxed_pairs=relaxed_pairs,
        pipelined_pairs=pipelined,
        renewal_ms=renewals,
        enqueued=enqueued,
        worked=worked,
        hand_over_ms=gaps,
        crowds=crowds,
    )


def _bind(server: Server, *, to: set[int]) -> None:
    if server.child is not None:
        processes.bind(server.child, to=to)


def _pairs(hands: Mapping[str, Hand], *, plan: Plan, say: Say) -> Rates:
    rates: Rates = {side: [] for side in hands}
    for _, side in in_turns(list(hands), rounds=plan.pair_rounds):
        rates[side].append(hands[side].ask(pairs_per_second, side=side, seconds=plan.pair_seconds))
    _tell(rates, unit="pairs/s", say=say)
    return rates


def _renewals(hands: Mapping[str, Hand], *, plan: Plan, say: Say) -> Rates:
    arguments = {"locks": plan.renewed, "rounds": plan.renewal_rounds}
    found = {side: hands[side].ask(renewal_ms, side=side, **arguments) for side in plan.renewed_sides}
    _tell(found, unit="ms", say=say)
    return found


def _queues(hands: Mapping[str, Hand], *, plan: Plan, say: Say) -> tuple[Rates, Rates]:
    # Ours enqueues in one way only, however its tasks are worked.
    enqueued: Rates = {side: [] for side in hands if side != OURS_APART}
    worked: Rates = {side: [] for side in hands}
    for _, side in in_turns(list(hands), rounds=plan.queue_rounds):
        hand, seconds = hands[side], plan.queue_seconds
        hand.ask(fill, side=side, depth=plan.depth_of(side))
        if side in enqueued:
            enqueued[side].append(hand.ask(enqueued_per_second, side=side, seconds=seconds))
        worked[side].append(hand.ask(worked_per_second, side=side, seconds=seconds))
    _tell(enqueued, unit="tasks/s enqueued", say=say)
    _tell(worked, unit="tasks/s worked", say=say)
    return enqueued, worked


def _hand_overs(hands: Mapping[str, Hand], *, plan: Plan, say: Say) -> Rates:
    # Two halves, so that a disturbance does not hit one side only.
    gaps: Rates = {side: [] for side in hands}
    for number_of_round, side in in_turns(list(hands), rounds=2):
        name = f"hand-over-{number_of_round}"
        gaps[side] += hands[side].ask(hand_overs_ms, side=side, name=name, count=plan.hand_overs // 2)
    _tell(gaps, unit="ms from the release to the new holder", say=say)
    return gaps


def _crowds(hands: Mapping[str, Hand], *, plan: Plan, say: Say) -> dict[str, list[LockCrowd]]:
    crowds: dict[str, list[LockCrowd]] = {side: [] for side in hands}
    for number_of_round, side in in_turns(list(hands), rounds=plan.crowd_rounds):
        crowd = hands[side].ask(
            crowd_at,
            side=side,
            name=f"crowd-{number_of_round}",
            processes=plan.processes,
            hold_seconds=plan.hold_seconds,
            seconds=plan.crowd_seconds,
        )
        crowds[side].append(crowd)
        say(
            f"  {side:<26} {crowd.per_second:>6,.0f}/s   wait mean {crowd.mean_wait_ms:>6,.0f} ms, worst "
            f"{crowd.worst_wait_ms:>6,.0f} ms   per process {min(crowd.counts)} to {max(crowd.counts)}"
        )
    return crowds


def _tell(rates: Mapping[str, Sequence[float]], *, unit: str, say: Say) -> None:
    for side, values in rates.items():
        say(f"  {side:<26} {number(statistics.median(values)):>10} {unit}")
