"""Rate over time to instants: exact in number, in order, the same by seed, shared by processes without a gap."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.plan.arrivals import NS, Arrivals, Stage
from loadtest.plan.shapes import PLANS, arrivals_of
from loadtest.shop_api import ShopError

STAGES = st.lists(
    st.builds(
        Stage,
        st.just("stage"),
        st.floats(0.1, 20),
        st.floats(0, 50),
        st.floats(0, 50),
        st.integers(0, 40),
    ),
    min_size=1,
    max_size=4,
).map(tuple)


@settings(max_examples=40, deadline=None)
@given(stages=STAGES, seed=st.integers(0, 9), parts=st.integers(1, 4))
def test_arrivals_are_exact_ordered_and_shared_without_a_gap(stages: tuple[Stage, ...], seed: int, parts: int) -> None:
    plan = Arrivals(stages, seed)
    whole = list(plan.instants_ns())
    assert len(whole) == plan.total == int(sum(stage.buyers for stage in stages) + 1e-6)
    assert whole == sorted(whole)
    assert all(0 <= instant <= plan.seconds * NS + 1 for instant in whole)
    shared = [list(plan.instants_ns(part=part, parts=parts)) for part in range(parts)]
    assert sorted(instant for part in shared for instant in part) == whole
    assert whole[::parts] == shared[0]


@settings(max_examples=40, deadline=None)
@given(stages=STAGES)
def test_at_every_moment_as_many_have_come_as_the_rate_says(stages: tuple[Stage, ...]) -> None:
    plan = Arrivals(stages, 1)
    instants = list(plan.instants_ns())
    begins = due = 0.0
    for stage in stages:
        begins, due = begins + stage.seconds, due + stage.buyers
        come = sum(instant <= begins * NS for instant in instants)
        # The buyer at the next door comes in the very instant in which this stage ends.
        assert due - 1.01 <= come <= due + 1.01 + sum(other.at_once for other in stages)


def test_a_seed_names_the_instants_and_they_are_no_comb() -> None:
    stages = (Stage("even", 10, 20, 20),)
    one, again, other = (list(Arrivals(stages, seed).instants_ns()) for seed in (1, 1, 2))
    assert one == again != other
    assert len({later - earlier for earlier, later in pairwise(one)}) > 100


def test_who_stands_at_the_door_comes_in_one_instant() -> None:
    plan = arrivals_of("doors_open", rate=100, seconds=10, seed=1)
    instants = list(plan.instants_ns())
    assert plan.total == len(instants) == 1000
    assert instants.count(0) == 400
    assert sum(instant < 2 * NS for instant in instants) > 400 + 150


def test_overload_is_twice_and_four_times_the_knee() -> None:
    plan = arrivals_of("overload", rate=50, seconds=40, seed=1)
    come = [0, 0, 0, 0]
    for instant in plan.instants_ns():
        come[plan.stage_at(instant)] += 1
    assert all(abs(count - wanted) <= 1 for count, wanted in zip(come, [500, 1000, 2000, 500], strict=True))
    with pytest.raises(ShopError, match="needs --rate"):
        arrivals_of("overload", rate=0, seconds=0, seed=1)


@pytest.mark.parametrize("shape", sorted(set(PLANS) - {"overload"}))
def test_every_shape_has_a_plan_of_its_own(shape: str) -> None:
    plan = arrivals_of(shape, rate=0, seconds=0, seed=1)
    assert plan.seconds == pytest.approx(PLANS[shape].seconds)
    assert len(list(plan.instants_ns())) == plan.total > 100
    with pytest.raises(ShopError, match="nobody comes"):
        arrivals_of(shape, rate=0.001, seconds=1, seed=1)
