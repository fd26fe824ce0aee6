"""What a test of a promise about time may say on a machine that is busy, and what it may not."""

from __future__ import annotations

import sys
import time

import pytest

from tests.support.waiting import (
    REST_SECONDS,
    TRIES,
    Timed,
    assert_quickest_within,
    assert_waits_at_most,
    seconds_of,
    timed,
    wait_until,
)


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


SLOW, QUICK, STALLED = Timed(9.0, 0.1), Timed(1.0, 0.1), Timed(9.0, 6.0)


@pytest.mark.parametrize("took", [[QUICK], [SLOW, QUICK], [STALLED], [STALLED, QUICK], [SLOW, Timed(1.0, 0.9)]])
def test_a_time_is_held_to_when_the_machine_was_free(took: list[Timed]) -> None:
    assert_quickest_within(5.0, took)


@pytest.mark.parametrize("took", [[SLOW], [SLOW, STALLED]])
def test_what_a_free_machine_took_too_long_for_is_found(took: list[Timed]) -> None:
    """The control."""
    with pytest.raises(AssertionError):
        assert_quickest_within(5.0, took)


def test_a_probe_that_is_kept_waiting_says_so() -> None:
    """A thread that keeps the interpreter's lock keeps the probe waiting, as other processes do on all cores."""
    before = sys.getswitchinterval()

    def hoard() -> None:
        for _ in range(5):  # first the probe is let to its work
            time.sleep(REST_SECONDS)
        sys.setswitchinterval(30.0)
        ends = time.thread_time() + 0.3
        while time.thread_time() < ends:
            pass

    try:
        _, took = timed(hoard)
    finally:
        sys.setswitchinterval(before)
    assert not took.was_free
