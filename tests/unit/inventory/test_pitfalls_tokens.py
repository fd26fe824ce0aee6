"""Pitfalls that need no server: a token never repeats, and a renewal that failed is soon tried again.
The numbers are those of docs/failure-cases.md.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

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


def test_a_failed_renewal_is_tried_again_many_times_before_the_end() -> None:
    """L4."""
    lock = SimpleNamespace(name="kite", token="t", report_loss=lambda _hold, *, reason: None)
    hold = Hold(lock, ttl_ms=9000, since=time.monotonic(), max_hold_ms=None)  # type: ignore[arg-type]
    before = time.monotonic()
    hold.postpone()
    after = time.monotonic()
    assert before + 0.9 <= hold.renew_at <= after + 0.9
    tries = int((hold.deadline - (hold.since + 3)) / (hold.renew_at - before))
    assert tries >= 5
