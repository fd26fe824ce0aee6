"""Measures the servers under test in turns, so that whatever else the machine does falls on all of them alike.
Never takes another answer for the one that is measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from loadtest.bench.harness import machine, processes
from loadtest.bench.harness.rounds import in_turns
from loadtest.bench.harness.servers import Side
from loadtest.bench.load.loader import Load, Loader
from loadtest.bench.load.payloads import fresh_wishes
from loadtest.bench.load.wire import LoadFailed
from shop.buyers import issue_buyer

ADMITTED = "202"
DISTURBED = 0.05
MAX_REPEATS = 2


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A side, the sale it is asked for, and how many fresh buyers a second are enough (0: the same few again).

    name: of what is measured, the side's when it is ''; page: what is read instead, '' to ask for units.
    status: of every answer; any other fails the run.
    """

    side: Side
    slug: str
    buyers_per_second: int
    status: str = ADMITTED
    name: str = ""
    page: str = ""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One measurement of one side. busy: share of its core that the server used; waits in ms.

    stolen: share of the machine's time that its host gave to others meanwhile.
    """

    side: str
    per_second: float
    busy: float
    wait_p50_ms: float
    wait_p99_ms: float
    stolen: float = 0.0

    @property
    def cpu_us(self) -> float:
        """The CPU time of the server for one answer, in µs."""
        return self.busy / self.per_second * 1e6 if self.per_second else 0.0


@dataclass(frozen=True, kw_only=True)
class AdmissionPlan:
    """How often, how long and over how many connections each side is measured."""

    rounds: int
    seconds: float
    warm_up_seconds: float
    connections: int


def measure_in_turns(
    contenders: Sequence[Contender], *, plan: AdmissionPlan, loader_core: int, report: Callable[[Turn], None]
) -> list[Turn]:
    """Measure every contender `plan.rounds` times, one after the other; tell `report` each result.

    A turn during which the host took more than DISTURBED of the machine is measured again, MAX_REPEATS times at most.
    """
    turns = []
    for _, contender in in_turns(contenders, rounds=plan.rounds):
        for _ in range(1 + MAX_REPEATS):
            turn = measure(contender, plan=plan, loader_core=loader_core)
            report(turn)
            if turn.stolen <= DISTURBED:
                break
        turns.append(turn)
    return turns


def measure(contender: Contender, *, plan: AdmissionPlan, loader_core: int) -> Turn:
    """Measure one side once. Raises LoadFailed when an answer was another than the contender's."""
    side = contender.side
    requests = _requests(contender, seconds=plan.seconds + plan.warm_up_seconds)
    stolen = machine.Stolen()
    with processes.bound(to={loader_core}):
        used = processes.cpu_seconds(side.child)
        load = Loader(side.port, connections=plan.connections).run(
            requests, seconds=plan.seconds, warm_up_seconds=plan.warm_up_seconds
        )
        used = processes.cpu_seconds(side.child) - used
    refuse_other_answers(load, side=side.name, status=contender.status)
    return Turn(
        side=contender.name or side.name,
        per_second=load.per_second,
        busy=used / (plan.seconds + plan.warm_up_seconds),
        wait_p50_ms=load.wait_ms(0.5),
        wait_p99_ms=load.wait_ms(0.99),
        stolen=stolen.share(),
    )


def _requests(contender: Contender, *, seconds: float) -> Iterable[bytes]:
    if contender.page:
        head = f"GET {contender.page} HTTP/1.1\r\nHost: 127.0.0.1:{contender.side.port}\r\n"
        return itertools.repeat(f"{head}Cookie: buyer={issue_buyer()[1]}\r\n\r\n".encode())
    if not contender.buyers_per_second:
        return itertools.cycle(fresh_wishes(contender.slug, port=contender.side.port, count=1000))
    count = int(contender.buyers_per_second * seconds)
    return fresh_wishes(contender.slug, port=contender.side.port, count=count)


def refuse_other_answers(load: Load, *, side: str, status: str = ADMITTED, also: str = "") -> None:
    """Raise LoadFailed unless every answer had `status`; also: another status that the caller counts."""
    if set(load.statuses) - {also} != {status}:
        raise LoadFailed(f"{side} answered {dict(load.statuses)}; every answer must be {status}")


def pin(sides: Iterable[Side], *, server_core: int) -> None:
    """Bind every side to one core."""
    for side in sides:
        processes.bind(side.child, to={server_core})


def two_cores() -> tuple[int, int]:
    """Return the cores of the server and of the loader. Raises LoadFailed on a machine with one."""
    found = processes.cores()
    if len(found) < 2:
        raise LoadFailed("this benchmark needs two cores: one for the server, one for the loader and Redis")
    return found[0], found[1]
