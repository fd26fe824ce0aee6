"""The benchmark of a shard that is away fails when the other shards' SKUs keep less than nine tenths. Opens no port."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadtest.bench.shards.run import AWAY, WHOLE, Window, figures_of

BEFORE = Window(side=WHOLE, admitted_per_second=1000, decided_per_second=1000, unavailable=0.0, stolen=0.0)
MEANWHILE = replace(BEFORE, side=AWAY, admitted_per_second=910, decided_per_second=905)


def broken(windows: list[Window]) -> list[str]:
    return [figure.name.partition(" ")[0] for figure in figures_of(windows) if not figure.ok]


@pytest.mark.parametrize("what", ["admissions", "decisions"])
def test_less_than_nine_tenths_of_the_pace_fails_the_run(what: str) -> None:
    """The control is a tenth less than that."""
    assert broken([BEFORE, MEANWHILE]) == []
    name = {"admissions": "admitted_per_second", "decisions": "decided_per_second"}[what]
    assert broken([BEFORE, replace(MEANWHILE, **{name: 800})]) == [what]


def test_pairs_are_compared_and_one_decides_nothing() -> None:
    """Every second pair is measured the other way round; a machine that grows slower in one of them is no fault."""
    slow = [replace(each, admitted_per_second=300, decided_per_second=300) for each in (MEANWHILE, BEFORE)]
    stalled = replace(MEANWHILE, admitted_per_second=10, decided_per_second=10)
    assert broken([BEFORE, MEANWHILE, *slow, BEFORE, stalled]) == []
    assert broken([BEFORE, stalled, stalled, BEFORE, BEFORE, MEANWHILE]) == ["admissions", "decisions"]


def test_a_run_in_which_nothing_was_entered_fails() -> None:
    nothing = [replace(each, admitted_per_second=0, decided_per_second=0) for each in (BEFORE, MEANWHILE)]
    assert broken(nothing) == ["admissions", "decisions"]
