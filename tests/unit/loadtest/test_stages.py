"""A shape's stages: each click counts where it was planned, and a shop that falls behind is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.checker.stages import by_stage, read_plan, write_plan
from loadtest.plan.arrivals import Arrivals, Stage
from loadtest.record.history import FAIL, OK, UNKNOWN, Operation

MS, SECOND = 1_000_000, 1_000_000_000
PLAN = Arrivals((Stage("slow", 10, 2, 2), Stage("fast", 10, 4, 4)), 1)
BEGINS = 7 * SECOND


def click(
    planned_seconds: float, wait_ms: float, *, outcome: str = OK, status: int = 202, code: str = "", key: str = ""
) -> Operation:
    """Return a click that was planned then, sent late, and answered so long after it was planned."""
    planned_ns = BEGINS + int(planned_seconds * SECOND)
    ended_ns = planned_ns + int(wait_ms * MS)
    return Operation(
        kind="ask", buyer=key or str(planned_seconds), key="k", planned_ns=planned_ns, began_ns=ended_ns - MS,
        ended_ns=ended_ns, outcome=outcome, status=status, code=code, clock="here",
    )  # fmt: skip


def figures(*operations: Operation) -> list[tuple[int, float, bool]]:
    """Return clicks, share in time and whether the shop kept up, of each stage."""
    stages = by_stage(list(operations), PLAN, begins={"here": BEGINS})
    return [(stage.clicks, stage.in_time, stage.keeps_up) for stage in stages]


def test_a_click_counts_where_it_was_planned() -> None:
    assert figures(click(1, 10), click(9.9, 900), click(10.1, 10)) == [(2, 1.0, True), (1, 1.0, True)]


@pytest.mark.parametrize(
    "late",
    [
        click(11, 1001),
        click(11, 20, outcome=UNKNOWN, status=503),
        click(11, 20, outcome=FAIL, status=425, code="sale_not_open"),
    ],
)
def test_a_late_answer_and_none_are_falling_behind(late: Operation) -> None:
    assert figures(click(1, 10), late) == [(1, 1.0, True), (1, 0.0, False)]


def test_a_click_that_was_shed_and_sent_again_is_one_click_with_the_whole_wait() -> None:
    shed = click(1, 20, outcome=UNKNOWN, status=503, key="b")
    again = click(1, 800, key="b")
    assert figures(shed, again)[0] == (1, 1.0, True)
    stage = by_stage([shed, again], PLAN, begins={"here": BEGINS})[0]
    assert (stage.wait.count, stage.wait.max_ms) == (1, 800)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_plan(tmp_path) is None
    write_plan(tmp_path, PLAN, shape="steps", mix="everybody")
    assert read_plan(tmp_path) == PLAN
