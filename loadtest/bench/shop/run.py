"""Runs every measurement of the whole shop, one after the other. Never judges what it finds, never writes a file.
Needs Django to be set up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from django.conf import settings

from inventory.audit.run import Scope
from loadtest.bench.gate.admission import Turn
from loadtest.bench.gate.end_to_end import Road, start_settler, travel
from loadtest.bench.gate.sold_out import measure_sold_out
from loadtest.bench.harness import processes
from loadtest.bench.harness.fixtures import Goods, make_goods
from loadtest.bench.harness.servers import GATE, NOOP, Side, Workspace, serving
from loadtest.bench.harness.shares import POSTGRES, REDIS, SETTLER, WEB, Crew
from loadtest.bench.settle import raw_rows
from loadtest.bench.settle.bounds import quantile
from loadtest.bench.settle.run import faults_of
from loadtest.bench.shop import raw_limits
from loadtest.bench.shop.costs import Costs, measure_costs
from loadtest.bench.shop.overload import OverloadRun, measure_overload
from loadtest.bench.shop.plan import Plan
from loadtest.bench.shop.spike import ADMITTED, REFUSED, Spike, SpikeGate, measure_spike
from workers.embedded.child_process import ChildProcess
from workers.embedded.server import Server
from workers.embedded.stores import Servers

Say = Callable[[str], None]
# From the moment a crowd stands ready to the opening of the doors: web knows the sale by then.
LEAD_SECONDS = 4.0
# The generator must not be faster than this for long: more wishes than that are not prepared.
MAX_PER_SECOND = 18_000


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the parts can do at most, a second."""

    pipelined: float
    copied: float
    syncs: float


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything measured. noop_spike: the same crowd before a server that does nothing; web_mib: after all."""

    limits: Limits
    turns: Sequence[Turn]
    road: Road
    noop_spike: Spike
    spikes: Sequence[Spike]
    overload: OverloadRun
    costs: Costs
    faults: Sequence[str]
    web_mib: float


@dataclass(frozen=True, kw_only=True)
class _Shop:
    web: Side
    hands: Sequence[ChildProcess]
    crew: Crew


def measure_all(plan: Plan, *, place: Workspace, servers: Servers, say: Say) -> Results:
    """Measure everything. Raises LoadFailed, ServerFailed."""
    raw_rows.make_raw_tables()
    say("Sold-out answers alongside the no-op server")
    turns = measure_sold_out(plan=plan.sold_out, place=place, report=lambda turn: say(_turn(turn)))
    probe, road_goods, crowded = make_goods("bench-probe"), make_goods("bench-sustained"), make_goods("bench-overload")
    with _shop(probe, plan=plan, place=place, servers=servers, workers=plan.crowd_workers) as shop:
        noop_spike, spikes, opened = _spikes(probe, shop, plan=plan, place=place, say=say)
    with _shop(probe, plan=plan, place=place, servers=servers, workers=plan.web_workers) as shop:
        road = _sustain(road_goods, shop, plan=plan, say=say)
        limits = _limits(road_goods, plan=plan, place=place, say=say)
        time.sleep(plan.rest_seconds)
        say("The knee, and four times that")
        overload = measure_overload(crowded, port=shop.web.port, pressure=plan.pressure, crew=shop.crew, say=say)
        say(_overload(overload))
        web_mib = processes.memory_mib(shop.web.child)
    say("Cost of a purchase: more SKUs, longer lines")
    costs = measure_costs(plan.scale, servers=servers, say=say)
    say("The audit of every sale")
    scopes = [goods.scope for goods in (road_goods, crowded, *opened, *costs.goods)]
    return Results(
        limits=limits,
        turns=turns,
        road=road,
        noop_spike=noop_spike,
        spikes=spikes,
        overload=overload,
        costs=costs,
        faults=[*road.audit_faults, *_faults(scopes)],
        web_mib=web_mib,
    )


def _faults(scopes: Sequence[Scope]) -> list[str]:
    return [fault for scope in scopes for fault in faults_of(scope)]


@contextmanager
def _shop(probe: Goods, *, plan: Plan, place: Workspace, servers: Servers, workers: int) -> Iterator[_Shop]:
    with ExitStack() as stack:
        hands = [start_settler(number, place=place, stack=stack) for number in range(plan.settlers)]
        web = stack.enter_context(
            serving(
                "web",
                GATE,
                place=place,
                redis_url=settings.REDIS_URL,
                slug=probe.slug,
                workers=workers,
            )
        )
        stores = {REDIS: _own(servers.valkey), POSTGRES: _own(servers.postgres)}
        yield _Shop(web=web, hands=hands, crew=Crew(children={WEB: [web.child], SETTLER: hands, **stores}))


def _own(server: Server) -> list[ChildProcess]:
    return [server.child] if server.child else []


def _sustain(goods: Goods, shop: _Shop, *, plan: Plan, say: Say) -> Road:
    say(f"Sustained, {plan.road_seconds:g} s")
    road = travel(
        goods,
        web=shop.web,
        hands=shop.hands,
        seconds=plan.road_seconds,
        warm_up_seconds=plan.road_warm_up_seconds,
        connections=plan.road_connections,
        most_per_second=MAX_PER_SECOND,
        crew=shop.crew,
    )
    say(f"  {road.decided_per_second:,.0f} durable decisions/s; p99 to the 202 {road.wait_p99_ms:.1f} ms")
    return road


def _limits(goods: Goods, *, plan: Plan, place: Workspace, say: Say) -> Limits:
    say("Limits")
    time.sleep(plan.rest_seconds)
    limits = Limits(
        syncs=raw_limits.syncs_per_second(place.folder, seconds=plan.limit_seconds),
        pipelined=raw_limits.pipelined_per_second(seconds=plan.limit_seconds),
        copied=raw_rows.copied_per_second(goods.sale_id, newest=plan.copied),
    )
    say(
        f"  disk {limits.syncs:,.0f} syncs/s   Redis pipelined {limits.pipelined:,.0f} requests/s   "
        f"rows copied {limits.copied:,.0f} orders/s"
    )
    return limits


def _spikes(
    probe: Goods, shop: _Shop, *, plan: Plan, place: Workspace, say: Say
) -> tuple[Spike, list[Spike], list[Goods]]:
    say(f"Doors open: {plan.buyers:,} buyers at one instant")
    with serving(
        "no-op crowd", NOOP, place=place, redis_url=settings.REDIS_URL, slug=probe.slug, workers=plan.crowd_workers
    ) as noop:
        noop_spike = _spike(
            probe.slug,
            port=noop.port,
            plan=plan,
            crew=Crew(children={WEB: [noop.child]}),
            open_doors=lambda: SpikeGate(opens_at=time.time() + LEAD_SECONDS),
        )
    say(_spike_line("no-op", noop_spike))
    spikes: list[Spike] = []
    opened: list[Goods] = []
    for number in range(plan.spikes):
        time.sleep(plan.rest_seconds)
        slug = f"bench-spike-{number}"

        def open_doors(slug: str = slug) -> SpikeGate:
            goods = make_goods(slug, units=plan.spike_units, opens_in_seconds=LEAD_SECONDS)
            opened.append(goods)
            return SpikeGate(opens_at=goods.opens_at.timestamp(), goods=goods)

        spikes.append(_spike(slug, port=shop.web.port, plan=plan, crew=shop.crew, open_doors=open_doors))
        say(_spike_line("shop", spikes[-1]))
    return noop_spike, spikes, opened


def _spike(slug: str, *, port: int, plan: Plan, crew: Crew, open_doors: Callable[[], SpikeGate]) -> Spike:
    return measure_spike(
        slug, port=port, buyers=plan.buyers, generators=plan.generators, crew=crew, open_doors=open_doors
    )


def _turn(turn: Turn) -> str:
    busy = f"server {turn.busy:>4.0%} busy"
    return f"  {turn.side:<10} {turn.per_second:>8,.0f}/s   {busy}   p99 {turn.wait_p99_ms:>6.1f} ms"


def _spike_line(name: str, spike: Spike) -> str:
    p99 = {status: quantile(spike.waits_ms.get(status, []), 0.99) for status in (ADMITTED, REFUSED)}
    return (
        f"  {name:<6} p99 to 202 {p99[ADMITTED]:>7.1f} ms   to 409 {p99[REFUSED]:>7.1f} ms   "
        f"last decision {spike.last_decision_seconds:>5.2f} s   {dict(spike.statuses)}, {spike.shed} sent again"
    )


def _overload(found: OverloadRun) -> str:
    return (
        f"  offered {found.offered:,.0f}/s, {found.sent:.0%} sent   decided {found.goodput:,.0f}/s   "
        f"normal again after {found.well_after_seconds:g} s   {dict(found.statuses)}"
    )
