"""One holder at a time, a fence that only rises, a hold that outlives its TTL and notices when it is lost.
Every test has a name of its own, and runs on every kind of Redis.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier

import pytest

from inventory import redis
from inventory.exceptions import InvalidRequest, LockLost, Unavailable
from inventory.locks.lock import WATCHDOG, Lock
from inventory.redis import keys
from tests.support.road import run
from tests.support.servers.server_matrix import ON_ONE_KIND
from tests.support.waiting import assert_waits_at_most, seconds_of, wait_until

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")


@pytest.fixture
def make_lock(each_server: str, new_sku: Callable[[], str]) -> Iterator[Callable[..., Lock]]:
    """Return a function that makes one more candidate for the same name; all are given back at the end."""
    name = new_sku()
    with ExitStack() as stack:

        def make(*, ttl_ms: int = 60_000) -> Lock:
            lock = Lock(redis.connect(), name, ttl_ms=ttl_ms)
            stack.callback(lock.release)
            return lock

        yield make


def holder(lock: Lock) -> str | None:
    """Return the token that holds the name of `lock`."""
    return run(("GET", keys.lock(lock.name)))[0]


def asked_again(lock: Lock) -> int:
    """Send the call that takes the lock once more, as after a lost reply; return the fence it was given."""
    taken, fence, _ = lock._ask(wait_ms=0, nonce="")
    assert taken
    return int(fence)


def test_a_lock_has_one_holder(make_lock: Callable[..., Lock]) -> None:
    ann, bob = make_lock(), make_lock()
    assert (ann.acquire(), bob.acquire()) == (True, False)
    assert ann.release()
    assert bob.acquire()


def test_of_many_who_try_at_once_one_gets_it(make_lock: Callable[..., Lock]) -> None:
    barrier, locks = Barrier(12), [make_lock() for _ in range(12)]

    def try_it(lock: Lock) -> bool:
        barrier.wait(timeout=120)
        return lock.acquire()

    with ThreadPoolExecutor(12) as pool:
        assert sorted(pool.map(try_it, locks)) == [False] * 11 + [True]


def test_who_waits_gets_it_when_it_is_free(make_lock: Callable[..., Lock]) -> None:
    ann, bob = make_lock(), make_lock()
    assert ann.acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bob.acquire, timeout_seconds=60)
        wait_until(lambda: waiting.running())
        assert ann.release()
        assert waiting.result(timeout=120)
    assert bob.fence > ann.fence


def test_who_waits_gives_up_in_time(make_lock: Callable[..., Lock]) -> None:
    ann, bob, given = make_lock(), make_lock(), list[bool]()
    assert ann.acquire()

    def seconds() -> float:
        took = seconds_of(lambda: given.append(bob.acquire(timeout_seconds=0.25)))
        assert took >= 0.25
        return took

    assert_waits_at_most(2, seconds)
    assert set(given) == {False}


def test_asking_again_with_the_same_token_is_success_with_the_same_fence(make_lock: Callable[..., Lock]) -> None:
    lock = make_lock()
    assert lock.acquire()
    assert asked_again(lock) == lock.fence


def test_the_fence_rises_with_every_holder(make_lock: Callable[..., Lock]) -> None:
    fences = []
    for _ in range(4):
        lock = make_lock()
        assert lock.acquire()
        fences.append(lock.fence)
        lock.release()
    assert fences == sorted(set(fences))


def test_the_fence_rises_also_after_its_key_was_lost(make_lock: Callable[..., Lock]) -> None:
    before, after = make_lock(), make_lock()
    assert before.acquire()
    before.release()
    run(("DEL", keys.fence(before.name)))
    assert after.acquire()
    assert after.fence > before.fence


def test_the_fence_rises_also_when_the_clock_stands_behind_it(make_lock: Callable[..., Lock]) -> None:
    lock, far_ahead = make_lock(), 4 * 10**15
    run(("SET", keys.fence(lock.name), far_ahead))
    assert lock.acquire()
    assert lock.fence == far_ahead + 1


def test_a_holder_who_asks_again_after_the_fence_was_lost_gets_a_higher_one(make_lock: Callable[..., Lock]) -> None:
    lock = make_lock()
    assert lock.acquire()
    run(("DEL", keys.fence(lock.name)))
    assert asked_again(lock) > lock.fence


def test_only_the_owner_ends_a_hold(make_lock: Callable[..., Lock]) -> None:
    ann, bob = make_lock(), make_lock()
    assert ann.acquire()
    assert not bob.release()
    assert holder(ann) == ann.token
    assert ann.release()
    assert holder(ann) is None


def test_giving_back_twice_is_harmless(make_lock: Callable[..., Lock]) -> None:
    lock = make_lock()
    assert lock.acquire()
    assert [lock.release(), lock.release()] == [True, False]


def test_after_giving_back_the_lock_no_longer_counts_as_ours(make_lock: Callable[..., Lock]) -> None:
    lock = make_lock()
    assert lock.acquire()
    lock.check()
    lock.release()
    with pytest.raises(LockLost):
        lock.check()


def test_a_lock_that_nobody_renews_ends_by_itself(make_lock: Callable[..., Lock]) -> None:
    """The control of the next test: without its watchdog a hold is over after its TTL."""
    ann, bob = make_lock(ttl_ms=500), make_lock()
    wait_until(ann.acquire)
    if ann.hold:  # on a machine that stood still it may be over already
        WATCHDOG.remove(ann.hold)
    wait_until(bob.acquire)
    with pytest.raises(LockLost):
        ann.check()


def test_the_watchdog_keeps_a_lock_beyond_its_ttl(make_lock: Callable[..., Lock]) -> None:
    # The longer lives are for a machine that stands still for longer than the first one.
    assert any(outlives_its_ttl(make_lock, ttl_ms=ttl_ms) for ttl_ms in (1500, 6000, 30_000))


def outlives_its_ttl(make_lock: Callable[..., Lock], *, ttl_ms: int) -> bool:
    """Hold a lock for twice its life, and say whether nobody else could have it."""
    ann, bob = make_lock(ttl_ms=ttl_ms), make_lock()
    wait_until(ann.acquire)
    ends = time.monotonic() + 2 * ttl_ms / 1000
    taken = wait_until(lambda: bob.acquire() or (time.monotonic() > ends and "nobody"))
    kept = taken == "nobody" and ann.is_locking(remote=True)
    ann.release()
    bob.release()
    return kept


def test_renewal_never_makes_a_lock_anew(make_lock: Callable[..., Lock]) -> None:
    lock = make_lock()
    assert lock.acquire()
    run(("DEL", keys.lock(lock.name)))
    assert lock.hold
    WATCHDOG.renew([lock.hold])
    assert holder(lock) is None
    assert lock.lost.is_set()


def test_a_lock_taken_away_is_noticed_and_left_to_its_new_holder(make_lock: Callable[..., Lock]) -> None:
    ann, bob = make_lock(ttl_ms=1000), make_lock(ttl_ms=60_000)
    wait_until(ann.acquire)
    run(("DEL", keys.lock(ann.name)))
    assert bob.acquire()
    assert ann.lost.wait(timeout=120)
    with pytest.raises(LockLost):
        ann.check()
    assert not ann.release()
    assert holder(bob) == bob.token


def test_a_block_is_not_entered_without_the_lock(make_lock: Callable[..., Lock]) -> None:
    entered = []
    with make_lock(), pytest.raises(Unavailable, match="locked by another worker"), make_lock():
        entered.append(True)
    assert entered == []


def test_a_block_that_fails_gives_its_lock_back(make_lock: Callable[..., Lock]) -> None:
    lock = make_lock()
    with pytest.raises(RuntimeError, match="inside"), lock:
        raise RuntimeError("inside")
    assert holder(lock) is None


def test_tokens_name_their_owner_and_never_repeat(make_lock: Callable[..., Lock]) -> None:
    tokens = {make_lock().token for _ in range(50)}
    assert len(tokens) == 50
    assert {len(token.split("|")) for token in tokens} == {5}


@ON_ONE_KIND  # no server is asked
@pytest.mark.parametrize(("name", "ttl_ms"), [("Not A Sku", 5000), ("a}b", 5000), ("", 5000), ("kite", 99)])
def test_a_lock_without_sense_is_refused(name: str, ttl_ms: int) -> None:
    with pytest.raises(InvalidRequest):
        Lock(redis.connect(), name, ttl_ms=ttl_ms)


def test_a_negative_wait_is_refused(make_lock: Callable[..., Lock]) -> None:
    with pytest.raises(InvalidRequest, match="timeout_seconds must be at least 0"):
        make_lock().acquire(timeout_seconds=-1)
