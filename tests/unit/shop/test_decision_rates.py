"""Decisions a second: between two looks, never over a moment, never over a time nobody looked."""

from __future__ import annotations

import pytest

from shop.sales.decision_rates import DecisionRates, Sample, measure

LAST = Sample(at=100.0, decided=50, rate=7.0)


@pytest.mark.parametrize(
    ("decided", "at", "rate"),
    [
        (90, 104.0, 10.0),
        (50, 104.0, 0.0),
        (90, 130.0, 40 / 30),
        (90, 130.1, None),  # nobody looked for too long
        (49, 104.0, None),  # the line lost its count
    ],
)
def test_a_rate_is_measured_between_two_looks(decided: int, at: float, rate: float | None) -> None:
    assert measure(LAST, decided=decided, at=at) == Sample(at, decided, rate)


def test_the_first_look_knows_no_rate() -> None:
    assert measure(None, decided=50, at=100.0) == Sample(100.0, 50, None)


def test_a_second_look_in_the_same_moment_keeps_the_rate() -> None:
    """The control: with a shorter time to wait, the same look counts."""
    assert measure(LAST, decided=90, at=101.0) is LAST
    assert measure(LAST, decided=90, at=101.0, min_seconds=0.5).rate == 40


def test_a_page_is_told_zero_while_nothing_is_known() -> None:
    rates = DecisionRates()
    looks = [(10, 0.0), (20, 1.0), (30, 4.0), (30, 5.0), (40, 60.0), (44, 62.5)]
    told = [rates.seen("kite", decided=decided, now=now) for decided, now in looks]
    assert told == [0.0, 0.0, 5.0, 5.0, 0.0, pytest.approx(1.6)]
    assert rates.seen("mug", decided=9, now=62.5) == 0.0
