"""What a test of a promise about time may say on a machine that is busy, and what it may not."""

from __future__ import annotations

import pytest

from tests.support.waiting import TRIES, assert_waits_at_most, seconds_of, wait_until


def test_the_first_try_in_time_ends_it() -> None:
    took = iter([3.0, 2.0, 0.5, 9.0])
    assert_waits_at_most(1, lambda: next(took))
    assert next(took) == 9.0


def test_what_waits_in_every_try_is_too_long_however_often_it_is_tried() -> None:
    took = iter([1.0] * (TRIES + 1))
    with pytest.raises(AssertionError, match="never less than 1 s"):
        assert_waits_at_most(1, lambda: next(took))
    assert len(list(took)) == 1


def test_a_wait_says_what_did_not_come_true() -> None:
    with pytest.raises(AssertionError, match="it did not come true within 0 s"):
        wait_until(lambda: False, timeout_seconds=0, what="it")


def test_seconds_are_those_of_the_call() -> None:
    called: list[bool] = []
    assert seconds_of(lambda: called.append(True)) >= 0
    assert called == [True]
