"""What the host of a machine disturbed is measured again, and a page says how disturbed those are that count."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from loadtest.bench.harness import benchmark, core_speed
from loadtest.bench.harness.benchmark import repeat_disturbed
from loadtest.bench.harness.core_speed import CoreSpeed


@dataclass(frozen=True)
class Measurement:
    stolen: float


def repeated(
    monkeypatch: pytest.MonkeyPatch, *, stolen: Sequence[float], loops_us: Sequence[float] = ()
) -> list[float]:
    """Return the measurements that were taken, and last the one that counts. loops_us: each reading of a core."""
    speed, left, taken = CoreSpeed(), iter(stolen), list[float]()
    if loops_us:
        readings = iter(loops_us)
        monkeypatch.setattr(core_speed, "loop_us", lambda: next(readings))
        monkeypatch.setattr(core_speed, "PAUSE_SECONDS", 0)
        monkeypatch.setattr(core_speed, "FIRST_LOOKS", 1)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
        monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
        speed.start()
    monkeypatch.setattr(benchmark, "CORE_SPEED", speed)

    def measure() -> Measurement:
        taken.append(next(left))
        return Measurement(taken[-1])

    found = repeat_disturbed(measure)
    return [*taken, found.stolen]


@pytest.mark.parametrize(
    ("stolen", "measured", "counts"),
    [([0.0], 1, 0.0), ([0.05], 1, 0.05), ([0.06, 0.0], 2, 0.0), ([0.2, 0.1, 0.4, 0.0], 3, 0.1)],
)
def test_one_whose_host_took_much_is_taken_again_and_the_least_disturbed_counts(
    monkeypatch: pytest.MonkeyPatch, stolen: list[float], measured: int, counts: float
) -> None:
    assert repeated(monkeypatch, stolen=stolen) == [*stolen[:measured], counts]


def test_one_that_ends_on_a_slow_core_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start, twice; then before and after each."""
    loops_us = [100, 100, 100, 200, 110, 110]
    assert repeated(monkeypatch, stolen=[0.01, 0.02], loops_us=loops_us) == [0.01, 0.02, 0.02]


def test_the_control_on_a_quiet_core_it_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert repeated(monkeypatch, stolen=[0.01], loops_us=[100, 100, 100, 115]) == [0.01, 0.01]


def test_it_waits_until_a_slow_core_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    loops_us = [100, 100, 190, 180, 100, 100]
    assert repeated(monkeypatch, stolen=[0.01], loops_us=loops_us) == [0.01, 0.01]


def test_a_long_one_waits_not_for_ever_and_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_speed, "MAX_WAIT_SECONDS", 0)
    monkeypatch.setattr(benchmark, "REPEATING_SECONDS", 0)
    assert repeated(monkeypatch, stolen=[0.01, 0.02], loops_us=[100, 100, 190, 190]) == [0.01, 0.01]


def test_a_page_says_how_disturbed_what_counts_was(monkeypatch: pytest.MonkeyPatch) -> None:
    speed = CoreSpeed()
    assert (speed.facts(), speed.slowed()) == ({}, 0.0)
    cores = os.sched_getaffinity(0)
    monkeypatch.setattr(core_speed, "FIRST_LOOKS", 1)
    speed.start()
    assert speed.slowed() >= 0
    assert os.sched_getaffinity(0) == cores
    looked: list[set[int]] = []

    def look() -> float:
        looked.append(os.sched_getaffinity(0))
        return 100.0

    monkeypatch.setattr(core_speed, "loop_us", look)
    speed.slowed()
    speed.slowed(cores={min(cores)})
    assert speed.fastest_us <= 100
    assert looked == [*({core} for core in sorted(cores)), {min(cores)}]
    speed.note(0.1, repeated=0)
    speed.note(0.45, repeated=2)
    (said,) = speed.facts().values()
    assert said.startswith("2 measurements were repeated; of 2 that count, 1 ended on")
    assert said.endswith("the worst 45 %")
