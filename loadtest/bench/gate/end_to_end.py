"""Measures the whole road on all cores together: ask, admit, line, take, settle, durable decision in PostgreSQL.
Never counts a decision that the database does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from inventory.audit import line as audit_line
from inventory.line import reading
from inventory.redis import Client, connect, run_commands
from loadtest.bench.gate.admission import ADMITTED
from loadtest.bench.harness import machine
from loadtest.bench.harness.fixtures import Fixture, decided_between, faults_of
from loadtest.bench.harness.report import quantile
from loadtest.bench.harness.servers import RunningShop
from loadtest.bench.harness.timing import wait_for
from loadtest.bench.load.loader import UNAVAILABLE, Load, Loader, LoadWindow
from loadtest.bench.load.payloads import fresh_payloads

# More asks than this ahead of the settlers, and the loader rests: the line neither runs dry nor grows without end.
MAX_UNDECIDED = 6000
LOOK_SECONDS = 0.02
DRAIN_SECONDS = 60.0
MAX_PER_SECOND = 25_000
HELD = "SELECT count(*) FROM shop_order WHERE sale_id = %s AND state = 'held'"


class CommandCost(NamedTuple):
    """How often Redis ran a command for one decision, and how long that took it in µs, by its own clock."""

    calls: float
    us: float


@dataclass(frozen=True, kw_only=True)
class Road:
    """What some seconds of the whole road came to. waits: from the ask to its answer, in ms.

    unavailable: share of the asks that were answered 503: a store was too slow for a moment. cpu_us: CPU of web,
    settlers and stores for one decision, by part. redis: what each command took of Redis for one decision.
    let_in: asks that the web process had let in by then, in this measurement and in those of before. stolen: share of
    the machine's time that its host gave to others meanwhile.
    """

    decided_per_second: float
    seconds: float
    asked: int
    decided: int
    wait_p50_ms: float
    wait_p99_ms: float
    audit_faults: list[str]
    web_mib: float
    settler_mib: float
    unavailable: float = 0.0
    let_in: int = 0
    cpu_us: Mapping[str, float] = field(default_factory=dict)
    redis: Mapping[str, CommandCost] = field(default_factory=dict)
    stolen: float = 0.0

    @property
    def shop_cpu_us(self) -> float:
        """CPU of all parts for one decision, in µs."""
        return sum(self.cpu_us.values())


class Backlog:
    """Says whether one more may be asked: how many were, less how many Redis says are decided."""

    def __init__(self, client: Client, sku: str, *, sale_id: int, max_undecided: int = MAX_UNDECIDED) -> None:
        self._client = client
        self._sku = sku
        self._sale_id = sale_id
        self._max_undecided = max_undecided
        self._asked = 0
        self._before = self._decided = self._read()
        self._looked_at = 0.0

    def _read(self) -> int:
        seen = reading.figures(self._client, self._sku, sale_id=self._sale_id)
        return 0 if seen is None else seen.decided

    def may_ask(self, now: float) -> bool:
        """Say so, and count it as asked."""
        if now - self._looked_at >= LOOK_SECONDS:
            self._decided, self._looked_at = self._read(), now
        if self._asked - (self._decided - self._before) >= self._max_undecided:
            return False
        self._asked += 1
        return True


def travel(fixture: Fixture, shop: RunningShop, window: LoadWindow, *, max_per_second: int = MAX_PER_SECOND) -> Road:
    """Load a running shop, wait until everything is decided, audit, and read the processes' memory. Raises LoadFailed.

    max_per_second: more than the loader can ask for long; more payloads are not prepared.
    """
    client = connect()
    port, count = shop.web.port, int(max_per_second * window.whole_seconds)
    backlog = Backlog(client, fixture.sku, sale_id=fixture.sale_id)
    payloads = fresh_payloads(fixture.slug, port=port, count=count)
    (held_before,) = machine.one_row(HELD, fixture.sale_id)
    commands, cpu, stolen = commands_of(client), shop.crew.read(), machine.Stolen()
    load = Loader(port, window, may_send=backlog.may_ask).run(payloads)
    load.must_be(ADMITTED, of="the whole road", also=[UNAVAILABLE])
    wait_until_decided(fixture.sku)
    share, cpu_now, commands_now = stolen.share(), shop.crew.read(), commands_of(client)
    memory = machine.memory_mib(shop.web.child), max(map(machine.memory_mib, shop.crew.children[machine.SETTLER]))
    road = _result(fixture, load, memory=memory, held_before=held_before)
    return replace(
        road,
        cpu_us={part: (cpu_now[part] - cpu[part]) * 1e6 / road.decided for part in cpu},
        redis=_each(commands, commands_now, decisions=road.decided),
        stolen=share,
    )


def commands_of(client: Client) -> dict[str, tuple[int, int]]:
    """Return how often Redis ran each command since it was started, and for how many µs.

    A command that a script runs counts under its own name, and once more in the time of the script's.
    """
    (found,) = run_commands(client, [("INFO", "commandstats")])
    return {name.removeprefix("cmdstat_"): (int(each["calls"]), int(each["usec"])) for name, each in found.items()}


def _each(
    before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]], *, decisions: int
) -> dict[str, CommandCost]:
    """Return what each command took for one of `decisions`, the longest first."""
    costs = {}
    for name, (calls, us) in after.items():
        calls_before, us_before = before.get(name, (0, 0))
        costs[name] = CommandCost((calls - calls_before) / decisions, (us - us_before) / decisions)
    return dict(sorted(costs.items(), key=lambda each: each[1].us, reverse=True))


def wait_until_decided(sku: str) -> None:
    """Return when nobody waits any more. Raises LoadFailed when that takes too long."""
    client = connect()

    def undecided() -> int:
        state = audit_line.look(client, sku)
        return state.waiting + state.in_flight

    wait_for(0, undecided, seconds=DRAIN_SECONDS, what=f"requests for {sku} that wait")


def _result(fixture: Fixture, load: Load, *, memory: tuple[float, float], held_before: int) -> Road:
    """Count in the database what was decided within the window, and audit the sale. held_before: units, by then."""
    decided, held = decided_between([fixture.sale_id], begin=load.began_at, seconds=load.seconds)
    (let_in,) = machine.one_row(HELD, fixture.sale_id)
    in_books = let_in - held_before
    faults = faults_of(fixture.scope)
    # The probe that waited for the server asked once, before the loader did.
    asked = load.statuses[ADMITTED]
    if held != decided or in_books < asked:
        faults.append(f"{asked} were told 202, {in_books} hold a unit")
    return Road(
        decided_per_second=decided / load.seconds,
        seconds=load.seconds,
        asked=asked,
        decided=in_books,
        wait_p50_ms=quantile(load.waits_ms, 0.5),
        wait_p99_ms=quantile(load.waits_ms, 0.99),
        audit_faults=faults,
        web_mib=memory[0],
        settler_mib=memory[1],
        unavailable=load.unavailable,
        let_in=let_in,
    )
