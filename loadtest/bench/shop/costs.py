"""Measures what a purchase costs when there are more SKUs, and when the line is longer: CPU time and memory of Redis.
Never counts the time in which a purchase is made up.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from inventory.redis import Client, connect, keys, run_commands
from loadtest.bench.gate.settlement import BATCH, admit, fill_line, fresh_ask, warm_settler
from loadtest.bench.harness import machine
from loadtest.bench.harness.benchmark import in_turns, say_fields
from loadtest.bench.harness.fixtures import Fixture, make_fixture
from loadtest.bench.harness.servers import children_of
from loadtest.bench.harness.timing import wait_for
from loadtest.bench.load.loop import LoadFailed
from workers.embedded.stores import Servers
from workers.settler import Settler

WARM_UP_REQUESTS = 5_000
# Admitted and settled in turns of so many, so that the line keeps its length while it is measured.
TURN_REQUESTS = 2_000
MAX_SECONDS = 90.0
NEVER = -1  # shorter than any line


@dataclass(frozen=True, kw_only=True)
class Scale:
    """skus: how many at once, with `spread_over` purchases in all; lines: how many wait while `at_length` go through.

    rounds: how often each number of SKUs is measured.
    """

    skus: Sequence[int] = (1, 5, 10, 25, 50)
    spread_over: int = 50_000
    lines: Sequence[int] = (1_000, 10_000, 50_000, 200_000)
    at_length: int = 10_000
    rounds: int = 3

    @property
    def most_skus(self) -> int:
        """The most SKUs at once."""
        return max(self.skus)

    @property
    def longest_line(self) -> int:
        """How many wait at most."""
        return max(self.lines)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one purchase cost: µs of CPU of all server processes, µs by the wall clock, bytes of Redis."""

    cpu_us: float
    wall_us: float
    bytes: float


@dataclass(kw_only=True)
class Costs:
    """By number of SKUs, and by length of the line. fixtures: what was sold, for the audit."""

    by_skus: dict[int, Cost] = field(default_factory=dict)
    by_line: dict[int, Cost] = field(default_factory=dict)
    fixtures: list[Fixture] = field(default_factory=list)


class Meter:
    """Reads the clock, and the CPU time of both servers and of this process, which works as the settler."""

    def __init__(self, servers: Servers) -> None:
        self._stores = machine.Crew(children=children_of(servers))
        self.cpu_seconds = self.wall_seconds = 0.0

    def _read(self) -> float:
        return time.process_time() + sum(self._stores.read().values())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add what the block takes."""
        cpu, wall = self._read(), time.monotonic()
        yield
        self.wall_seconds += time.monotonic() - wall
        self.cpu_seconds += self._read() - cpu

    def cost(self, purchases: int, *, bytes_each: float) -> Cost:
        """Return what one of `purchases` took."""
        scale = 1_000_000 / purchases
        return Cost(cpu_us=self.cpu_seconds * scale, wall_us=self.wall_seconds * scale, bytes=bytes_each)


class Brake:
    """Lets a settler stop once one line is as short as told. length: how many wait in it.

    What it does for other lines meanwhile does not count: one that waits for a unit is looked at every ten seconds.
    """

    def __init__(self, length: Callable[[], int]) -> None:
        self._length = length
        self.stops_at = NEVER

    def stop(self) -> bool:
        """Say whether to stop; the settler asks before a line and after each of its batches."""
        return self.stops_at != NEVER and self._length() <= self.stops_at


def measure_costs(scale: Scale, *, servers: Servers) -> Costs:
    """Measure both curves. Raises LoadFailed when a line never empties."""
    client, costs = connect(), Costs()
    found: dict[int, list[Cost]] = {count: [] for count in scale.skus}
    long_line = make_fixture("bench-long-line")
    brake = Brake(lambda: _waiting(client, long_line))
    costs.fixtures.append(long_line)
    with warm_settler(client, long_line, batch=BATCH, warm_up=WARM_UP_REQUESTS, stopping=brake.stop) as settler:
        for number, count in in_turns(scale.skus, rounds=scale.rounds):
            # New ones each time: what was sold before lies in Redis too.
            shelf = [make_fixture(f"bench-cost-{number}-{count}-{each}") for each in range(count)]
            costs.fixtures += shelf
            cost = _across(client, shelf, settler, purchases=scale.spread_over, servers=servers)
            found[count].append(cost)
            say_fields(cost, of=f"{count:,} SKUs")
        behind: dict[int, list[Cost]] = {waiting: [] for waiting in scale.lines}
        # Up and down again: what only grows with the time a run takes is not the line's.
        for _, waiting in in_turns(scale.lines, rounds=2):
            _let_wait(client, long_line, settler, brake, waiting=waiting)
            cost = _behind(client, long_line, settler, brake, purchases=scale.at_length, servers=servers)
            behind[waiting].append(cost)
            say_fields(cost, of=f"{waiting:,} in line")
        settle_down(settler, client, [long_line])
    costs.by_skus = {count: _middle(each) for count, each in found.items()}
    costs.by_line = {waiting: _middle(each) for waiting, each in behind.items()}
    return costs


def _middle(costs: Sequence[Cost]) -> Cost:
    return Cost(
        cpu_us=statistics.median(cost.cpu_us for cost in costs),
        wall_us=statistics.median(cost.wall_us for cost in costs),
        bytes=statistics.median(cost.bytes for cost in costs),
    )


def _across(client: Client, shelf: Sequence[Fixture], settler: Settler, *, purchases: int, servers: Servers) -> Cost:
    """Sell `purchases` units evenly spread over the sales."""
    share = purchases // len(shelf)
    asks = {each.sku: [fresh_ask(each) for _ in range(share)] for each in shelf}
    meter = Meter(servers)
    with meter.running():
        for each in shelf:
            admit(client, each, asks[each.sku])
    in_line = sum(_bytes_in_line(client, each) for each in shelf)
    with meter.running():
        settle_down(settler, client, shelf)
    done = share * len(shelf)
    return meter.cost(done, bytes_each=in_line / done)


def _let_wait(client: Client, fixture: Fixture, settler: Settler, brake: Brake, *, waiting: int) -> None:
    """Let the line become as long as `waiting`, and Redis rest."""
    fill_line(client, fixture, count=max(0, waiting - _waiting(client, fixture)))
    _shrink(client, fixture, settler, brake, to=waiting)
    _wait_for_rewrite(client)


def _behind(
    client: Client, fixture: Fixture, settler: Settler, brake: Brake, *, purchases: int, servers: Servers
) -> Cost:
    """Admit to the end of the line and settle from its front."""
    length = _waiting(client, fixture)
    (records,) = run_commands(client, [("HLEN", keys.records(fixture.sku))])
    asks = [fresh_ask(fixture) for _ in range(purchases)]
    bytes_each = _bytes_in_line(client, fixture) / records
    meter = Meter(servers)
    for start in range(0, len(asks), TURN_REQUESTS):
        with meter.running():
            admit(client, fixture, asks[start : start + TURN_REQUESTS])
            _shrink(client, fixture, settler, brake, to=length)
    if (left := _waiting(client, fixture)) != length:
        raise LoadFailed(f"{left:,} wait instead of {length:,}: the line did not keep its length")
    return meter.cost(len(asks), bytes_each=bytes_each)


def _waiting(client: Client, fixture: Fixture) -> int:
    (waiting,) = run_commands(client, [("ZCARD", keys.line(fixture.sku))])
    return int(waiting)


def _shrink(client: Client, fixture: Fixture, settler: Settler, brake: Brake, *, to: int) -> None:
    """Settle from the front until `to` wait, or up to a batch less. Raises LoadFailed when that takes too long."""
    brake.stops_at = to
    try:
        settle_down(settler, client, [fixture], to=to)
    finally:
        brake.stops_at = NEVER


def _wait_for_rewrite(client: Client) -> None:
    """Wait until Redis does not rewrite its file: as much work as it holds data, no matter who asks meanwhile."""

    def is_rewriting() -> bool:
        return bool(run_commands(client, [("INFO", "persistence")])[0]["aof_rewrite_in_progress"])

    wait_for(False, is_rewriting, seconds=MAX_SECONDS, what="Redis rewrites its file")


def settle_down(settler: Settler, client: Client, shelf: Sequence[Fixture], *, to: int = 0) -> None:
    """Settle until no line of `shelf` is longer than `to`. Raises LoadFailed when that takes too long."""
    deadline = time.monotonic() + MAX_SECONDS
    lines = [("ZCARD", keys.line(each.sku)) for each in shelf]
    while max(run_commands(client, lines)) > to:
        settler.work_once()
        if time.monotonic() > deadline:
            raise LoadFailed(f"requests still wait after {MAX_SECONDS:g} s")


def _bytes_in_line(client: Client, fixture: Fixture) -> int:
    """Return the bytes of all that Redis keeps of a SKU's requests."""
    sku = fixture.sku
    return bytes_of(client, (keys.line(sku), keys.in_flight(sku), keys.records(sku), keys.live_units(sku)))


def bytes_of(client: Client, names: Sequence[str]) -> int:
    """Return the bytes that keys take in Redis."""
    return sum(size or 0 for size in run_commands(client, [("MEMORY", "USAGE", name, "SAMPLES", 0) for name in names]))
