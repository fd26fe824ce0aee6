"""Runs every measurement in order and puts the figures together with the floors they must reach.
Never writes a file but the stores' own. Needs Django to be set up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace

from django.test.utils import override_settings

from inventory.redis import connect
from loadtest.bench.gate.admission import Contender, Turn, measure_in_turns, pin, two_cores
from loadtest.bench.gate.bounds import LONE, admission_figures, road_figures, settlement_figures
from loadtest.bench.gate.end_to_end import Road, measure_road
from loadtest.bench.gate.plan import Plan, method_of
from loadtest.bench.gate.settlement import Settlement, fill_line, measure_settlement
from loadtest.bench.gate.sold_out import MAX_BUYERS_PER_SECOND, REFUSED, ROOM, UNITS
from loadtest.bench.harness import machine, processes
from loadtest.bench.harness.figures import number
from loadtest.bench.harness.fixtures import make_goods
from loadtest.bench.harness.report import Report
from loadtest.bench.harness.servers import BARE, GATE, NOOP, PLAIN, Side, Workspace, serving
from shop.sales.catalogue import prime_sale
from workers.embedded.server import Server
from workers.embedded.stores import start_valkey

Say = Callable[[str], None]
PACKAGES = ("django", "redis", "hiredis", "psycopg", "uvicorn", "httptools", "granian", "uvloop")
# appendfsync: what Valkey does before it answers a write.
MODES = ("always", "everysec")
# Each side, its application, its processes, and more fresh buyers a second than it can serve (0: it does not look).
SIDES = (
    ("no-op", NOOP, 1, 0),
    ("bare", BARE, 1, 0),
    ("gate", GATE, 1, 50_000),
    ("two gates", GATE, 2, 50_000),
    ("gate everysec", GATE, 1, 50_000),
    ("plain view", PLAIN, 1, 9_000),
)


def run_all(plan: Plan, *, place: Workspace, quick: bool, say: Say) -> Report:
    """Measure everything and return the report. Raises LoadFailed, ServerFailed."""
    hardware = machine.hardware()
    say("Admission: each server on one core, the loader and Valkey on another")
    turns, persistence = _admit(plan, place=place, say=say)
    say("Settlement alone")
    settlement = measure_settlement(
        make_goods("bench-settlement"),
        rounds=plan.settle_rounds,
        batched=plan.settle_batched,
        single=plan.settle_single,
        report=lambda text: say(f"  {text}"),
    )
    road = _road(plan, place=place, say=say)
    versions = machine.versions(connect(), packages=PACKAGES) | machine.postgres_version()
    return Report(
        title="The gate, the line and the road: measured",
        command="make bench-gate",
        date=machine.now(),
        revision=machine.revision(place.checkout),
        quick=quick,
        figures=[*admission_figures(turns), *settlement_figures(settlement), *road_figures(road)],
        facts={
            "Hardware": hardware,
            "Versions": versions,
            "Persistence": persistence | machine.persistence(),
            "Settlement alone, each round, orders/s": _each_round(settlement),
        },
        method=method_of(plan),
        samples=[asdict(turn) for turn in turns],
        faults=road.audit_faults,
    )


def _admit(plan: Plan, *, place: Workspace, say: Say) -> tuple[list[Turn], dict[str, str]]:
    """Start the servers and measure them in turns; return the turns and how the Valkeys keep their data."""
    server_core, loader_core = two_cores()
    slug = make_goods("bench-admission").slug
    gone = make_goods("bench-gone", units=UNITS)
    with ExitStack() as stack:
        stores = {mode: stack.enter_context(_valkey(mode, place=place, core=loader_core)) for mode in MODES}
        sides = [
            stack.enter_context(_side(name, application, place=place, stores=stores, slug=slug, workers=workers))
            for name, application, workers, _ in SIDES
        ]
        pin(sides, server_core=server_core)
        contenders = [
            Contender(side=side, slug=slug, buyers_per_second=most)
            for side, (*_, most) in zip(sides, SIDES, strict=True)
        ]
        gate = next(side for side in sides if side.name == "gate")
        with override_settings(REDIS_URL=stores["always"].url):
            prime_sale(gone.slug)
            fill_line(connect(), gone, count=UNITS + ROOM)
        page = f"/sales/{slug}/"
        contenders += [
            Contender(
                side=gate, slug=gone.slug, buyers_per_second=MAX_BUYERS_PER_SECOND, status=REFUSED, name="sold out"
            ),
            Contender(side=gate, slug=slug, buyers_per_second=0, status="200", name="sale page", page=page),
        ]
        turns = [
            *measure_in_turns(
                [Contender(side=gate, slug=slug, buyers_per_second=5_000, name=LONE)],
                plan=replace(plan.admission, connections=1),
                loader_core=loader_core,
                report=lambda turn: say(_line(turn)),
            ),
            *measure_in_turns(
                contenders, plan=plan.admission, loader_core=loader_core, report=lambda turn: say(_line(turn))
            ),
        ]
        return turns, {f"valkey {mode}": _mode_of(store) for mode, store in stores.items()}


@contextmanager
def _valkey(mode: str, *, place: Workspace, core: int) -> Iterator[Server]:
    """Run a Valkey of its own on one core."""
    with start_valkey(place.folder / mode, append_fsync=mode) as server:
        if server.child is not None:
            processes.bind(server.child, to={core})
        yield server


@contextmanager
def _side(
    name: str, application: list[str], *, place: Workspace, stores: dict[str, Server], slug: str, workers: int
) -> Iterator[Side]:
    store = stores["everysec" if "everysec" in name else "always"]
    with serving(name, application, place=place, redis_url=store.url, slug=slug, workers=workers) as side:
        yield side


def _mode_of(store: Server) -> str:
    # The one door to Redis opens the address of the settings; these two Valkeys are not the run's own.
    with override_settings(REDIS_URL=store.url):
        return machine.append_mode(connect())


def _line(turn: Turn) -> str:
    return (
        f"  {turn.side:<14} {turn.per_second:>8,.0f}/s   {turn.cpu_us:>6.1f} µs   server {turn.busy:>4.0%} busy   "
        f"stolen {turn.stolen:>4.1%}   "
        f"p50 {turn.wait_p50_ms:>6.1f} ms   p99 {turn.wait_p99_ms:>6.1f} ms"
    )


def _each_round(settlement: Settlement) -> dict[str, str]:
    return {f"batch {batch}:": ", ".join(map(number, rates)) for batch, rates in settlement.rates.items()}


def _road(plan: Plan, *, place: Workspace, say: Say) -> Road:
    say(f"The whole road, {plan.road_seconds:g} s, nothing bound to a core")
    road = measure_road(make_goods("bench-road"), plan=plan, place=place)
    say(f"  {road.decided_per_second:,.0f} durable decisions/s; {road.asked:,} asked, {road.decided:,} decided")
    return road
