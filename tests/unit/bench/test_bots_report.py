"""The bot lab's verdict: green for a shop that keeps every promise, red as soon as one of its figures is not kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadtest.bench.bots.crowd import (
    CODES,
    DEFAULTS,
    GUESSING,
    HOLDING,
    MANY_NETWORKS,
    NOBODY,
    NONE,
    ONE_ADDRESS,
    ONE_NETWORK,
    OPENINGS,
    PASSES,
    SOLVER,
    SOLVER_ON_TWO,
    WORKING_SECONDS,
    Defence,
    PassCosts,
    Plan,
    passes_of,
    robbers_of,
)
from loadtest.bench.bots.report import (
    METHOD,
    BotRound,
    comparison_of,
    figures_of,
    figures_of_passes,
    picture_of,
)
from loadtest.bench.harness.report import filled

PLAN = Plan()
KEPT = BotRound(
    attack="",
    defence="",
    units=200,
    robber=0,
    people=200,
    shared=60,
    people_let_in=400,
    robber_let_in=0,
    refused=0,
    refused_shared=0,
    again=0,
    p50_ms=20.0,
    p99_ms=50.0,
    addresses=1,
    tokens=2_000,
    proofs=0,
    cpu_seconds=0.0,
)


def outcomes() -> dict[tuple[str, str], BotRound]:
    """Return an opening of each row, in which every promise is kept."""
    rows = [(attack, defence.name) for attack, defences in OPENINGS.items() for defence in defences]
    found = {row: replace(KEPT, attack=row[0], defence=row[1]) for row in rows}
    for attack in (ONE_ADDRESS, MANY_NETWORKS, GUESSING):
        found[attack, NONE.name] = replace(found[attack, NONE.name], robber=200, people=0)
    return found


def missed(found: dict[tuple[str, str], BotRound]) -> list[str]:
    return [figure.name for figure in figures_of(list(found.values()), plan=PLAN) if not figure.ok]


def test_a_shop_that_keeps_every_promise_is_green() -> None:
    assert missed(outcomes()) == []


@pytest.mark.parametrize(
    ("attack", "defence", "change", "figure"),
    [
        (ONE_ADDRESS, NONE, {"robber": 99}, "the control"),
        (MANY_NETWORKS, NONE, {"robber": 99}, "the control"),
        (GUESSING, NONE, {"robber": 99}, "the control"),
        (ONE_ADDRESS, DEFAULTS, {"robber": 11}, "one address or network"),
        (ONE_NETWORK, DEFAULTS, {"robber": 11}, "one address or network"),
        (MANY_NETWORKS, CODES, {"robber": 21}, "in a sale with codes"),
        (GUESSING, CODES, {"robber": 1}, "guesser"),
        (HOLDING, DEFAULTS, {"people": 179}, "hold and release"),
        (NOBODY, DEFAULTS, {"refused": 61}, "refused by a limit"),
        (NOBODY, PASSES, {"p99_ms": 351.0}, "passes add"),
    ],
)
def test_each_promise_that_is_not_kept_is_red(
    attack: str, defence: Defence, change: dict[str, float], figure: str
) -> None:
    found = outcomes()
    found[attack, defence.name] = replace(found[attack, defence.name], **change)  # type: ignore[arg-type]
    (name,) = missed(found)
    assert figure in name


def test_many_networks_are_shown_and_fail_nothing() -> None:
    found = outcomes()
    found[MANY_NETWORKS, DEFAULTS.name] = replace(found[MANY_NETWORKS, DEFAULTS.name], robber=200, people=0)
    assert missed(found) == []
    shown = {figure.name: figure.value for figure in figures_of(list(found.values()), plan=PLAN)}
    assert shown["units of 50 networks with the defaults"] == 100


@pytest.mark.parametrize(("checked", "kept"), [(2_000, True), (1_999, False)])
def test_the_shop_checks_so_many_passes_a_second(checked: float, kept: bool) -> None:
    figures = figures_of_passes(PassCosts(seconds=1.0, made=800, checked=checked))
    assert [(figure.value, figure.ok) for figure in figures] == [(checked, kept), (800, True)]


def test_two_cores_work_for_twice_the_passes_and_none_for_none() -> None:
    robbers = robbers_of(PLAN)
    worked = {
        name: passes_of(robbers[name], tokens=PLAN.tokens, pass_seconds=WORKING_SECONDS / 100) for name in robbers
    }
    assert {name: passes for name, passes in worked.items() if passes} == {SOLVER: 100, SOLVER_ON_TWO: 200}
    assert passes_of(robbers[SOLVER_ON_TWO], tokens=150, pass_seconds=WORKING_SECONDS / 100) == 150


def test_every_robber_has_its_openings() -> None:
    assert list(OPENINGS) == list(robbers_of(PLAN))


def test_the_table_and_the_chart_have_every_opening() -> None:
    found = list(outcomes().values())
    table = comparison_of(found)
    assert len(table.rows) == len(found)
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert picture_of(found).count("<rect") == len(found)
    assert "200 units" in filled(METHOD, PLAN)[0]
