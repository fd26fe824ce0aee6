"""A hold ends once, is never brought back, and counts its life from before the call; an owner's name can be read.
Needs no server.
"""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import pytest

from inventory.locks.lease import Hold
from inventory.locks.token import new_token, owner_of


def a_hold(*, ttl_ms: int = 10_000, age_seconds: float = 0, max_hold_ms: int | None = None) -> tuple[Hold, list[str]]:
    """Return a hold that was taken `age_seconds` ago, and what its holder is told."""
    told: list[str] = []
    lock = SimpleNamespace(name="kite", token="t", report_loss=lambda _hold, *, reason: told.append(reason))
    since = time.monotonic() - age_seconds
    return Hold(lock, ttl_ms=ttl_ms, since=since, max_hold_ms=max_hold_ms), told


def test_it_is_renewed_at_a_third_and_ends_a_little_early() -> None:
    hold, _ = a_hold()
    assert round(hold.renew_at - hold.since, 3) == 3.333
    assert round(hold.deadline - hold.since, 3) == 9.898


def test_a_lengthened_one_is_renewed_when_a_normal_life_is_left_by_two_thirds() -> None:
    hold, _ = a_hold()
    assert hold.renewed(since=hold.since, life_ms=60_000)
    assert round(hold.renew_at - hold.since, 3) == 53.333


def test_after_its_end_no_renewal_counts() -> None:
    hold, told = a_hold()
    assert hold.end()
    assert not hold.renewed(since=time.monotonic(), life_ms=10_000)
    assert not hold.is_valid()
    hold.lose(reason="late")
    assert told == []


def test_a_loss_is_told_once() -> None:
    hold, told = a_hold()
    hold.lose(reason="gone")
    hold.lose(reason="again")
    assert told == ["gone"]
    assert not hold.end()


def test_it_knows_why_it_must_not_be_renewed() -> None:
    assert a_hold()[0].loss_reason() == ""
    assert a_hold(age_seconds=11)[0].loss_reason() == "not renewed in time"
    assert a_hold(age_seconds=5, max_hold_ms=4000)[0].loss_reason() == "held longer than max_hold_ms"


def test_the_longest_hold_counts_from_the_last_call_of_the_holder() -> None:
    """The control is a renewal by the watchdog, which moves nothing: a stuck holder must end."""
    hold, _ = a_hold(max_hold_ms=20_000)
    now = hold.since
    assert hold.renewed(since=now + 5, life_ms=10_000)
    assert hold.ends_by == now + 20
    assert hold.renewed(since=now + 5, life_ms=10_000, by_holder=True)
    assert hold.ends_by == now + 25
    assert hold.renewed(since=now + 5, life_ms=60_000, by_holder=True)
    assert hold.ends_by == now + 65


@pytest.mark.parametrize("has_time_left", [True, False])
def test_the_key_of_a_hold_that_is_over_is_given_back_when_it_may_be_there(has_time_left: bool) -> None:
    hold, told = a_hold(age_seconds=5 if has_time_left else 11, max_hold_ms=4000)
    given_back: list[Hold] = []
    hold.lock.give_back = given_back.append  # type: ignore[method-assign]
    assert hold.lose_if_over()
    assert given_back == ([hold] if has_time_left else [])
    assert len(told) == 1
    assert not a_hold()[0].lose_if_over()


def test_an_owners_name_can_be_read() -> None:
    owner = owner_of(new_token())
    assert owner
    assert (owner.process_id, owner.thread_id) == (os.getpid(), threading.get_ident())
    assert abs(owner.since_unix_seconds - time.time()) < 5
    assert [owner_of(text) for text in ("g:abc", "", "a|b|c|d|e")] == [None] * 3
