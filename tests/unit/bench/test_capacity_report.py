"""A prediction is made from the first run alone, and fails when a later run is far from it. Opens no port."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadtest.bench.capacity.report import (
    BUYERS,
    DEPLOYMENTS,
    Deployment,
    Round,
    figures_of,
    opening_figures,
    predict,
    predicted_decisions,
    scaled_moments,
)
from loadtest.bench.harness.machine import GENERATOR, POSTGRES, REDIS, SETTLER, WEB
from shop.capacity.costs import Costs, kept_costs

COST_US = {GENERATOR: 14.0, WEB: 64.0, SETTLER: 18.0, REDIS: 18.0, POSTGRES: 36.0}
FIRST = Round(deployment=DEPLOYMENTS[0], per_second=13_000, cpu_us=COST_US, cores_left=2.0, busy=0.97, stolen=0.0)


def costs_of_any_release() -> Costs:
    """Return the kept costs with the pace of settlement to which the numbers below belong."""
    kept = kept_costs()
    return replace(kept, units={**kept.units, "settled_500": replace(kept.units["settled_500"], value=15_500.0)})


COSTS = costs_of_any_release()


def predicted(deployment: Deployment, *, cores: float = 2.0, first: Round = FIRST) -> tuple[float, str]:
    found = predict(deployment, measured=first, kept=COSTS, skus=6, cores=cores)
    return found.per_second, found.bound


def test_on_two_cores_every_shop_is_bound_by_the_cores() -> None:
    expected = 2 * 1e6 / sum(COST_US.values())
    assert [predicted(deployment) for deployment in DEPLOYMENTS] == [(pytest.approx(expected), "cores")] * len(
        DEPLOYMENTS
    )
    assert predicted(DEPLOYMENTS[0], cores=1.0)[0] == pytest.approx(expected / 2)


def test_on_many_cores_each_part_is_bound_by_its_own() -> None:
    assert predicted(Deployment(), cores=64)[1] == "settlement"
    assert predicted(Deployment(settlers=6), cores=64) == (pytest.approx(1e6 / COST_US[WEB]), "web")
    slow = replace(FIRST, cpu_us=COST_US | {REDIS: 200.0})
    assert predicted(Deployment(web=9, settlers=6), cores=64, first=slow) == (pytest.approx(5_000), "Redis")
    assert predicted(Deployment(web=9, settlers=6, masters=3), cores=64, first=slow)[0] == pytest.approx(15_000)


@pytest.mark.parametrize(("measured", "good"), [(13_000, True), (11_200, True), (10_500, False), (17_500, False)])
def test_a_prediction_that_is_far_off_fails_the_run(measured: float, good: bool) -> None:
    """The control: 20 % to either side, for that deployment alone."""
    rounds = [replace(FIRST, deployment=deployment, per_second=13_200) for deployment in DEPLOYMENTS]
    rounds[1] = replace(rounds[1], per_second=measured)
    found = [predict(each.deployment, measured=FIRST, kept=COSTS, skus=6, cores=each.cores_left) for each in rounds]
    broken = [figure.name for figure in figures_of(rounds, found) if not figure.ok]
    assert broken == ([] if good else [f"{DEPLOYMENTS[1].name}: off by"])


def test_of_several_rounds_the_middle_one_counts() -> None:
    rounds = [replace(FIRST, per_second=rate) for rate in (13_000, 13_100, 2_000)]
    found = [predict(each.deployment, measured=FIRST, kept=COSTS, skus=6, cores=2.0) for each in rounds]
    assert all(figure.ok for figure in figures_of(rounds, found))


def test_an_opening_in_scaled_time_has_the_shape_of_the_whole() -> None:
    moments = scaled_moments(share=2, speed_up=10)
    assert len(moments) == BUYERS / 20
    assert moments == sorted(moments)
    assert sum(moment < 1 for moment in moments) == len(moments) / 2
    assert 59 < moments[-1] < 60


def test_a_line_of_one_pace_makes_the_crowd_wait_and_nobody_else() -> None:
    assert predicted_decisions([0, 0, 0, 5], per_second=2) == [0.5, 1.0, 1.5, 5.5]


@pytest.mark.parametrize(
    ("pace", "good"), [(10_000, True), (11_500, True), (8_700, True), (12_800, False), (7_000, False)]
)
def test_an_opening_that_went_otherwise_than_predicted_fails_the_run(pace: int, good: bool) -> None:
    """The control: 20 % to either side."""
    moments = scaled_moments(share=2, speed_up=10)
    predicted, measured = (predicted_decisions(moments, per_second=each) for each in (10_000, pace))
    figures = opening_figures(moments, predicted=predicted, measured=measured, speed_up=10)
    assert all(figure.ok for figure in figures) == good
    assert figures[0].value == pytest.approx(25, rel=0.01)  # 500,000 buyers of a shop that decides 20,000 a second
