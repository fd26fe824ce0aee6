"""Proves that a renewal or a release that is late on its way brings no lock back and ends nobody else's hold (L5, S3).
Each guard has its control.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from inventory import redis
from inventory.locks.lock import Lock
from inventory.locks.report import LockReport, report_locks
from inventory.redis import keys
from loadtest.mutants.layers import run_instead
from tests.support.crashes.lossy_road import Road
from tests.support.renewals import renew_until
from tests.support.servers.proxy import Rule
from tests.support.waiting import wait_until

# Long enough for a machine that stands still between a renewal and what the test does then. The shorter life, of which
# a test waits for one and a half, is long enough as well: what happens within it is renewed at once.
TTL_MS, SHORT_TTL_MS = 60_000, 15_000
LONG_MS = 180_000
# What a renewal must not be: it takes the lock when it is not there.
TAKING = "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return tonumber(ARGV[2])"


def a_lock(road: Road, *, ttl_ms: int = TTL_MS) -> Lock:
    """Return one more candidate for the road's name; it speaks through the proxy."""
    return Lock(road.client, road.card.sku, ttl_ms=ttl_ms)


def seen(road: Road) -> LockReport:
    """Return who has the road's lock."""
    return report_locks(road.client, [road.card.sku])[0]


def caught_renewal(road: Road, lock: Lock, how: Callable[..., Rule]) -> Rule:
    """Take `lock`, and return when its renewal is caught on its way."""
    assert lock.acquire()
    rule = how(lock.token.encode())
    renew_until(lambda: rule.met, lock=lock, what="a renewal is under way")
    return rule


def let_arrive(road: Road, rule: Rule) -> None:
    """Let what was held go on, and return when the server has run it."""
    before = road.proxy.forwarded
    rule.let_go()
    wait_until(lambda: road.proxy.forwarded > before, what="it was let go on")
    road.client.ping()  # behind it: through the same proxy, to the same server


def test_a_renewal_whose_answer_comes_after_the_release_counts_no_more(road: Road) -> None:
    lock, heir = a_lock(road, ttl_ms=SHORT_TTL_MS), a_lock(road, ttl_ms=LONG_MS)
    rule = caught_renewal(road, lock, road.proxy.hold_replies)
    assert lock.release()
    assert heir.acquire()
    rule.let_go()
    # Its next renewal would be due by now, if it were still renewed.
    wait_until(lambda: seen(road).left_ms < LONG_MS - 1.5 * SHORT_TTL_MS)
    assert (lock.is_valid(), lock.lost.is_set()) == (False, False)
    assert seen(road).token == heir.token
    assert heir.release()


def test_a_renewal_that_arrives_after_the_release_makes_nothing_anew(road: Road) -> None:
    lock = a_lock(road)
    rule = caught_renewal(road, lock, road.proxy.hold_requests)
    assert lock.release()
    let_arrive(road, rule)
    assert seen(road).state == "free"
    assert (lock.is_valid(), lock.lost.is_set()) == (False, False)


def test_a_renewal_that_arrives_at_the_heir_changes_nothing(road: Road) -> None:
    lock, heir = a_lock(road), a_lock(road, ttl_ms=LONG_MS)
    rule = caught_renewal(road, lock, road.proxy.hold_requests)
    assert lock.release()
    assert heir.acquire()
    let_arrive(road, rule)
    report = seen(road)
    assert (report.token, report.fence) == (heir.token, heir.fence)
    assert report.left_ms > LONG_MS / 2
    assert heir.release()


def test_a_renewal_that_may_take_the_lock_brings_it_back(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same run with a renewal that sets the key (L8)."""
    run_instead("extend", TAKING, patch=monkeypatch.setattr)
    lock = a_lock(road)
    rule = caught_renewal(road, lock, road.proxy.hold_requests)
    assert lock.release()
    rule.let_go()
    wait_until(lambda: seen(road).token == lock.token, what="a ghost holds the lock")
    assert not a_lock(road).acquire()


def test_a_lengthening_under_way_does_not_outlive_the_release(road: Road) -> None:
    # Its reply comes late: no client gives it up before that.
    lock = Lock(redis.connect(timeout_seconds=60), road.card.sku, ttl_ms=LONG_MS)
    assert lock.acquire()
    rule = road.proxy.hold_replies(lock.token.encode())
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(lock.extend, 2 * LONG_MS)
        wait_until(lambda: rule.met, what="the lengthening is under way")
        assert lock.release()
        rule.let_go()
        assert result.result(timeout=120) is False
    assert (seen(road).state, lock.is_valid()) == ("free", False)


# --- a release that is late -----------------------------------------------------------------------------------------


def test_a_late_release_in_two_steps_ends_the_hold_of_another(road: Road) -> None:
    """The control: GET says it is ours, the process pauses, DEL takes it from the one that has it by then (S3)."""
    key, heir = keys.lock(road.card.sku), a_lock(road, ttl_ms=LONG_MS)
    assert road.client.set(key, "careless", nx=True, px=600_000)
    rule = road.proxy.hold_requests(b"\r\nDEL\r\n")

    def release_in_two_steps() -> None:
        if road.client.get(key) == "careless":
            road.client.delete(key)

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(release_in_two_steps)
        wait_until(lambda: rule.met, what="it pauses between its two steps")
        assert road.client.pexpire(key, 1)
        assert heir.acquire(timeout_seconds=60)
        rule.let_go()
        result.exception(timeout=120)
    wait_until(lambda: seen(road).state == "free", what="the heir was robbed")
    assert not heir.is_locking(remote=True)


def test_our_release_is_one_step_however_late_it_comes(road: Road) -> None:
    lock, heir = a_lock(road, ttl_ms=LONG_MS), a_lock(road, ttl_ms=LONG_MS)
    assert lock.acquire()
    rule = road.proxy.hold_requests(lock.token.encode(), times=2)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(lock.release)
        wait_until(lambda: rule.met, what="the release is under way")
        assert road.client.pexpire(keys.lock(road.card.sku), 1)
        assert heir.acquire(timeout_seconds=60)
        rule.let_go()
        result.exception(timeout=120)  # it may be told too late that the lock had ended
    assert heir.is_locking(remote=True)
    assert (seen(road).token, seen(road).fence) == (heir.token, heir.fence)
    assert heir.release()
