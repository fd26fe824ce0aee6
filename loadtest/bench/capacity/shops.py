"""Starts the shops that are compared and floods them: one Redis or a Cluster of three, some web processes and settlers.
Never counts a decision that the database does not have.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import override_settings

from inventory.redis import connect, run_commands
from loadtest.bench.capacity.report import Deployment, Plan, Round
from loadtest.bench.gate.admission import ADMITTED
from loadtest.bench.gate.end_to_end import MAX_PER_SECOND, Backlog, wait_until_decided
from loadtest.bench.harness import machine
from loadtest.bench.harness.benchmark import BenchmarkRun
from loadtest.bench.harness.fixtures import Fixture, decided_between, faults_of, make_fixture
from loadtest.bench.harness.servers import RunningShop, running_shop
from loadtest.bench.harness.timing import wait_for
from loadtest.bench.load.arrivals import FIRST_CALL, ArrivalRun
from loadtest.bench.load.loader import UNAVAILABLE, Load, Loader, LoadWindow
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.payloads import fresh_payloads
from shop.models import Sale
from workers.embedded.server import Server, free_port
from workers.embedded.stores import start_valkey

CLUSTERED = """\
cluster-enabled yes
cluster-port {port}
cluster-config-file nodes.conf
cluster-require-full-coverage no
"""
SLOTS, READY_SECONDS = 16_384, 30.0
# All processes together use less than this while one looks for so long: then none is starting.
RESTING_SECONDS, LOOK_SECONDS = 0.1, 1.0
# PostgreSQL vacuums what the rounds before wrote, and may still be at it.
REST_WITHIN_SECONDS = 180.0
DECIDED = "SELECT count(*) FROM shop_order WHERE sale_id = ANY(%s)"
DECIDED_AFTER = """
SELECT extract(epoch FROM decided_at) - %s AS after FROM shop_order
WHERE sale_id = ANY(%s) AND decided_at >= to_timestamp(%s) ORDER BY 1
"""
# A line takes two batches at most, so all are full within a second: decisions count from then on. Otherwise what is
# let in, and decided after the window, would have used its CPU time.
MAX_UNDECIDED, FILLING_SECONDS = 1000, 1.0
# The crowd stands ready so long before the opening; a 503 is sent again after so long.
LEAD_SECONDS, RETRY_SECONDS = 2.0, 1.0


@dataclass(frozen=True, kw_only=True)
class Lines:
    """The Redis of a shop: its address, and its servers whose CPU time counts."""

    url: str
    servers: Sequence[Server]


@contextmanager
def lines_of(masters: int, *, folder: Path) -> Iterator[Lines]:
    """Run one Valkey or a Cluster of so many masters for the length of a `with` block."""
    with ExitStack() as running:
        homes = {folder / f"master-{number}": free_port() for number in range(masters)}
        password = folder / "master-0" / "valkey.password"
        servers: list[Server] = []
        for home, bus_port in homes.items():
            home.mkdir(parents=True)
            if servers:  # one password for all
                shutil.copy(password, home)
            more = CLUSTERED.format(port=bus_port) if masters > 1 else ""
            servers.append(running.enter_context(start_valkey(home, more=more)))
        url = _joined(servers, bus_port=next(iter(homes.values()))) if masters > 1 else servers[0].url
        yield Lines(url=url, servers=servers)


def _joined(servers: Sequence[Server], *, bus_port: int) -> str:
    """Make one Cluster of the servers and return its address. bus_port: of the first. Raises LoadFailed."""
    first = urlsplit(servers[0].url)
    bounds = [SLOTS * number // len(servers) for number in range(len(servers) + 1)]
    for number, server in enumerate(servers):
        with override_settings(REDIS_URL=server.url):
            commands: list[tuple[str | int, ...]] = [
                ("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1),
                ("CLUSTER", "SET-CONFIG-EPOCH", number + 1),
                ("CLUSTER", "MEET", "127.0.0.1", first.port or 0, bus_port),
            ]
            run_commands(connect(), commands)
    wait_for(
        True,
        lambda: all(_knows_all(server, count=len(servers)) for server in servers),
        seconds=READY_SECONDS,
        what="the Cluster is whole",
    )
    return f"redis+cluster://:{first.password}@" + ",".join(f"127.0.0.1:{urlsplit(one.url).port}" for one in servers)


def _knows_all(server: Server, *, count: int) -> bool:
    with override_settings(REDIS_URL=server.url):
        (told,) = run_commands(connect(), [("CLUSTER", "INFO")])
    text = str(told).replace("'", "").replace(" ", "")
    return "cluster_state:ok" in text and f"cluster_known_nodes:{count}" in text


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """A shop that runs, warm and at rest: its sales, its processes, its Redis, and the crew whose CPU time counts."""

    fixtures: Sequence[Fixture]
    shop: RunningShop
    lines: Lines
    crew: machine.Crew


@contextmanager
def deployed(deployment: Deployment, *, run: BenchmarkRun[Plan], name: str) -> Iterator[Deployed]:
    """Run that shop with sales of its own for the length of a `with` block."""
    plan, stores, home = run.plan, run.stores.pairs[0], run.place.folder / name
    home.mkdir()
    with lines_of(deployment.masters, folder=home) as lines, override_settings(REDIS_URL=lines.url):
        fixtures = [make_fixture(f"{name}-{number}") for number in range(plan.skus)]
        place = replace(run.place, folder=home)
        with running_shop(
            fixtures[0].slug, place=place, stores=stores, settlers=deployment.settlers, workers=deployment.web
        ) as shop:
            redis = [server.child for server in lines.servers if server.child is not None]
            crew = machine.Crew(children={**shop.crew.children, machine.REDIS: redis})
            # Every process has served before anything is counted: one that still starts would be taken for dear.
            warm_up = asks_of(fixtures, shop, count=int(MAX_PER_SECOND * plan.warm_up_seconds))
            load_shop(fixtures, shop, asks=warm_up, plan=plan, seconds=plan.warm_up_seconds)
            wait_until_all_decided(fixtures)
            _wait_for_rest(crew)
            yield Deployed(fixtures=fixtures, shop=shop, lines=lines, crew=crew)
        # The next shop has the same database: it would look after all of these, whose lines are gone.
        Sale.objects.filter(pk__in=_ids(fixtures)).update(retired_at=Now())


def run_deployment(deployment: Deployment, *, run: BenchmarkRun[Plan], name: str) -> tuple[Round, list[str]]:
    """Start that shop, flood it, and return the round and what its audits found."""
    with deployed(deployment, run=run, name=name) as running:
        measured = _flood(deployment, running, plan=run.plan)
        return measured, audit_faults(running.fixtures)


def _flood(deployment: Deployment, running: Deployed, *, plan: Plan) -> Round:
    fixtures, crew = running.fixtures, running.crew
    asks = asks_of(fixtures, running.shop, count=int(MAX_PER_SECOND * plan.seconds))
    already, share = _decided(fixtures), Share(crew)
    load = load_shop(fixtures, running.shop, asks=asks, plan=plan, seconds=plan.seconds)
    cores_left, stolen = share.cores_left(), share.stolen.share()
    own = share.generator_seconds()
    wait_until_all_decided(fixtures)
    used = machine.used(share.before, crew.read(), generator=own)
    return Round(
        deployment=deployment,
        per_second=decided_a_second(fixtures, load, from_seconds=FILLING_SECONDS),
        cpu_us=machine.microseconds_each(used, answers=_decided(fixtures) - already),
        cores_left=cores_left,
        busy=share.busy,
        stolen=stolen,
    )


def replay_opening(moments: Sequence[float], *, run: BenchmarkRun[Plan]) -> tuple[list[float], float, list[str]]:
    """Let buyers press at `moments` in the smallest shop; return when each decision came, in seconds from the opening,
    how many cores were left, and what the audits found. Raises LoadFailed unless everybody is admitted.
    """
    plan = run.plan
    with deployed(Deployment(), run=run, name="opening") as running:
        fixtures, port = running.fixtures, running.shop.web.port
        asks = asks_of(fixtures, running.shop, count=len(moments) + len(fixtures))
        crowd = ArrivalRun(port, connections=plan.connections, retry_seconds=RETRY_SECONDS)
        crowd.connect(first_call=FIRST_CALL)
        share, opens_at = Share(running.crew), time.time() + LEAD_SECONDS
        answers = crowd.run(asks, moments, begins_at=opens_at)
        cores_left = share.cores_left()
        if answers.statuses() != {int(ADMITTED): len(moments)}:
            raise LoadFailed(f"{len(moments)} pressed; answers: {answers.statuses()}, {answers.silent} had none")
        wait_until_all_decided(fixtures)
        with connection.cursor() as cursor:
            cursor.execute(DECIDED_AFTER, [opens_at, _ids(fixtures), opens_at])
            decided = [float(after) for (after,) in cursor.fetchall()]
        return decided, cores_left, audit_faults(fixtures)


def audit_faults(fixtures: Sequence[Fixture]) -> list[str]:
    """Return what the audits of these sales find."""
    return [fault for fixture in fixtures for fault in faults_of(fixture.scope)]


def wait_until_all_decided(fixtures: Sequence[Fixture]) -> None:
    """Return when nobody waits any more in any of these sales. Raises LoadFailed when that takes too long."""
    for fixture in fixtures:
        wait_until_decided(fixture.sku)


def asks_of(fixtures: Sequence[Fixture], shop: RunningShop, *, count: int) -> list[bytes]:
    """Return so many requests, one for each sale in turn; made before any clock runs."""
    each = [fresh_payloads(fixture.slug, port=shop.web.port, count=count // len(fixtures)) for fixture in fixtures]
    return list(itertools.chain.from_iterable(zip(*each, strict=True)))


def load_shop(
    fixtures: Sequence[Fixture], shop: RunningShop, *, asks: Sequence[bytes], plan: Plan, seconds: float
) -> Load:
    """Send `asks` for so long. Raises LoadFailed."""
    client = connect()
    # Each line is watched by itself and gets every n-th request.
    lines = [Backlog(client, each.sku, sale_id=each.sale_id, max_undecided=MAX_UNDECIDED) for each in fixtures]
    backlogs = itertools.cycle(lines)
    window = LoadWindow(seconds=seconds, connections=plan.connections)
    load = Loader(shop.web.port, window, may_send=lambda now: next(backlogs).may_ask(now)).run(asks)
    load.must_be(ADMITTED, of="the shop", also=[UNAVAILABLE])
    return load


def _wait_for_rest(crew: machine.Crew) -> None:
    """Return when the processes use next to nothing. Raises LoadFailed when they never do."""

    def busy() -> dict[str, float]:
        before = crew.read()
        time.sleep(LOOK_SECONDS)
        used = {part: seconds - before[part] for part, seconds in crew.read().items()}
        return {} if sum(used.values()) < RESTING_SECONDS else used

    nothing: dict[str, float] = {}
    wait_for(nothing, busy, seconds=REST_WITHIN_SECONDS, what="seconds of CPU in the last second, of a shop that rests")


class Share:
    """What the machine had left for a run, from now on: all its cores, less what others and its host took."""

    def __init__(self, crew: machine.Crew) -> None:
        self._crew, self.stolen, self.before = crew, machine.Stolen(), crew.read()
        self._began, self._own, self._all = time.monotonic(), time.process_time(), psutil.cpu_times()
        self.busy = 0.0

    def generator_seconds(self) -> float:
        """Return the CPU time of this process, which is the load generator."""
        return time.process_time() - self._own

    def cores_left(self) -> float:
        """Return how many cores were left, in the mean; busy is then which share of these the run used."""
        seconds, now, cores = time.monotonic() - self._began, psutil.cpu_times(), len(machine.cores())
        ours = self.generator_seconds() + sum(self._crew.read().values()) - sum(self.before.values())
        idle = (now.idle - self._all.idle) + (now.iowait - self._all.iowait)
        left = min(idle + ours, cores * seconds) / seconds
        self.busy = ours / seconds / left
        return left


def _ids(fixtures: Sequence[Fixture]) -> list[int]:
    return [each.sale_id for each in fixtures]


def _decided(fixtures: Sequence[Fixture]) -> int:
    return int(machine.one_row(DECIDED, _ids(fixtures))[0])


def decided_a_second(fixtures: Sequence[Fixture], load: Load, *, from_seconds: float) -> float:
    """Return how many orders of these sales the database decided a second; from_seconds: of the window, to its end."""
    begin, seconds = load.began_at + from_seconds, load.seconds - from_seconds
    return decided_between(_ids(fixtures), begin=begin, seconds=seconds)[0] / seconds
