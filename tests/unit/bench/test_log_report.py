"""A long log's benchmark fails by what it measured, and the log that it writes keeps every rule. Opens no port."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from loadtest.bench.log.report import figures_of, road_figures
from loadtest.bench.log.road import RoadTurn
from loadtest.bench.log.written import WAVE, leaves_of
from loadtest.verify.__main__ import judge
from loadtest.verify.signed_log import SignedLog, write

GOOD: dict[str, Any] = {
    "checkpoints": [2.0, 3.0, 90.0],
    "proofs": [6.0, 7.0, 90.0],
    "verify_seconds": 40.0,
    "first_seconds": 1.0,
    "page_seconds": 50.0,
}


def broken(**bad: Any) -> list[str]:
    """Return the names of the figures that do not keep their bound."""
    return [figure.name for figure in figures_of(**(GOOD | bad), leaves=1_000_000) if not figure.ok]


def test_a_good_run_keeps_every_bound_whatever_one_call_says() -> None:
    assert broken() == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"checkpoints": [2.0, 6.0, 6.0]}, "checkpoint, median"),
        ({"proofs": [2.0, 11.0, 11.0]}, "proof of a place, median"),
        ({"verify_seconds": 61.0}, "verify_sale.py, 1,000,000 leaves"),
        ({"first_seconds": 3.1}, "the page's first result"),
    ],
)
def test_each_bound_can_be_broken(bad: dict[str, Any], said: str) -> None:
    assert broken(**bad) == [said]


def test_without_a_browser_the_run_fails() -> None:
    assert "the page's first result" in broken(first_seconds=float("nan"), page_seconds=float("nan"))


def test_what_logs_cost_the_road_and_how_far_they_lag_is_bounded() -> None:
    """A ratio is of one round, so that a slow minute falls on both sides; at full pace the lag is only shown."""
    kept = [RoadTurn(kept=True, decided_per_second=rate, lag_seconds=9.0) for rate in (9_500.0, 4_750.0, 9_500.0)]
    none = [RoadTurn(kept=False, decided_per_second=rate) for rate in (10_000.0, 5_000.0, 10_000.0)]
    paced = RoadTurn(kept=True, decided_per_second=4_990.0, lag_seconds=0.8, drain_seconds=0.4)

    def broken_of(kept: list[RoadTurn], paced: RoadTurn) -> list[str]:
        turns = [*kept, *none]
        return [figure.name for figure in road_figures(turns, paced, pace=5_000) if not figure.ok]

    assert broken_of(kept, paced) == []
    slow = [replace(turn, decided_per_second=turn.decided_per_second * 0.9) for turn in kept]
    assert broken_of(slow, paced) == ["whole road, with logs ÷ without"]
    assert broken_of(kept, replace(paced, lag_seconds=1.1)) == ["the log's longest lag at 5,000/s"]
    assert broken_of(kept, replace(paced, drain_seconds=1.1)) == ["drained, after 5,000/s"]
    assert broken_of(kept, replace(paced, decided_per_second=4_000.0)) == ["asks a second, of 5,000"]


@pytest.mark.parametrize("units", [WAVE, 2 * WAVE])
def test_the_log_keeps_every_rule_and_has_every_kind_of_end(units: int) -> None:
    told = [{**leaf, "at": 1} for _, leaf in islice(leaves_of(1, units=units, first_seq=1), 12 * WAVE)]
    assert judge(SignedLog(write(told))) == set()
    assert {leaf["outcome"] for leaf in told if "outcome" in leaf} == {"held", "paid", "expired", "sold_out"}
    ordinals = [ordinal for ordinal, leaf in islice(leaves_of(1, units=units, first_seq=1), 12 * WAVE)]
    assert ordinals == sorted(ordinals)
    told[-1] = {**told[-1], "kind": "decided", "outcome": "held"}  # the control
    assert judge(SignedLog(write(told))) != set()
