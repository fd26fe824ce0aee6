"""Measures the lock and the queue alongside other libraries, in turns, on Valkeys of their own."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from inventory.redis import connect
from loadtest.bench.gate.admission import two_cores
from loadtest.bench.harness import machine
from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, in_turns, say, say_fields
from loadtest.bench.harness.report import number
from loadtest.bench.load.subprocesses import Hand, hands_of
from loadtest.bench.locks_queue.lock_sides import RAW, load_lock
from loadtest.bench.locks_queue.queue_sides import OURS_APART, load_queue
from loadtest.bench.locks_queue.report import (
    CROWDED_LOCKS,
    FULL,
    LOCKS,
    METHOD,
    QUEUES,
    QUICK,
    Plan,
    Results,
    comparisons_of,
    figures_of,
    overlap_faults,
    picture_of,
    samples_of,
)
from loadtest.bench.locks_queue.turns import (
    LockCrowd,
    crowd_at,
    enqueued_per_second,
    fill,
    hand_overs_ms,
    pairs_per_second,
    pipelined_pairs_per_second,
    renewal_ms,
    worked_per_second,
)
from workers.embedded.server import Server

PIPELINED_ROUNDS = 5
Measured = dict[str, list[float]]


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Measure on a Valkey with appendfsync always, a lock alone on one with everysec too. Raises LoadFailed."""
    results = measure_all(run)
    return Findings(
        figures=figures_of(results),
        facts={
            "Persistence": {"valkey": machine.append_mode(connect()), "valkey everysec": "appendfsync everysec"},
        },
        samples=samples_of(results),
        faults=overlap_faults(results.crowds),
        comparisons=comparisons_of(results),
        picture=picture_of(results),
    )


def measure_all(run: BenchmarkRun[Plan]) -> Results:
    """Measure locks alone, then queues, then locks that others want."""
    plan = run.plan
    strict, relaxed = run.stores.valkeys
    server_core, library_core = two_cores()
    for server in (strict, relaxed):
        _bind(server, to={server_core})
    say("A lock that nobody else wants: the libraries on one core, Valkey on another")
    with hands_of(LOCKS, redis_url=strict.url, load=load_lock, cores={library_core}) as hands:
        pairs = _pairs(hands, plan=plan)
        raw, seconds = hands[RAW], plan.pair_seconds
        pipelined = [raw.ask(pipelined_pairs_per_second, seconds=seconds) for _ in range(PIPELINED_ROUNDS)]
        say("A thousand locks renewed")
        renewals = _renewals(hands, plan=plan)
    say("A lock that nobody else wants, appendfsync everysec")
    with hands_of(LOCKS, redis_url=relaxed.url, load=load_lock, cores={library_core}) as hands:
        relaxed_pairs = _pairs(hands, plan=plan)
    say("Queues")
    with hands_of(QUEUES, redis_url=strict.url, load=load_queue, cores={library_core}) as hands:
        enqueued, worked = _queues(hands, plan=plan)
    everywhere = set(machine.cores())
    _bind(strict, to=everywhere)
    say("A lock that others want: nothing bound to a core")
    with hands_of(CROWDED_LOCKS, redis_url=strict.url, load=load_lock, cores=everywhere) as hands:
        gaps = _hand_overs(hands, plan=plan)
        crowds = _crowds(hands, plan=plan)
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
        machine.bind(server.child, to=to)


def _pairs(hands: Mapping[str, Hand], *, plan: Plan) -> Measured:
    rates: Measured = {side: [] for side in hands}
    for _, side in in_turns(list(hands), rounds=plan.pair_rounds):
        rates[side].append(hands[side].ask(pairs_per_second, side=side, seconds=plan.pair_seconds))
    _report(rates, unit="pairs/s")
    return rates


def _renewals(hands: Mapping[str, Hand], *, plan: Plan) -> Measured:
    arguments = {"locks": plan.renewed, "rounds": plan.renewal_rounds}
    found = {side: hands[side].ask(renewal_ms, side=side, **arguments) for side in plan.renewed_sides}
    _report(found, unit="ms")
    return found


def _queues(hands: Mapping[str, Hand], *, plan: Plan) -> tuple[Measured, Measured]:
    # Ours enqueues in one way only, however its tasks are worked.
    enqueued: Measured = {side: [] for side in hands if side != OURS_APART}
    worked: Measured = {side: [] for side in hands}
    for _, side in in_turns(list(hands), rounds=plan.queue_rounds):
        hand, seconds = hands[side], plan.queue_seconds
        hand.ask(fill, side=side, depth=plan.depth_of(side))
        if side in enqueued:
            enqueued[side].append(hand.ask(enqueued_per_second, side=side, seconds=seconds))
        worked[side].append(hand.ask(worked_per_second, side=side, seconds=seconds))
    _report(enqueued, unit="tasks/s enqueued")
    _report(worked, unit="tasks/s worked")
    return enqueued, worked


def _hand_overs(hands: Mapping[str, Hand], *, plan: Plan) -> Measured:
    # Two halves, so that a disturbance does not hit one side only.
    gaps: Measured = {side: [] for side in hands}
    for number_of_round, side in in_turns(list(hands), rounds=2):
        name = f"hand-over-{number_of_round}"
        gaps[side] += hands[side].ask(hand_overs_ms, side=side, name=name, count=plan.hand_overs // 2)
    _report(gaps, unit="ms from the release to the new holder")
    return gaps


def _crowds(hands: Mapping[str, Hand], *, plan: Plan) -> dict[str, list[LockCrowd]]:
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
        say_fields(crowd, of=side)
    return crowds


def _report(rates: Mapping[str, Sequence[float]], *, unit: str) -> None:
    for side, values in rates.items():
        say(f"  {side:<26} {number(statistics.median(values)):>10} {unit}")


BENCHMARK = Benchmark(
    title="The lock and the queue: measured alongside others",
    command="make bench-locks",
    packages=("redis", "hiredis", "python-redis-lock", "pottery", "rq", "huey", "dramatiq", "saq"),
    full=FULL,
    quick=QUICK,
    method=METHOD,
    measure=measure,
    picture="Bars of every lock and queue alongside ours",
)
