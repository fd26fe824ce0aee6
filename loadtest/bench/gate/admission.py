"""Measures the servers under test in turns, so that whatever else the machine does falls on all of them alike.
Never takes another answer for the one that is measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from loadtest.bench.harness import machine
from loadtest.bench.harness.benchmark import in_turns, repeat_disturbed
from loadtest.bench.harness.report import quantile
from loadtest.bench.harness.servers import WebServer
from loadtest.bench.load.loader import UNAVAILABLE, Loader, LoadWindow
from loadtest.bench.load.loop import LoadFailed
from loadtest.bench.load.payloads import address, fresh_payloads, get
from shop.buyers import issue_buyer

ADMITTED, REFUSED, LIMITED = "202", "409", "429"
# A sale that is sold out: so many units, so many more in line, and more fresh buyers a second than a core can answer.
GONE_UNITS, GONE_CAPACITY, GONE_BUYERS_PER_SECOND = 1_000, 200, 60_000


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A server, the sale it is asked for, and how many fresh buyers a second are enough (0: the same few again).

    name: of what is measured, the server's when it is ''; page: what is read instead, '' to ask for units.
    status: of every answer; any other than it, `also` and 503 fails the run. origin: the address all come from; ''
    gives each buyer one.
    """

    server: WebServer
    slug: str
    buyers_per_second: int
    status: str = ADMITTED
    name: str = ""
    page: str = ""
    also: str = ""
    origin: str = ""


def over_its_limit(server: WebServer, *, slug: str) -> Contender:
    """Return a `server` that lets one address ask a few times only, asked by that address."""
    origin = address(1)
    return Contender(server=server, slug=slug, buyers_per_second=0, status=LIMITED, also=ADMITTED, origin=origin)


def sold_out(server: WebServer, *, slug: str) -> Contender:
    """Return the shop's `server` asked for units of a sale that has none left."""
    return Contender(
        server=server, slug=slug, buyers_per_second=GONE_BUYERS_PER_SECOND, status=REFUSED, name="sold out"
    )


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One measurement of one side. busy: share of its core that the server used; waits in ms.

    stolen: share of the machine's time that its host gave to others meanwhile. unavailable: share of the answers that
    were 503.
    """

    side: str
    per_second: float
    busy: float
    wait_p50_ms: float
    wait_p99_ms: float
    stolen: float = 0.0
    unavailable: float = 0.0


@dataclass(frozen=True, kw_only=True)
class AdmissionPlan(LoadWindow):
    """How often each side is measured, and how."""

    rounds: int


def measure_in_turns(contenders: Sequence[Contender], *, plan: AdmissionPlan, loader_core: int) -> list[Turn]:
    """Measure every contender `plan.rounds` times, one after the other, and say each result.

    A turn whose servers the host disturbed is measured again: their CPU time is what is compared.
    """
    cores = set(machine.cores()[:1])  # as two_cores() has it
    once = partial(measure, plan=plan, loader_core=loader_core)
    turns = in_turns(contenders, rounds=plan.rounds)
    return [repeat_disturbed(partial(once, contender), cores=cores) for _, contender in turns]


def measure(contender: Contender, *, plan: AdmissionPlan, loader_core: int) -> Turn:
    """Measure one server once. Raises LoadFailed when an answer was another than the contender's."""
    server = contender.server
    requests = _requests(contender, seconds=plan.whole_seconds)
    stolen = machine.Stolen()
    with machine.bound(to={loader_core}):
        used = machine.cpu_seconds(server.child)
        load = Loader(server.port, plan).run(requests)
        used = machine.cpu_seconds(server.child) - used
    load.must_be(contender.status, of=server.child.name, also=[contender.also, UNAVAILABLE])
    return Turn(
        side=contender.name or server.child.name,
        per_second=load.per_second,
        busy=used / plan.whole_seconds,
        wait_p50_ms=quantile(load.waits_ms, 0.5),
        wait_p99_ms=quantile(load.waits_ms, 0.99),
        stolen=stolen.share(),
        unavailable=load.unavailable,
    )


def _requests(contender: Contender, *, seconds: float) -> Iterable[bytes]:
    port = contender.server.port
    if contender.page:
        return itertools.repeat(get(contender.page, port=port, headers=f"Cookie: buyer={issue_buyer()[1]}\r\n"))
    if not contender.buyers_per_second:
        return itertools.cycle(fresh_payloads(contender.slug, port=port, count=1000, origin=contender.origin))
    return fresh_payloads(contender.slug, port=port, count=int(contender.buyers_per_second * seconds))


def pin(servers: Iterable[WebServer], *, server_core: int) -> None:
    """Bind every server to one core."""
    for server in servers:
        machine.bind(server.child, to={server_core})


def two_cores() -> tuple[int, int]:
    """Return the cores of the server and of the loader. Raises LoadFailed on a machine with one."""
    found = machine.cores()
    if len(found) < 2:
        raise LoadFailed("this benchmark needs two cores: one for the server, one for the loader and Redis")
    return found[0], found[1]
