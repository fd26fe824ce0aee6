"""Measures the gate: admissions, settlement alone, the way from an ask to its decision. Needs Django to be set up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from urllib.parse import urlsplit

from django.test.utils import override_settings

from inventory.redis import connect
from loadtest.bench.gate import admission
from loadtest.bench.gate.admission import Contender, Turn, measure_in_turns, pin, two_cores
from loadtest.bench.gate.end_to_end import Road, travel
from loadtest.bench.gate.plan import FULL, METHOD, QUICK, Plan
from loadtest.bench.gate.report import (
    LONE,
    LONE_REPLICATED,
    REPLICATED,
    WITH_LIMITS,
    WITHOUT_LIMITS,
    admission_figures,
    road_figures,
    settlement_figures,
)
from loadtest.bench.gate.settlement import fill_line, measure_settlement
from loadtest.bench.harness import machine
from loadtest.bench.harness.benchmark import Benchmark, BenchmarkRun, Findings, repeat_disturbed, say
from loadtest.bench.harness.fixtures import NO_LIMIT, make_fixture
from loadtest.bench.harness.report import number
from loadtest.bench.harness.servers import (
    BARE,
    GATE,
    NO_RATES,
    NOOP,
    PLAIN,
    UNMARKED,
    WebServer,
    Workspace,
    running_shop,
    serving,
)
from shop.sales.priming import prime_sale
from workers.embedded.server import Server
from workers.embedded.stores import start_valkey

# appendfsync: what Valkey does before it answers a write.
MODES = ("always", "everysec")
# Each server, its application, its processes, and more fresh buyers a second than it can serve (0: it does not look).
SERVERS = (
    ("no-op", NOOP, 1, 0),
    ("bare", BARE, 1, 0),
    ("gate", GATE, 1, 50_000),
    ("unmarked", UNMARKED, 1, 50_000),
    ("two gates", GATE, 2, 50_000),
    ("gate everysec", GATE, 1, 50_000),
    (REPLICATED, GATE, 1, 50_000),
    ("plain tickets", GATE, 1, 50_000),
    ("plain view", PLAIN, 1, 9_000),
    ("limited", GATE, 1, 0),
    # As old as each other, so that only the limits are between them.
    ("with the defaults", GATE, 1, 0),
    ("unlimited", GATE, 1, 0),
)
# What these get besides. One address may ask the limited one so often at once, and next to never again.
ENVIRONMENTS = {
    REPLICATED: {"FAIRDROP_REDIS_REPLICAS": "1"},
    "plain tickets": {"FAIRDROP_SALE_LOG": "false"},
    "limited": {"FAIRDROP_RATE_OF_ASKS": "10:0.000001"},
    "unlimited": NO_RATES,
    "plain view": {"DJANGO_SETTINGS_MODULE": "loadtest.bench.gate.plain_settings"},
}
# Of those that do not work on the Valkey that every other one works on.
STORE_OF = {"gate everysec": "everysec", REPLICATED: "primary"}
# Asked in a way of their own.
APART = ("limited", "with the defaults", "unlimited")


def measure(run: BenchmarkRun[Plan]) -> Findings:
    """Measure everything. Raises LoadFailed, ServerFailed."""
    plan = run.plan
    say("Admission: each server on one core, the loader and Valkey on another")
    turns, persistence = _admit(plan, place=run.place)
    say("Settlement alone")
    settlement = measure_settlement(
        make_fixture("bench-settlement"),
        rounds=plan.settle_rounds,
        batched=plan.settle_batched,
        single=plan.settle_single,
    )
    road = _road(run)
    rates = {
        f"batch {batch}:": ", ".join(number(each.per_second) for each in found) for batch, found in settlement.items()
    }
    return Findings(
        figures=[*admission_figures(turns), *settlement_figures(settlement), *road_figures(road)],
        facts={
            "Persistence": persistence | machine.persistence(),
            "Settlement alone, each round, orders/s": rates,
        },
        samples=[asdict(turn) for turn in turns],
        faults=road.audit_faults,
    )


def _admit(plan: Plan, *, place: Workspace) -> tuple[list[Turn], dict[str, str]]:
    """Start the servers and measure them in turns; return the turns and how the Valkeys keep their data."""
    server_core, loader_core = two_cores()
    slug = make_fixture("bench-admission").slug
    gone = make_fixture("bench-gone", units=admission.GONE_UNITS)
    defaults, unlimited = make_fixture("bench-defaults"), make_fixture("bench-unlimited", **NO_LIMIT)
    with ExitStack() as stack:
        stores = {mode: stack.enter_context(_valkey(mode, place=place, core=loader_core)) for mode in MODES}
        stores["primary"] = stack.enter_context(_replicated_valkey(place=place, core=loader_core))
        servers = {}
        for name, application, workers, _ in SERVERS:
            url = stores[STORE_OF.get(name, "always")].url
            more = {"FAIRDROP_SALE_LOG": "true", **ENVIRONMENTS.get(name, {})}
            its_place = replace(place, environment={**place.environment, **more})
            server = serving(name, application, place=its_place, redis_url=url, slug=slug, workers=workers)
            servers[name] = stack.enter_context(server)
        pin(servers.values(), server_core=server_core)
        with override_settings(REDIS_URL=stores["always"].url):
            prime_sale(defaults.slug)
            prime_sale(unlimited.slug)
            prime_sale(gone.slug)
            fill_line(connect(), gone, count=admission.GONE_UNITS + admission.GONE_CAPACITY)
        gate = servers["gate"]
        alone = [
            Contender(server=server, slug=slug, buyers_per_second=5_000, name=name)
            for name, server in ((LONE, gate), (LONE_REPLICATED, servers[REPLICATED]))
        ]
        one = replace(plan.admission, connections=1)
        turns = measure_in_turns(alone, plan=one, loader_core=loader_core)
        contenders = _contenders(servers, slug=slug, gone_slug=gone.slug)
        turns += measure_in_turns(contenders, plan=plan.admission, loader_core=loader_core)
        turns += _with_and_without_limits(servers, (defaults.slug, unlimited.slug), plan=plan, loader_core=loader_core)
        return turns, {f"valkey {mode}": _mode_of(store) for mode, store in stores.items()}


def _with_and_without_limits(
    servers: Mapping[str, WebServer], slugs: tuple[str, str], *, plan: Plan, loader_core: int
) -> list[Turn]:
    sides = zip((WITH_LIMITS, WITHOUT_LIMITS), ("with the defaults", "unlimited"), slugs, strict=True)
    pair = [
        Contender(server=servers[server], slug=slug, buyers_per_second=50_000, name=name)
        for name, server, slug in sides
    ]
    return measure_in_turns(pair, plan=plan.pairs, loader_core=loader_core)


def _contenders(servers: Mapping[str, WebServer], *, slug: str, gone_slug: str) -> list[Contender]:
    """Return who is measured in turns: each server, and the gate for what else it answers."""
    gate, page = servers["gate"], f"/sales/{slug}/"
    return [
        *(
            Contender(server=servers[name], slug=slug, buyers_per_second=buyers)
            for name, *_, buyers in SERVERS
            if name not in APART
        ),
        admission.over_its_limit(servers["limited"], slug=slug),
        admission.sold_out(gate, slug=gone_slug),
        Contender(server=gate, slug=slug, buyers_per_second=0, status="200", name="sale page", page=page),
    ]


@contextmanager
def _valkey(name: str, *, place: Workspace, core: int, mode: str = "", more: str = "") -> Iterator[Server]:
    """Run a Valkey of its own on one core. mode: its appendfsync, by default its name; more: lines for its file."""
    with start_valkey(place.folder / name, append_fsync=mode or name, more=more) as server:
        if server.child is not None:
            machine.bind(server.child, to={core})
        yield server


@contextmanager
def _replicated_valkey(*, place: Workspace, core: int) -> Iterator[Server]:
    """Run a primary with one replica, both on that core, both with every write on disk."""
    with _valkey("primary", place=place, core=core, mode="always") as primary:
        address = urlsplit(primary.url)
        more = f"replicaof {address.hostname} {address.port}\nmasterauth {address.password}\n"
        with _valkey("replica", place=place, core=core, mode="always", more=more):
            yield primary


def _mode_of(store: Server) -> str:
    # inventory/redis opens the address of the settings; these Valkeys are not the run's own.
    with override_settings(REDIS_URL=store.url):
        return machine.append_mode(connect())


def _road(run: BenchmarkRun[Plan]) -> Road:
    plan, fixture = run.plan, make_fixture("bench-road")
    say(f"The whole road, {plan.road.seconds:g} s, nothing bound to a core")
    with running_shop(fixture.slug, place=run.place, stores=run.stores.pairs[0]) as shop:
        return repeat_disturbed(partial(travel, fixture, shop, plan.road))


BENCHMARK = Benchmark(
    title="The gate, the line and the road: measured",
    packages=("django", "redis", "hiredis", "psycopg", "uvicorn", "httptools", "granian", "uvloop"),
    full=FULL,
    quick=QUICK,
    method=METHOD,
    measure=measure,
)
