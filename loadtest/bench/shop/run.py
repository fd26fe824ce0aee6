"""Measures the whole shop: sold out, spike, sustained, overload, cost. Needs Django to be set up."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial

from inventory.redis import connect
from loadtest.bench.gate.admission import (
    GONE_CAPACITY,
    GONE_UNITS,
    Contender,
    Turn,
    measure_in_turns,
    pin,
    sold_out,
    two_cores,
)
from loadtest.bench.gate.end_to_end import Road, travel
from loadtest.bench.gate.settlement import fill_line
from loadtest.bench.harness import limits, machine
from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, repeat_disturbed, say, say_fields
from loadtest.bench.harness.fixtures import Fixture, faults_of, make_fixture
from loadtest.bench.harness.servers import GATE, NOOP, RunningShop, running_shop, serving
from loadtest.bench.load.arrivals import allow_connections
from loadtest.bench.shop.costs import measure_costs
from loadtest.bench.shop.overload import measure_overload
from loadtest.bench.shop.report import FULL, METHOD, QUICK, Limits, Plan, Results, figures_of
from loadtest.bench.shop.spike import LEAD_SECONDS, Spike, measure_spike
from loadtest.bench.shop.tables import comparisons_of, picture_of

# The generator must not be faster than this for long: more payloads than that are not prepared.
MAX_PER_SECOND = 18_000
LET_IN = "SELECT count(*) FROM shop_order WHERE sale_id IN (%s, %s)"


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Measure everything. Raises LoadFailed, ServerFailed."""
    allow_connections()
    results = measure_all(run)
    return Findings(
        figures=figures_of(results),
        samples=[asdict(turn) for turn in results.turns],
        faults=results.faults,
        comparisons=comparisons_of(results, cores=len(machine.cores())),
        picture=picture_of(results),
    )


def measure_all(run: BenchmarkRun[Plan]) -> Results:
    """Measure everything, the limits in between, and audit every sale afterwards."""
    plan = run.plan
    limits.make_raw_tables()
    turns = _sold_out(run)
    probe, sustained, crowded = (make_fixture(f"bench-{name}") for name in ("probe", "sustained", "overload"))

    def shop(workers: int) -> AbstractContextManager[RunningShop]:
        stores = run.stores.pairs[0]
        return running_shop(probe.slug, place=run.place, stores=stores, workers=workers)

    with shop(plan.crowd_workers) as crowd_shop:
        noop_spike, spikes, opened = _spikes(probe, crowd_shop, run)
    with shop(plan.web_workers) as one_shop:
        road = _sustain(sustained, one_shop, plan=plan)
        found = _limits(sustained, run)
        time.sleep(plan.rest_seconds)
        say("The knee, and four times that")
        overload = measure_overload(crowded, one_shop, pressure=plan.pressure)
        web_mib = machine.memory_mib(one_shop.web.child)
    say("Cost of a purchase: more SKUs, longer lines")
    costs = measure_costs(plan.scale, servers=run.stores.pairs[0])
    say("The audit of every sale")
    fixtures = (sustained, crowded, *opened, *costs.fixtures)
    return Results(
        limits=found,
        turns=turns,
        road=road,
        noop_spike=noop_spike,
        spikes=spikes,
        overload=overload,
        costs=costs,
        faults=[*road.audit_faults, *(fault for each in fixtures for fault in faults_of(each.scope))],
        web_mib=web_mib,
        let_in=machine.one_row(LET_IN, sustained.sale_id, crowded.sale_id)[0],
    )


def _sold_out(run: BenchmarkRun[Plan]) -> list[Turn]:
    """Measure "sold out" alongside a server that does nothing. No buyer asks twice: none is remembered."""
    say("Sold-out answers alongside the no-op server")
    server_core, loader_core = two_cores()
    plenty, gone = make_fixture("bench-plenty"), make_fixture("bench-sold-out", units=GONE_UNITS)
    fill_line(connect(), gone, count=GONE_UNITS + GONE_CAPACITY)
    with (
        serving("no-op", NOOP, place=run.place, slug=plenty.slug) as noop,
        serving("sold out", GATE, place=run.place, slug=plenty.slug) as shop,
    ):
        pin((noop, shop), server_core=server_core)
        nothing = Contender(server=noop, slug=gone.slug, buyers_per_second=0)
        contenders = (nothing, sold_out(shop, slug=gone.slug))
        return measure_in_turns(contenders, plan=run.plan.sold_out, loader_core=loader_core)


def _sustain(fixture: Fixture, shop: RunningShop, *, plan: Plan) -> Road:
    say(f"Sustained, {plan.road.seconds:g} s")
    return repeat_disturbed(partial(travel, fixture, shop, plan.road, max_per_second=MAX_PER_SECOND))


def _limits(fixture: Fixture, run: BenchmarkRun[Plan]) -> Limits:
    plan = run.plan
    say("Limits")
    time.sleep(plan.rest_seconds)
    found = Limits(
        syncs=limits.syncs_per_second(run.place.folder, seconds=plan.limit_seconds),
        pipelined=limits.pipelined_per_second(seconds=plan.limit_seconds),
        copied=limits.copied_per_second(fixture.sale_id, newest=plan.copied),
    )
    say_fields(found)
    return found


def _spikes(probe: Fixture, shop: RunningShop, run: BenchmarkRun[Plan]) -> tuple[Spike, list[Spike], list[Fixture]]:
    plan = run.plan
    say(f"Doors open: {plan.buyers:,} buyers at one instant")
    crowd = partial(measure_spike, buyers=plan.buyers, generators=plan.generators)
    with serving("no-op crowd", NOOP, place=run.place, slug=probe.slug, workers=plan.crowd_workers) as noop:
        crew = machine.Crew(children={machine.WEB: [noop.child]})
        once = partial(crowd, probe.slug, port=noop.port, crew=crew, open_sale=lambda: None)
        noop_spike = repeat_disturbed(once, of="no-op")
    opened: list[Fixture] = []

    def open_sale() -> Fixture:
        slug = f"bench-spike-{len(opened)}"
        opened.append(make_fixture(slug, units=plan.spike_units, opens_in_seconds=LEAD_SECONDS))
        return opened[-1]

    def open_next() -> Spike:
        time.sleep(plan.rest_seconds)
        slug = f"bench-spike-{len(opened)}"
        return crowd(slug, port=shop.web.port, crew=shop.crew, open_sale=open_sale)

    return noop_spike, [repeat_disturbed(open_next, of="shop") for _ in range(plan.spikes)], opened


BENCHMARK = Benchmark(
    title="The whole shop: measured",
    packages=("django", "redis", "hiredis", "psycopg", "uvicorn", "httptools", "granian", "uvloop"),
    full=FULL,
    quick=QUICK,
    method=METHOD,
    measure=measure,
    picture="Curves of the knee, of every second around the overload, and of the cost of a purchase",
)
