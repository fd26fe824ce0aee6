"""Pitfalls that need no server: tokens and waits never repeat, and a renewal that failed is soon tried again.
The numbers are those of docs/failure-cases.md.
"""

from __future__ import annotations

import os
import random
import time
from types import SimpleNamespace

import pytest

from inventory.locks import lock, redlock
from inventory.locks import token as lock_owner
from inventory.locks.lease import Hold


def test_two_containers_in_the_same_nanosecond_have_two_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """L9. Same host name, process 1, same thread id, same time. The control is the readable part: that is the same."""
    monkeypatch.setattr(lock_owner, "os", SimpleNamespace(getpid=lambda: 1))
    monkeypatch.setattr(lock_owner, "threading", SimpleNamespace(get_ident=lambda: 7))
    monkeypatch.setattr(lock_owner, "time", SimpleNamespace(time_ns=lambda: 1_700_000_000_000_000_000))
    tokens = [lock_owner.new_token() for _ in range(1000)]
    (readable,) = {token.rpartition("|")[0] for token in tokens}
    assert readable.endswith("|1|7|1700000000000000000")
    assert len(set(tokens)) == len(tokens)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("dice", "differ"),
    [(lock.DICE, True), (redlock.DICE, True), (random.Random(), False)],
    ids=["lock", "redlock", "control"],
)
def test_forked_siblings_do_not_wait_for_the_same_time(dice: random.Random, differ: bool) -> None:
    """Or they would ask again in the same instants, and split the votes for ever. The control is not seeded again."""
    assert (len({drawn_by_a_child(dice) for _ in range(2)}) == 2) is differ


def drawn_by_a_child(dice: random.Random) -> str:
    """Fork a child; return what it draws first."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, str(dice.random()).encode())
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with open(ours) as told:
        return told.read()


def test_a_failed_renewal_is_tried_again_many_times_before_the_end() -> None:
    """L4."""
    held = SimpleNamespace(name="kite", token="t", report_loss=lambda _hold, *, reason: None)
    hold = Hold(held, ttl_ms=9000, since=time.monotonic(), max_hold_ms=None)  # type: ignore[arg-type]
    before = time.monotonic()
    hold.postpone()
    after = time.monotonic()
    assert before + 0.9 <= hold.renew_at <= after + 0.9
    tries = int((hold.deadline - (hold.since + 3)) / (hold.renew_at - before))
    assert tries >= 5
