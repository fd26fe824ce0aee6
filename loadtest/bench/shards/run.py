"""Floods the SKUs of two shards of a Cluster while the third one answers, and while it is frozen, in turns.
Never counts what is asked of the third. Needs Django to be set up.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import median
from urllib.parse import urlsplit

from inventory.redis import connect, keys, node_of
from loadtest.bench.capacity.report import Deployment, Plan
from loadtest.bench.capacity.shops import (
    READY_SECONDS,
    Deployed,
    asks_of,
    audit_faults,
    decided_a_second,
    deployed,
    load_shop,
    wait_until_all_decided,
)
from loadtest.bench.gate.admission import ADMITTED
from loadtest.bench.gate.end_to_end import MAX_PER_SECOND
from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, in_turns, say_fields
from loadtest.bench.harness.fixtures import Fixture
from loadtest.bench.harness.machine import Stolen
from loadtest.bench.harness.report import Figure, middle_ratio
from loadtest.bench.harness.servers import probe
from loadtest.bench.harness.timing import again_and_again, wait_for
from loadtest.bench.load.loader import UNAVAILABLE
from loadtest.bench.load.loop import LoadFailed
from workers.embedded.child_process import ChildProcess

WHOLE, AWAY = "all shards up", "one shard frozen"
# What the shop promises to the SKUs of all other shards.
MIN_KEPT = 0.9
SHOP = Deployment(masters=3)
# As many pairs forwards as backwards: the shop grows slower with each order, and that must fall on both sides alike.
FULL = Plan(rounds=6, seconds=20.0)
QUICK = Plan(rounds=2, seconds=5.0, warm_up_seconds=1.0)
# At the SKUs of the shard that goes away, in both kinds of window alike.
KNOCKS_PER_SECOND = 10
METHOD = (
    "One shop: a Cluster of three Valkeys without replicas, with every write on disk before its answer; PostgreSQL; "
    "one web process and one settler. {skus} SKUs lie on the three shards. The one that goes away is the one that also "
    "has the list of all SKUs.",
    "{rounds} pairs of windows of {seconds:g} s, in turns, every second pair backwards: in one all shards answer, in "
    "the other one that shard is frozen (SIGSTOP) as the window begins, and goes on after it. So the time until the "
    "processes know that it is away is a part of the window. Until the next window its SKUs must be entered again, "
    "and everything must be decided.",
    "{connections} connections ask for units of the SKUs on the other two shards, one request in flight on each, every "
    "request by a buyer never seen before; any answer but 202 and 503 fails the run. Admissions are answers with 202; "
    "decisions are orders decided in PostgreSQL within the window.",
    "In both windows somebody also asks for a SKU of the shard that goes away, "
    f"{KNOCKS_PER_SECOND} times a second at most. While "
    "it is frozen every answer to that must be 503, else it was not away, and the run fails.",
    "Of each pair the ratio is taken; the figure is the median of the ratios. Afterwards the audit of every sale must "
    "find nothing.",
)


@dataclass(frozen=True, kw_only=True)
class Window:
    """What the SKUs of the healthy shards had in one window. unavailable: the share of their asks answered 503.

    stolen: the share of the machine's time that its host gave to others meanwhile.
    """

    side: str
    admitted_per_second: float
    decided_per_second: float
    unavailable: float
    stolen: float


def figures_of(windows: Sequence[Window]) -> list[Figure]:
    """Return the pace with all shards and without one, and what was kept of it: of each pair, and of these the median.

    windows: as they were measured, each kind as often as the other.
    """
    whole, away = ([each for each in windows if each.side == side] for side in (WHOLE, AWAY))
    figures = []
    for what, name in (("admissions", "admitted_per_second"), ("decisions", "decided_per_second")):
        before, meanwhile = ([getattr(each, name) for each in side] for side in (whole, away))
        kept = middle_ratio(meanwhile, before)
        figures += [
            Figure(f"{what} at healthy shards, {WHOLE}", value=median(before), unit="per second"),
            Figure(f"{what} at healthy shards, {AWAY}", value=median(meanwhile), unit="per second"),
            Figure(f"{what} at healthy shards: {AWAY} ÷ {WHOLE}, median of pairs", value=kept, at_least=MIN_KEPT),
        ]
    refused = max(each.unavailable for each in away)
    return [*figures, Figure(f"asks at healthy shards answered 503, {AWAY}, most", value=100 * refused, unit="%")]


@dataclass(frozen=True, kw_only=True)
class Shards:
    """A running shop by shards: healthy and out_of_reach are sales, lost is the server of the latter."""

    running: Deployed
    healthy: Sequence[Fixture]
    out_of_reach: Sequence[Fixture]
    lost: ChildProcess


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Measure everything. Raises LoadFailed, ServerFailed."""
    plan, windows = run.plan, list[Window]()
    with deployed(SHOP, run=run, name="shards") as running:
        shards = by_shard(running)
        for _, side in in_turns((WHOLE, AWAY), rounds=plan.rounds):
            windows.append(one_window(side, shards, plan=plan))
            say_fields(windows[-1])
        faults = audit_faults(running.fixtures)
    return Findings(figures=figures_of(windows), samples=list(map(vars, windows)), faults=faults)


def by_shard(running: Deployed) -> Shards:
    """Return the sales by whether they lie where the list of all SKUs does. Raises LoadFailed when all or none do."""
    client = connect()
    name = node_of(client, keys.skus())
    here = {each.sku: node_of(client, keys.line(each.sku)) == name for each in running.fixtures}
    out_of_reach = [each for each in running.fixtures if here[each.sku]]
    healthy = [each for each in running.fixtures if not here[each.sku]]
    servers = [each.child for each in running.lines.servers if name.endswith(f":{urlsplit(each.url).port}")]
    if not out_of_reach or not healthy or not servers or servers[0] is None:
        raise LoadFailed(f"{len(out_of_reach)} of {len(running.fixtures)} SKUs lie on the shard {name}")
    return Shards(running=running, healthy=healthy, out_of_reach=out_of_reach, lost=servers[0])


def one_window(side: str, shards: Shards, *, plan: Plan) -> Window:
    """Flood the healthy shards, with the other one or without it, until all of it is decided. Raises LoadFailed."""
    running, healthy = shards.running, shards.healthy
    asks = asks_of(healthy, running.shop, count=int(MAX_PER_SECOND * plan.seconds))
    stolen = Stolen()
    with frozen(shards.lost) if side == AWAY else nullcontext(), knocking(shards) as answers:
        load = load_shop(healthy, running.shop, asks=asks, plan=plan, seconds=plan.seconds)
    share = stolen.share()
    expected = UNAVAILABLE if side == AWAY else ADMITTED
    if set(answers) != {expected}:
        raise LoadFailed(f"{side}: who asked for a SKU of that shard was answered {answers}, must be {expected}")
    wait_until_entered(shards)
    wait_until_all_decided(running.fixtures)
    return Window(
        side=side,
        admitted_per_second=load.statuses[ADMITTED] / load.seconds,
        decided_per_second=decided_a_second(healthy, load, from_seconds=0),
        unavailable=load.unavailable,
        stolen=share,
    )


@contextmanager
def frozen(server: ChildProcess) -> Iterator[None]:
    """Let a server stand still for the length of a `with` block."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@contextmanager
def knocking(shards: Shards) -> Iterator[list[str]]:
    """Ask for the SKUs of the other shard for the length of a `with` block; give the statuses, complete at its end."""
    port, asked, answers = shards.running.shop.web.port, itertools.cycle(shards.out_of_reach), list[str]()

    def knock() -> None:
        answers.append(probe(port, slug=next(asked).slug))

    with again_and_again(knock, every_seconds=1 / KNOCKS_PER_SECOND):
        yield answers


def wait_until_entered(shards: Shards) -> None:
    """Return when somebody was let in to each sale of the other shard. Raises LoadFailed when that takes too long."""
    port = shards.running.shop.web.port
    for fixture in shards.out_of_reach:
        let_in = partial(probe, port, slug=fixture.slug)
        wait_for(ADMITTED, let_in, seconds=READY_SECONDS, what=fixture.sku, every_seconds=1 / KNOCKS_PER_SECOND)


BENCHMARK = Benchmark(
    title="A shard of a Cluster away: measured",
    packages=("django", "redis", "hiredis", "psycopg", "uvicorn", "httptools", "uvloop"),
    full=FULL,
    quick=QUICK,
    method=METHOD,
    measure=measure,
)
