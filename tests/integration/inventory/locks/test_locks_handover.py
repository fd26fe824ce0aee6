"""A lock given back goes to the one that waited longest; a waiter that died or gave up holds nobody up for long.
Each guard has its control. Runs on every kind of Redis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest

from inventory import redis
from inventory.exceptions import LockLost
from inventory.line import writing
from inventory.locks.lock import GRANT_TTL_MS, Lock, force_release
from inventory.redis import keys
from tests.support.lock_waiters import blocked_clients, note_for_long
from tests.support.renewals import renew_now
from tests.support.road import run
from tests.support.waiting import assert_waits_at_most, seconds_of, wait_until

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")


@pytest.fixture
def patient_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody lose the turn that was granted because the machine stood still for a moment."""
    monkeypatch.setattr("inventory.locks.lock.GRANT_TTL_MS", 60_000)


def waiting(name: str) -> list[str]:
    """Return the tokens of those who wait."""
    return run(("ZRANGE", keys.lock_waiters(name), 0, -1))[0]


def line_up(name: str, count: int, *, fair: bool, entered: list[int]) -> list[Thread]:
    """Let `count` threads wait one after another; each notes its number while it holds the lock."""

    def take_turn(number: int) -> None:
        lock = Lock(redis.connect(), name, ttl_ms=60_000, fair=fair)
        note_for_long(lock)
        assert lock.acquire(timeout_seconds=60)
        entered.append(number)
        assert lock.release()

    threads = []
    for number in range(count):
        threads.append(Thread(target=take_turn, args=[number]))
        threads[-1].start()
        wait_until(lambda: len(waiting(name)) == len(threads))
        blocked = f"{len(threads)} blocked"
        wait_until(lambda: blocked_clients() >= len(threads), what=blocked)
    return threads


def test_waiters_get_it_in_the_order_they_came(new_sku: Callable[[], str], patient_grants: None) -> None:
    name, entered = new_sku(), list[int]()
    holder = Lock(redis.connect(), name, ttl_ms=60_000)
    assert holder.acquire()
    threads = line_up(name, 6, fair=True, entered=entered)
    assert holder.release()
    for thread in threads:
        thread.join(timeout=120)
    assert entered == list(range(6))


@pytest.mark.parametrize(("fair", "pushed_in"), [(False, True), (True, False)])
def test_nobody_pushes_in_when_it_is_fair(
    new_sku: Callable[[], str], patient_grants: None, fair: bool, pushed_in: bool
) -> None:
    """The control is the unfair lock: anyone who asks right after a release gets in before the one that waits."""
    name = new_sku()
    holder, newcomer = (Lock(redis.connect(), name, ttl_ms=60_000, fair=fair) for _ in range(2))
    assert holder.acquire()
    # A waiter that is noted, and slow to fetch its turn.
    slow = ["slow waiter", 60_000, 60_000, 60_000, ""]
    redis.run_script(redis.connect(), "acquire", keys=lock_keys(name), args=slow)
    assert holder.release()
    assert newcomer.acquire() is pushed_in
    newcomer.release()


def lock_keys(name: str) -> list[str]:
    """Return the keys of the acquire script."""
    return [keys.lock(name), keys.fence(name), keys.lock_signals(name), keys.lock_waiters(name)]


def test_a_waiter_that_died_holds_others_up_for_the_grant_only(new_sku: Callable[[], str]) -> None:
    assert_waits_at_most(GRANT_TTL_MS / 1000 + 0.5, lambda: seconds_behind_the_dead(new_sku()))


def seconds_behind_the_dead(name: str) -> float:
    """Return how long somebody waits for a lock that was given to a waiter who has died."""
    holder, heir = (Lock(redis.connect(), name, ttl_ms=60_000) for _ in range(2))
    assert holder.acquire()
    redis.run_script(redis.connect(), "acquire", keys=lock_keys(name), args=["dead", 60_000, 60_000, 60_000, ""])
    assert holder.release()
    was_woken = bool(run(("LPOP", keys.lock_signals(name)))[0])  # and it dies
    took = seconds_of(lambda: heir.acquire(timeout_seconds=60))
    assert heir.release()
    return took if was_woken else math.inf  # the grant was over before we looked


def test_a_granted_lock_is_held_by_nobody(new_sku: Callable[[], str], patient_grants: None) -> None:
    name = new_sku()
    holder = Lock(redis.connect(), name, ttl_ms=60_000)
    assert holder.acquire()
    redis.run_script(redis.connect(), "acquire", keys=lock_keys(name), args=["waiter", 60_000, 60_000, 60_000, ""])
    assert holder.release()
    granted = run(("GET", keys.lock(name)))[0]
    assert granted.startswith("g:")
    for token in (holder.token, "waiter"):
        with pytest.raises(LockLost):
            writing.take(redis.connect(), name, token=token, call=1, batch=1)
    assert not holder.is_locking(remote=True)


def test_who_gives_up_is_no_longer_noted(new_sku: Callable[[], str]) -> None:
    name = new_sku()
    holder, impatient = (Lock(redis.connect(), name, ttl_ms=60_000) for _ in range(2))
    assert holder.acquire()
    assert not impatient.acquire(timeout_seconds=0.1)
    assert waiting(name) == []
    assert holder.release()
    assert run(("GET", keys.lock(name)))[0] is None


def test_a_lost_signal_costs_no_more_than_the_grant(new_sku: Callable[[], str]) -> None:
    assert_waits_at_most(1.5, lambda: seconds_without_a_signal(new_sku()))


def seconds_without_a_signal(name: str) -> float:
    """Return how long a waiter goes on waiting for a lock that ended without a word to anyone."""
    holder, waiter = (Lock(redis.connect(), name, ttl_ms=60_000) for _ in range(2))
    assert holder.acquire()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(waiter.acquire, timeout_seconds=60)
        wait_until(lambda: waiting(name))
        run(("DEL", keys.lock(name)))
        took = seconds_of(lambda: result.result(timeout=120))
    assert waiter.release()
    return took


def test_an_operator_takes_a_lock_away_and_the_waiter_gets_it(new_sku: Callable[[], str]) -> None:
    name = new_sku()
    holder, waiter = (Lock(redis.connect(), name, ttl_ms=60_000) for _ in range(2))
    assert holder.acquire()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(waiter.acquire, timeout_seconds=60)
        wait_until(lambda: waiting(name))
        fence = force_release(redis.connect(), name)
        assert result.result(timeout=120)
    assert holder.fence < fence < waiter.fence
    renew_now(holder)
    assert holder.lost.wait(timeout=120)
    waiter.release()


def test_who_was_not_named_keeps_the_lock(new_sku: Callable[[], str]) -> None:
    name = new_sku()
    holder = Lock(redis.connect(), name, ttl_ms=60_000)
    assert holder.acquire()
    assert force_release(redis.connect(), name, token="of the holder before") == 0
    assert holder.is_locking(remote=True)
    assert run(("GET", keys.fence(name))) == [str(holder.fence)]
    # The control: the same call with the token of the holder.
    assert force_release(redis.connect(), name, token=holder.token) > holder.fence
    assert not holder.is_locking(remote=True)


def test_a_release_in_two_steps_steals_and_ours_does_not(new_sku: Callable[[], str]) -> None:
    """The control: GET, then DEL, ends the hold of anyone who came between (S3)."""
    name = new_sku()
    late, heir = (Lock(redis.connect(), name, ttl_ms=60_000) for _ in range(2))
    assert late.acquire()
    seen = run(("GET", keys.lock(name)))[0]
    run(("DEL", keys.lock(name)))  # its life ends between the two steps
    assert heir.acquire()
    assert not redis.run_script(redis.connect(), "extend", keys=lock_keys(name)[:1], args=[late.token, 0, "look"])
    late.release()
    assert run(("GET", keys.lock(name)))[0] == heir.token
    assert seen == late.token
    run(("DEL", keys.lock(name)))  # the second step of the careless one
    assert not heir.is_locking(remote=True)


def test_a_lock_without_a_life_is_taken_over(new_sku: Callable[[], str]) -> None:
    name = new_sku()
    run(("SET", keys.lock(name), "an orphan"))
    with Lock(redis.connect(), name, ttl_ms=60_000) as lock:
        assert lock.is_locking(remote=True)
