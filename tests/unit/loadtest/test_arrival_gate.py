"""Open arrivals: the plan is kept however slow the users are, and the wait at the gate is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import gevent
import pytest

from loadtest.checker import latency
from loadtest.checker.buyer_record import BuyerRecord
from loadtest.plan.population import BOT, EVERYBODY, HONEST, Population
from loadtest.record.history import OK, Operation, now_ns
from loadtest.users.arrival_gate import Arrival, ArrivalGate
from loadtest.users.crowd import Crowd

MS = 1_000_000
VISITS, STEP_MS, SLOW_SECONDS = 12, 5, 0.03


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    """A crowd of a dozen."""
    population = Population(sales=("a",), buyers=VISITS, attempts=VISITS, seed=1, kinds=EVERYBODY)
    crowd = Crowd(population, folder=tmp_path)
    yield crowd
    crowd.close()


def serve(crowd: Crowd, gate: ArrivalGate) -> list[tuple[Arrival, int]]:
    """Let one slow user serve everybody; return who came, and when they were let in."""
    opening, served = gevent.spawn(gate.open), []
    while not crowd.finished:
        arrival = gate.enter()
        if arrival is not None:
            served.append((arrival, now_ns()))
            gevent.sleep(SLOW_SECONDS)
            gate.leave()
    opening.join()
    return served


def admissions(served: list[tuple[Arrival, int]], *, planned: bool) -> latency.Wait:
    """Return the waits of asks that were answered in the instant in which they were sent."""
    asks = [
        Operation(kind="ask", sale="a", outcome=OK, planned_ns=arrival.planned_ns * planned, began_ns=at, ended_ns=at)
        for arrival, at in served
    ]
    return latency.to_admission([BuyerRecord("a", asks)])


def test_a_slow_user_changes_no_instant_and_its_queue_is_part_of_the_wait(crowd: Crowd) -> None:
    begins_ns = now_ns()
    instants = [number * STEP_MS * MS for number in range(VISITS)]
    served = serve(crowd, ArrivalGate(crowd, instants_ns=iter(instants), begins_ns=begins_ns))
    assert [arrival.planned_ns - begins_ns for arrival, _ in served] == instants
    assert [arrival.visit.number for arrival, _ in served] == list(range(VISITS))
    # The last one came when eleven before it had each kept the only user busy.
    owed_ms = (VISITS - 1) * (SLOW_SECONDS * 1000 - STEP_MS)
    assert admissions(served, planned=True).max_ms >= owed_ms
    assert admissions(served, planned=False).max_ms == 0  # the control: without the plan that wait is not seen


def test_nobody_is_early(crowd: Crowd) -> None:
    begins_ns = now_ns() + 50 * MS
    served = serve(crowd, ArrivalGate(crowd, instants_ns=iter([0] * VISITS), begins_ns=begins_ns))
    assert min(at for _, at in served) >= begins_ns


def test_without_a_plan_the_next_comes_when_a_user_is_free(crowd: Crowd) -> None:
    served = serve(crowd, ArrivalGate(crowd))
    assert [arrival.planned_ns for arrival, _ in served] == [0] * VISITS
    assert all(later - earlier >= SLOW_SECONDS * 1000 * MS for (_, earlier), (_, later) in pairwise(served))


@pytest.mark.parametrize("opened", [lambda: gevent.sleep(0.02), lambda: None], ids=["while some wait", "before any"])
def test_closed_doors_send_away_who_waits(crowd: Crowd, opened: Callable[[], None]) -> None:
    gate = ArrivalGate(crowd, instants_ns=iter([0] * VISITS), begins_ns=now_ns())
    opening = gevent.spawn(gate.open)
    opened()
    gate.close()
    opening.join()
    assert crowd.finished
    assert gate.enter() is None


def play(gate: ArrivalGate, kind: str, *, into: list[tuple[str, str]], crowd: Crowd) -> None:
    """Let one quick user of `kind` serve until everybody has been there: (its kind, the kind it played)."""
    while not crowd.finished:
        if arrival := gate.enter(kind):
            into.append((kind, arrival.visit.kind))
            gate.leave()


def kinds_served(crowd: Crowd, *kinds: str) -> list[tuple[str, str]]:
    """Let a free user of each of `kinds` wait for everybody."""
    served: list[tuple[str, str]] = []
    gate = ArrivalGate(crowd, instants_ns=iter([n * STEP_MS * MS for n in range(VISITS)]), begins_ns=now_ns() + 20 * MS)
    users = [gevent.spawn(play, gate, kind, into=served, crowd=crowd) for kind in kinds]
    gevent.joinall([gevent.spawn(gate.open), *users])
    return served


def test_a_free_user_of_its_kind_plays_each_buyer(crowd: Crowd) -> None:
    served = kinds_served(crowd, *EVERYBODY)
    assert len(served) == VISITS
    assert [own for own, played in served if own != played] == []


def test_a_kind_without_a_user_waits_for_nobody(crowd: Crowd) -> None:
    served = kinds_served(crowd, BOT)
    assert len(served) == VISITS
    assert {own for own, _ in served} == {BOT}
    assert HONEST in {played for _, played in served}


def test_a_user_that_is_sent_away_gives_its_buyer_to_another(crowd: Crowd) -> None:
    gate = ArrivalGate(crowd, instants_ns=iter(()))
    gone = gevent.spawn(gate.enter, HONEST)
    gevent.sleep(0)  # it waits
    visit = crowd.next_visit()
    assert visit is not None
    gone.kill(block=False)
    gate._let_in(Arrival(visit))
    gone.join()
    assert gate.enter(BOT) == Arrival(visit)
