"""Proves that sixteen processes that want one lock all the time get it equally often, and none waits much longer.
Begins with its control, the lock that lets anyone push in. Real processes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.races.lock_crowd import Crowd, Plan, crowd, figures, take_turns
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
PROCESSES = 16
RUN_SECONDS = 2.0
# The benchmark has the tight bars (5 %, and waits in seconds). These hold on a machine that does something else too:
# a wait is counted in turns of others, so that a machine that stands still for a moment makes nobody unfair.
SPREAD, WORST_TO_MEAN = 0.15, 2.0
# A run in which the machine stood still proves nothing either way.
RUNS, TURNS_EACH = 10, 5


@dataclass(frozen=True)
class Fairness:
    """What one run came to. spread: of the turns of each process, from their mean.

    worst_to_mean: of the waits, in turns; seconds_worst_to_mean: the same in seconds, to be seen when a run fails.
    """

    spread: float
    worst_to_mean: float
    seconds_worst_to_mean: float
    turns: int

    @property
    def is_fair(self) -> bool:
        """Say whether the run is within the bars."""
        is_long_enough = self.turns > TURNS_EACH * PROCESSES
        return is_long_enough and self.spread <= SPREAD and self.worst_to_mean <= WORST_TO_MEAN


def measured(people: Crowd, *, begins: float, ends: float) -> Fairness:
    """Return how fair the crowd was between two moments, in which everybody wanted the lock."""
    turns = Counter(dict.fromkeys((each.pid for each in people.processes), 0))
    waits, seconds = list[int](), list[float]()
    asked, turn = dict[int, tuple[int, float]](), 0
    for entry in people.entries("asks", "holds"):
        if entry.what == "asks":
            asked[entry.process_id] = turn, entry.moment
            continue
        turn += 1
        if begins <= entry.moment <= ends:
            turns[entry.process_id] += 1
            before, since = asked[entry.process_id]
            waits.append(turn - before)
            seconds.append(entry.moment - since)
    return Fairness(max(map(abs, figures(turns))), worst_to_mean(waits), worst_to_mean(seconds), len(waits))


def worst_to_mean(waits: Sequence[float]) -> float:
    """Return how many times the mean the worst wait is."""
    assert waits
    return max(waits) / (sum(waits) / len(waits))


def run_once(plan: Plan, *, seconds: float = RUN_SECONDS) -> Fairness:
    """Let sixteen processes hold the lock for 5 ms each, again and again; measure `seconds` after the rush."""
    with crowd(plan, take_turns, count=PROCESSES) as people:
        rushed = people.begin() + 0.4
        wait_until(lambda: time.monotonic() > rushed + seconds, what="the run is over")
        people.end()
        holds = people.entries("holds")
        assert [entry.fence for entry in holds] == sorted({entry.fence for entry in holds})
        assert people.entries("lost", "gave up") == []
        return measured(people, begins=rushed, ends=rushed + seconds)


def test_without_fairness_few_have_it_most_of_the_time(new_sku: Callable[[], str], tmp_path: Path) -> None:
    """The control: the same run, and anyone who gives the lock back may take it again before those who wait."""
    runs: list[Fairness] = []
    while all(run.is_fair or run.turns <= TURNS_EACH * PROCESSES for run in runs):
        assert len(runs) < RUNS, runs
        runs.append(run_once(Plan(new_sku(), tmp_path / str(len(runs)), fair=False)))


def test_everybody_gets_it_equally_often_and_equally_soon(new_sku: Callable[[], str], tmp_path: Path) -> None:
    runs: list[Fairness] = []
    while not any(run.is_fair for run in runs):
        assert len(runs) < RUNS, runs
        runs.append(run_once(Plan(new_sku(), tmp_path / str(len(runs)))))
