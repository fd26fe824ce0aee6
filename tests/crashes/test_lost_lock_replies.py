"""Proves that a lock survives lost replies without a ghost, a second life or a second theft.
Each guard has its control.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from secrets import token_hex

import pytest

from inventory import redis
from inventory.exceptions import LockLost, RedisUnavailable
from inventory.locks import named
from inventory.locks.lock import Lock, force_release
from inventory.locks.report import report_locks
from inventory.redis import keys
from tests.support.crashes.lossy_road import Road
from tests.support.road import LOCK_TTL_MS
from tests.support.servers.proxy import Rule
from tests.support.waiting import assert_waits_at_most, seconds_of, wait_until

# How long a socket may be silent; two connections may be tried in turn.
SILENCE_SECONDS = 1.0
TOLD_SECONDS = 2 * SILENCE_SECONDS + 1.5
LONGER_MS = 90_000


def a_lock(road: Road, *, ttl_ms: int = LOCK_TTL_MS) -> Lock:
    """Return one more candidate for the road's name; it speaks through the proxy."""
    return Lock(road.client, road.card.sku, ttl_ms=ttl_ms)


def lose_next(road: Road, lock: Lock, *, times: int = 1) -> Rule:
    """Lose the reply to the next call of `lock`, whatever script it runs; others go on undisturbed."""
    return road.proxy.drop_replies(lock.token.encode(), times=times)


def lose_next_about(road: Road, key: str) -> Rule:
    """Lose the reply to the next call about `key`, no matter who sends it."""
    return road.proxy.drop_replies(f"{key}\r\n".encode())


def holder(road: Road) -> str | None:
    """Return the token that holds the road's lock."""
    (report,) = report_locks(road.client, [road.card.sku])
    return report.token


def left_ms(road: Road) -> int:
    """Return how long the road's lock lives."""
    (report,) = report_locks(road.client, [road.card.sku])
    return report.left_ms


# --- acquire --------------------------------------------------------------------------------------------------------


def test_a_plain_set_nx_locks_its_caller_out(road: Road) -> None:
    """The control: sent again after a lost reply, SET NX finds its own ghost and says no (L1)."""
    key = keys.lock(road.card.sku)
    rule = lose_next_about(road, key)
    assert road.client.set(key, "me", nx=True, px=60_000) is None
    assert (rule.dropped, road.client.get(key)) == (1, "me")
    road.client.delete(key)


def test_acquire(road: Road) -> None:
    lock = a_lock(road)
    rule = lose_next(road, lock)
    assert lock.acquire()
    assert rule.dropped == 1
    (report,) = report_locks(road.client, [road.card.sku])
    assert (report.token, report.fence) == (lock.token, lock.fence)
    assert lock.release()


def test_acquire_after_every_try_was_lost(road: Road) -> None:
    """The caller is told, and the next call finds the lock that the lost ones took: one hold, one fence."""
    lock = a_lock(road)
    rule = lose_next(road, lock, times=10)
    with pytest.raises(RedisUnavailable):
        lock.acquire()
    assert rule.dropped >= 1
    rule.let_go()
    (before,) = report_locks(road.client, [road.card.sku])
    assert lock.acquire()
    assert (before.token, before.fence) == (lock.token, lock.fence)
    assert lock.release()
    assert holder(road) is None


def test_a_grant_whose_reply_is_lost_is_fetched_once(road: Road) -> None:
    first, waiter = a_lock(road), a_lock(road)
    assert first.acquire()
    rule = road.proxy.drop_replies(b"BLPOP")
    with waiting(road, waiter) as result:
        wait_until(lambda: rule.met, what="the waiter waits for a signal")
        assert first.release()
        assert result()
    assert rule.dropped == 1
    assert (holder(road), waiter.is_locking(remote=True)) == (waiter.token, True)
    assert waiter.fence > first.fence
    assert waiter.release()


# --- release --------------------------------------------------------------------------------------------------------


def test_release(road: Road) -> None:
    lock, heir = a_lock(road), a_lock(road)
    assert lock.acquire()
    rule = lose_next(road, lock)
    assert lock.release()
    assert (rule.dropped, holder(road)) == (1, None)
    assert heir.acquire()
    assert heir.fence > lock.fence
    assert heir.release()


def test_a_release_sent_twice_hands_on_once(road: Road) -> None:
    first, waiters = a_lock(road), [a_lock(road) for _ in range(2)]
    assert first.acquire()
    with waiting(road, waiters[0]) as one, waiting(road, waiters[1]) as other:
        rule = lose_next(road, first)
        assert first.release()
        assert rule.dropped == 1
        wait_until(lambda: any(each.is_valid() for each in waiters), what="one of them has it")
        (entered,) = [each for each in waiters if each.is_valid()]
        assert holder(road) == entered.token  # and not both, although the release arrived twice
        assert entered.release()
        assert one()
        assert other()
    for each in waiters:
        each.release()
    assert len({first.fence, *(each.fence for each in waiters)}) == 3


def test_an_unlock_without_an_answer_can_be_repeated(road: Road) -> None:
    name = road.card.sku
    lock_id = named.lock(name, expire=600)
    assert lock_id
    rule = road.proxy.refuse_requests(lock_id.encode())
    with pytest.raises(RedisUnavailable):
        named.unlock(name, lock_id)
    rule.let_go()
    assert (rule.met > 0, holder(road)) == (True, lock_id)
    assert [named.unlock(name, lock_id), named.unlock(name, lock_id)] == [True, False]
    assert holder(road) is None


@contextmanager
def waiting(road: Road, lock: Lock) -> Iterator[Callable[[], bool]]:
    """Let `lock` wait in a thread for the length of a block; give what returns whether it got in."""
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(lock.acquire, timeout_seconds=120)
        wait_until(lambda: lock.token in waiters(road), what="it waits")
        yield lambda: result.result(timeout=120)


def waiters(road: Road) -> tuple[str, ...]:
    """Return the tokens of those who wait for the road's lock."""
    (report,) = report_locks(road.client, [road.card.sku])
    return report.waiters


# --- extend ---------------------------------------------------------------------------------------------------------


def test_extend_by_setting(road: Road) -> None:
    with a_lock(road) as lock:
        rule = lose_next(road, lock)
        told(lambda: lock.extend(LONGER_MS))
        assert rule.dropped == 1
        assert LOCK_TTL_MS < left_ms(road) <= LONGER_MS
        assert lock.extend(LONGER_MS)
        assert lock.is_locking(remote=True)


def test_extend_by_adding(road: Road) -> None:
    with a_lock(road) as lock:
        rule = lose_next(road, lock)
        told(lambda: lock.extend(LONGER_MS, mode="add"))
        assert rule.dropped == 1
        assert LOCK_TTL_MS < left_ms(road) <= LONGER_MS + LOCK_TTL_MS  # once, not twice
        assert lock.is_locking(remote=True)


def test_a_shorter_life_whose_answer_is_lost_is_counted(road: Road) -> None:
    """Redis gives the lock to another then. The control is test_extend_by_setting: a longer life takes nothing away."""
    lock, heir = a_lock(road, ttl_ms=600_000), a_lock(road)
    assert lock.acquire()
    rule = lose_next(road, lock)
    with pytest.raises(RedisUnavailable):
        lock.extend(1000)
    assert rule.dropped == 1
    assert heir.acquire(timeout_seconds=60)
    with pytest.raises(LockLost):
        lock.check()
    assert heir.release()


def told(call: Callable[[], bool]) -> None:
    """Fail unless `call` succeeds or says plainly that it has no answer."""
    try:
        assert call()
    except RedisUnavailable:
        return


def test_time_is_added_twice_by_a_client_that_sends_again(road: Road) -> None:
    """The control: the same script through the client that repeats."""
    with a_lock(road) as lock:
        rule = lose_next(road, lock)
        script_keys = [keys.lock(lock.name)]
        redis.run_script(road.client, "extend", keys=script_keys, args=[lock.token, LONGER_MS, "add"])
        assert rule.dropped == 1
        assert left_ms(road) > LONGER_MS + LOCK_TTL_MS


# --- force_release --------------------------------------------------------------------------------------------------


def test_force_release_whose_reply_is_lost_robs_nobody_later(road: Road) -> None:
    old, heir = a_lock(road), a_lock(road)
    assert old.acquire()
    rule = lose_next_about(road, keys.lock(road.card.sku))
    with pytest.raises(RedisUnavailable):
        force_release(road.client, road.card.sku)
    assert (rule.dropped, holder(road)) == (1, None)
    assert heir.acquire()
    assert heir.fence > old.fence
    assert heir.is_locking(remote=True)
    assert not old.is_locking(remote=True)
    assert heir.release()


def test_a_force_sent_again_would_rob_the_heir(road: Road) -> None:
    """The control: this is why it is sent once."""
    lock_keys = [keys.lock(road.card.sku), keys.fence(road.card.sku)]
    lock_keys += [keys.lock_signals(road.card.sku), keys.lock_waiters(road.card.sku)]
    args, heir = [60_000, 1000, token_hex(8), ""], a_lock(road)
    redis.run_script(road.client, "force", keys=lock_keys, args=args)
    assert heir.acquire()
    redis.run_script(road.client, "force", keys=lock_keys, args=args)
    assert not heir.is_locking(remote=True)


# --- delays, resets, silence ----------------------------------------------------------------------------------------


def test_delays_and_resets_are_survived(road: Road) -> None:
    lock = a_lock(road)
    road.proxy.delay_seconds = 0.02
    assert lock.acquire()
    road.proxy.reset_all()
    assert lock.is_locking(remote=True)
    road.proxy.reset_all()
    assert lock.extend(20_000)
    road.proxy.reset_all()
    assert lock.release()
    assert holder(road) is None


def test_a_wait_survives_resets(road: Road) -> None:
    first, waiter = a_lock(road), a_lock(road)
    assert first.acquire()
    with waiting(road, waiter) as result:
        for _ in range(3):
            road.proxy.reset_all()
        assert first.release()
        assert result()
    assert holder(road) == waiter.token
    assert waiter.release()


@pytest.mark.parametrize("call", ["acquire", "wait", "extend", "is_locking", "release", "force_release"])
def test_silence_is_told_in_time(road: Road, call: str) -> None:
    assert_waits_at_most(TOLD_SECONDS, lambda: seconds_in_silence(road, call))


def seconds_in_silence(road: Road, call: str) -> float:
    """Take the lock, call in a silence that nobody survives but by its timeout, and return how long it took."""
    client = redis.connect(timeout_seconds=SILENCE_SECONDS)
    lock, other = (Lock(client, road.card.sku, ttl_ms=60_000) for _ in range(2))
    calls: dict[str, Callable[[], object]] = {
        "acquire": other.acquire,
        "wait": lambda: other.acquire(timeout_seconds=0.5),
        "extend": lambda: lock.extend(60_000),
        "is_locking": lambda: lock.is_locking(remote=True),
        "release": lock.release,
        "force_release": lambda: force_release(client, lock.name),
    }

    def ask() -> None:
        with pytest.raises(RedisUnavailable):
            calls[call]()

    assert until_heard(lambda: lock.acquire(timeout_seconds=60))
    road.proxy.black_hole = True
    took = seconds_of(ask)
    road.proxy.black_hole = False
    # What was swallowed arrives now, and may have given the lock back before we do.
    assert until_heard(lock.release) is not False or call in ("release", "force_release")
    return took


def until_heard(call: Callable[[], bool]) -> bool | None:
    """Call until there is an answer: so short a timeout takes a busy machine for a silent server.

    Return the answer, None instead of a no when one before it had none, and may have been a yes.
    """
    heard = list[bool]()

    def answered() -> bool:
        try:
            heard.append(call())
        except RedisUnavailable:
            heard.append(False)
            return False
        return True

    wait_until(answered)
    return heard[-1] or (None if len(heard) > 1 else False)


def test_silence_in_the_middle_of_a_wait_is_told_in_time(road: Road) -> None:
    lock, other = a_lock(road), a_lock(road)
    assert lock.acquire()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(other.acquire, timeout_seconds=600)
        wait_until(lambda: other.token in waiters(road), what="it waits")
        road.proxy.black_hole = True
        # One blocking call of a second at most, and one socket's silence, twice; never what the caller would wait.
        assert isinstance(result.exception(timeout=120), RedisUnavailable)
        road.proxy.black_hole = False
    assert lock.release()
