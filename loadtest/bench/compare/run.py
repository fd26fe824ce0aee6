"""Sells the same goods in ten ways, one after the other: without end, then until all is sold.
Never judges what it finds. Needs Django to be set up.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from inventory.redis import connect
from loadtest.bench.compare.crowd import ACCEPTED, BUSY, SOLD_OUT, CompareCrowd, CompareVisit, Payloads, make_payloads
from loadtest.bench.compare.plan import FULL, METHOD, QUICK, Plan
from loadtest.bench.compare.report import (
    Result,
    Selling,
    SellingOut,
    Waits,
    comparisons_of,
    figures_of,
    picture_of,
    samples_of,
    wrong_table,
)
from loadtest.bench.compare.sellers import FairdropSeller, RivalSeller, Seller, running
from loadtest.bench.gate.end_to_end import commands_of
from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, say, say_fields
from loadtest.bench.harness.core_speed import CORE_SPEED
from loadtest.bench.harness.machine import Crew, cpu_seconds, one_row
from loadtest.bench.harness.report import quantile
from loadtest.bench.harness.servers import Workspace, children_of
from loadtest.rivals.strategies import RIVALS

# More payloads a second than a seller can take: it must never run dry.
RIVAL_PAYLOADS, SHOP_PAYLOADS = 4_000, 18_000
LOOK_SECONDS = 0.02
FORESEEN = ACCEPTED | {BUSY, SOLD_OUT}
# Nobody is decided any more when nothing changed for so long.
STILL_SECONDS = 4.0
# Each count is a commit as well, so there must be few.
COUNT_SECONDS = 0.25
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
# What a reading itself asks of Redis.
OWN = ("info", "config")


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Measure every rival, then Fairdrop. Raises LoadFailed, ServerFailed."""
    stores = Crew(children=children_of(run.stores.pairs[0]))
    sellers: list[Seller] = [*(RivalSeller(rival) for rival in RIVALS.values()), FairdropSeller()]
    results = [measure_one(seller, plan=run.plan, place=run.place, stores=stores) for seller in sellers]
    say(f"\n{wrong_table(results)}")
    return Findings(
        figures=figures_of(results, quick=run.quick),
        samples=samples_of(results),
        faults=[fault for each in results for fault in each.faults],
        comparisons=comparisons_of(results),
        picture=picture_of(results),
    )


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Counters at one moment; CPU in seconds. None is ever reset: the difference of two readings counts."""

    commits: int
    commands: int
    store_cpu: float


def read_costs(stores: Crew) -> Reading:
    """Return the counters now. PostgreSQL counts what a connection did when it ends: end the sellers first."""
    (commits,) = one_row(COMMITS)
    commands = sum(calls for name, (calls, _) in commands_of(connect()).items() if name not in OWN)
    return Reading(commits=commits, commands=commands, store_cpu=sum(stores.read().values()))


def measure_one(seller: Seller, *, plan: Plan, place: Workspace, stores: Crew) -> Result:
    """Measure one way to sell: both runs with processes and a sale of their own."""
    selling, faults = sell(seller, plan=plan, place=place, stores=stores)
    selling_out, more_faults = sell_out(seller, plan=plan, place=place)
    say_fields(selling, of=seller.title)
    say_fields(selling_out, of=seller.title)
    say(f"  {seller.title}   oversold {selling_out.oversold:,}   undersold {selling_out.undersold:,}")
    return Result(
        name=seller.name,
        title=seller.title,
        correct=seller.correct,
        selling=selling,
        selling_out=selling_out,
        faults=[*faults, *more_faults],
    )


def sell(seller: Seller, *, plan: Plan, place: Workspace, stores: Crew) -> tuple[Selling, list[str]]:
    """Sell a stock without end for the seconds of the plan."""
    sale = f"{seller.name}-without-end"
    seller.prepare(sale, units=plan.units)
    CORE_SPEED.await_quiet()
    before = read_costs(stores)
    with running(seller, sale, place=place) as (port, children):
        seconds = plan.seconds + plan.warm_up_seconds
        payloads_a_second = SHOP_PAYLOADS if isinstance(seller, FairdropSeller) else RIVAL_PAYLOADS
        payloads = _payloads(seller, sale, port=port, count=int(payloads_a_second * seconds), plan=plan)
        used = sum(map(cpu_seconds, children))
        crowd = CompareCrowd(
            payloads,
            port=port,
            connections=plan.connections,
            may_ask=Rest(seller, sale, limit=plan.undecided).may_ask,
        )
        visit = crowd.visit(seconds=plan.seconds, warm_up_seconds=plan.warm_up_seconds)
        lost = wait_until_decided(seller, sale, accepted=visit.accepted)
        faults = [f"{seller.title}: {lost} lost while selling"] if lost else []
        used = sum(map(cpu_seconds, children)) - used
    after, orders = read_costs(stores), seller.tally(sale).orders
    return Selling(
        clicks_per_second=visit.clicks / visit.seconds,
        settled_per_second=seller.settled_between(sale, begin=visit.began_at, seconds=visit.seconds) / visit.seconds,
        admission=waits_of(visit.admissions),
        commits=(after.commits - before.commits) / max(1, orders),
        commands=(after.commands - before.commands) / max(1, orders),
        seller_cpu_ms=used * 1000 / max(1, orders),
        store_cpu_ms=(after.store_cpu - before.store_cpu) * 1000 / max(1, orders),
    ), [*_unforeseen(seller, visit), *faults, *seller.faults(sale)]


def sell_out(seller: Seller, *, plan: Plan, place: Workspace) -> tuple[SellingOut, list[str]]:
    """Sell a few units to many who come at once."""
    sale = f"{seller.name}-sold-out"
    seller.prepare(sale, units=plan.sold_out_units)
    CORE_SPEED.await_quiet()
    with running(seller, sale, place=place) as (port, _):
        payloads = _payloads(seller, sale, port=port, count=plan.sold_out_buyers, plan=plan)
        crowd = CompareCrowd(payloads, port=port, connections=plan.connections, follow=2)
        visit = crowd.visit(seconds=plan.sold_out_seconds, until_all_asked=True)
        seller.close(sale)
        lost = wait_until_decided(seller, sale, accepted=visit.accepted)
    tally = seller.tally(sale)
    return SellingOut(
        clicks_per_second=visit.clicks / visit.seconds,
        units=tally.units,
        orders=tally.orders,
        accepted=visit.accepted,
        # Some are told at once, some by the decision that a worker wrote for them.
        refused=visit.refused + tally.decided - tally.orders,
        lost=lost,
        unanswered=visit.unanswered,
        asked_all=visit.asked_all,
        admission=waits_of(visit.admissions),
        decision=waits_of(visit.decisions),
    ), [*_unforeseen(seller, visit), *seller.faults(sale)]


class Rest:
    """Says whether one more may click: whether few enough wait to be decided."""

    def __init__(self, seller: Seller, sale: str, *, limit: int) -> None:
        self._seller, self._sale, self._limit = seller, sale, limit
        self._waiting, self._looked_at = 0, 0.0

    def may_ask(self, now: float) -> bool:
        """Say so."""
        if now - self._looked_at >= LOOK_SECONDS:
            self._waiting, self._looked_at = self._seller.waiting(self._sale), now
        return self._waiting < self._limit


def wait_until_decided(seller: Seller, sale: str, *, accepted: int) -> int:
    """Return how many of the accepted are still undecided when nothing changes any more."""
    decided, changed_at = seller.tally(sale).decided, time.monotonic()
    while decided < accepted and time.monotonic() - changed_at < STILL_SECONDS:
        time.sleep(COUNT_SECONDS)
        seen = seller.tally(sale).decided
        if seen != decided:
            decided, changed_at = seen, time.monotonic()
    return max(0, accepted - decided)


def waits_of(waits: Sequence[float]) -> Waits:
    """Return the middle, the worst but for one in a hundred, and the worst."""
    middle = statistics.median(waits) if waits else float("nan")
    return Waits(p50=middle, p99=quantile(waits, 0.99), worst=max(waits, default=float("nan")))


def _payloads(seller: Seller, sale: str, *, port: int, count: int, plan: Plan) -> Payloads:
    return make_payloads(seller.address(sale), port=port, count=count, repeated=1 / plan.twice_every, seed=plan.seed)


def _unforeseen(seller: Seller, visit: CompareVisit) -> list[str]:
    """Return a fault for answers that are neither yes, nor sold out, nor busy, and for none at all from the shop."""
    other = {status: count for status, count in visit.statuses.items() if status not in FORESEEN}
    found = [f"{seller.title} answered {other}"] if other else []
    if visit.unanswered and isinstance(seller, FairdropSeller):
        found.append(f"{seller.title} left {visit.unanswered} clicks without an answer")
    return found


BENCHMARK = Benchmark(
    title="Ten ways to sell the same goods: compared",
    command="make compare",
    packages=("django", "redis", "hiredis", "psycopg", "uvicorn", "httptools", "granian", "uvloop", "rq"),
    full=FULL,
    quick=QUICK,
    method=METHOD,
    measure=measure,
    picture="Bars of each way to sell: orders settled a second, wrong units, waits and CPU",
)
