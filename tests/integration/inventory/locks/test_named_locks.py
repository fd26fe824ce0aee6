"""The lock under the names of the articles does what they say: one caller at a time, its own life, its own loss.
Runs on every kind of Redis.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from threading import Barrier, Thread
from typing import Any

import pytest

from inventory import redis
from inventory.exceptions import InvalidRequest, LockInUse, LockLost
from inventory.locks import named
from inventory.locks.lock import Lock, release_all
from inventory.redis import keys
from tests.support.renewals import renew_now
from tests.support.road import run
from tests.support.servers.server_matrix import ON_ONE_KIND
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")


@pytest.fixture(autouse=True)
def nothing_held(each_server: str) -> Iterator[None]:
    """Begin and end without a lock, whatever ran before in this process."""
    named.unlock_all()
    yield
    named.unlock_all()


def pttl(name: str) -> int:
    return int(run(("PTTL", keys.lock(name)))[0])


def in_a_thread(call: Callable[[], Any]) -> Any:
    """Return what `call` returns in a thread of its own."""
    seen: list[Any] = []
    thread = Thread(target=lambda: seen.append(call()))
    thread.start()
    thread.join(timeout=120)
    return seen[0]


def test_the_sample_of_the_first_article_gives_id_false_true_false(new_sku: Callable[[], str]) -> None:
    """S1, S3. The control is a lock that is asked for by the token of its holder: it is given twice."""
    name = new_sku()
    answers = [named.lock(name), named.lock(name), named.unlock(name), named.unlock(name)]
    assert isinstance(answers[0], str)
    assert len(answers[0]) > 20
    assert answers[1:] == [False, True, False]
    one, twin = (Lock(redis.connect(), name, ttl_ms=60_000) for _ in range(2))
    twin.token = one.token
    assert [one.acquire(), twin.acquire()] == [True, True]


def test_a_nested_caller_is_refused_and_frees_nothing_by_its_false(new_sku: Callable[[], str]) -> None:
    name, seen = new_sku(), []

    def process(depth: int) -> None:
        if not named.lock(name):
            seen.append("refused")
            return
        seen.append("in")
        if depth:
            process(depth - 1)
        assert named.is_locking(name)
        assert named.unlock(name)

    process(3)
    assert seen == ["in", "refused"]


def test_of_many_threads_one_gets_it(new_sku: Callable[[], str]) -> None:
    name, barrier, got = new_sku(), Barrier(8), []

    def call() -> None:
        barrier.wait(timeout=120)
        got.append(named.lock(name))
        barrier.wait(timeout=120)  # nobody has ended before all have asked

    threads = [Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert sorted(map(bool, got)) == [False] * 7 + [True]


def test_of_many_tasks_of_one_thread_one_gets_it_and_the_others_cannot_free_it(new_sku: Callable[[], str]) -> None:
    name = new_sku()

    async def task() -> tuple[Any, ...]:
        got = named.lock(name)
        await asyncio.sleep(0.05)
        seen = named.is_locking(name), named.expire(name, 20)
        await asyncio.sleep(0.05)
        return (bool(got), *seen, named.unlock(name))

    async def crowd() -> list[tuple[Any, ...]]:
        return await asyncio.gather(*(task() for _ in range(10)))

    answers = asyncio.run(crowd())
    assert sorted(answers) == [(False,) * 4] * 9 + [(True,) * 4]
    assert pttl(name) == -2


def test_with_its_id_a_lock_is_lengthened_and_given_back_from_anywhere(new_sku: Callable[[], str]) -> None:
    """The control is the same call without the id: another thread has no part in it."""
    name = new_sku()

    async def work() -> tuple[Any, ...]:
        lock_id = await asyncio.to_thread(named.lock, name)
        assert lock_id
        assert [named.is_locking(name), named.unlock(name)] == [False, False]
        assert named.is_locking(name, lock_id)
        assert named.check(name, lock_id) > 0
        return (
            named.expire(name, 30, lock_id),
            named.unlock(name, "of another"),
            named.unlock(name, lock_id),
            named.unlock(name, lock_id),
        )

    assert asyncio.run(work()) == (True, False, True, False)


@pytest.mark.parametrize("is_lost", [False, True])
def test_each_lock_takes_its_own_life(new_sku: Callable[[], str], is_lost: bool) -> None:
    name, lives = new_sku(), []
    for seconds in (120, 600, 60):
        assert named.lock(name, expire=seconds)
        lives.append(pttl(name) / 1000 / seconds)
        if is_lost:
            run(("DEL", keys.lock(name)))
        else:
            assert named.unlock(name)
    assert all(0.3 < life <= 1 for life in lives), lives


@pytest.mark.parametrize("name", ["order_lock_666666", "Queue:orders", "Lock:order.1-2", 666666])
def test_the_names_of_the_articles_are_accepted(name: str | int) -> None:
    assert named.lock(name)
    assert not in_a_thread(lambda: named.lock(name))
    assert named.is_locking(name)
    assert named.unlock(name)
    assert pttl(str(name)) == -2


@ON_ONE_KIND  # no server is asked
@pytest.mark.parametrize(
    "name", ["", "a b", "a{b}", "a}", "秒杀", "a\n", "x" * 201, None, 5.0, True, b"a", -5, 10**400]
)
def test_a_name_that_could_break_a_key_is_refused(name: Any) -> None:
    for call in (named.lock, named.unlock, named.is_locking, named.check):
        with pytest.raises(InvalidRequest, match=r"^name must"):
            call(name)


def test_what_expire_promised_is_kept_beyond_the_longest_hold(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S5. The control is the same lock without the call: it is given up after its longest hold."""
    monkeypatch.setattr(named, "MAX_HOLD_LIVES", 1)
    # The longer lives are for a machine that stands still for longer than the first ones.
    assert any(is_kept_as_promised(new_sku(), new_sku(), life=life) for life in (1, 5, 20))


def is_kept_as_promised(kept: str, control: str, *, life: int) -> bool:
    """Take two locks of one life, ask six of them for the first; say whether it outlives the other as promised.

    False also when nobody had time to look.
    """
    wait_until(lambda: named.lock(control, expire=life))
    wait_until(lambda: named.lock(kept, expire=life))
    promised_until = time.monotonic() + 6 * life
    if not named.expire(kept, 6 * life):
        return False
    wait_until(lambda: not named.is_locking(control))
    seen = []

    def look() -> bool:
        is_locking = named.is_locking(kept)
        if time.monotonic() < promised_until:
            seen.append(is_locking)
        return time.monotonic() > promised_until

    wait_until(look)
    assert set(seen) <= {True}
    wait_until(lambda: pttl(kept) == -2)
    assert not named.unlock(kept)
    return len(seen) > 5


@ON_ONE_KIND
def test_work_that_calls_expire_in_its_loop_keeps_its_lock(new_sku: Callable[[], str]) -> None:
    """The longest hold counts from the last call on. The control: without one the lock is given up when it was due."""
    name = new_sku()
    assert named.lock(name, expire=20)
    hold = named._HELD[name].lock.hold
    assert hold is not None
    due = hold.ends_by
    assert due - hold.since == pytest.approx(named.MAX_HOLD_LIVES * 20)
    for _ in range(3):
        assert named.expire(name, 20)
        assert hold.ends_by > due
        due = hold.ends_by
    assert hold.ends_by == due
    assert named.unlock(name)


@pytest.mark.parametrize(("ttl_ms", "max_hold_ms"), [(60_000, 300), (60_000, 60_000)])
def test_a_hold_that_its_cap_ended_locks_nobody_out(new_sku: Callable[[], str], ttl_ms: int, max_hold_ms: int) -> None:
    """L6. The second is the control: its cap has not come, so the key stays."""
    lock = Lock(redis.connect(), new_sku(), ttl_ms=ttl_ms, max_hold_ms=max_hold_ms)
    heir = Lock(redis.connect(), lock.name, ttl_ms=5000)
    assert lock.acquire()
    is_over = heir.acquire(timeout_seconds=60 if max_hold_ms == 300 else 3)
    assert is_over is (max_hold_ms == 300)
    assert lock.lost.is_set() is is_over
    assert lock.release() is not is_over


def test_a_lock_of_a_thread_that_ended_locks_nobody_out_for_what_it_asked(new_sku: Callable[[], str]) -> None:
    name = new_sku()
    assert in_a_thread(lambda: named.lock(name) and named.expire(name, 3600))
    gc.collect()
    renew_now(named._HELD[name].lock)
    assert named.lock(name, timeout=60)


@pytest.mark.parametrize("told", [True, False])
def test_a_release_after_a_loss_says_so(new_sku: Callable[[], str], told: bool) -> None:
    lock = Lock(redis.connect(), new_sku(), ttl_ms=60_000)
    assert lock.acquire()
    if told:
        assert lock.hold
        lock.hold.lose(reason="a test says so")
    else:
        run(("DEL", keys.lock(lock.name)))
    assert not lock.release()
    assert lock.lost.is_set()
    assert pttl(lock.name) == -2


def test_a_block_whose_lock_was_lost_says_so_at_its_end(new_sku: Callable[[], str]) -> None:
    """The control is a block that gives its lock back by itself: nothing was lost."""
    with (
        pytest.raises(LockLost, match="before its block had ended"),
        Lock(redis.connect(), new_sku(), ttl_ms=60_000) as lock,
    ):
        run(("DEL", keys.lock(lock.name)))
    with Lock(redis.connect(), new_sku(), ttl_ms=60_000) as lock:
        assert lock.release()


def test_the_loss_of_one_hold_is_not_taken_for_a_loss_of_the_next(new_sku: Callable[[], str]) -> None:
    told: list[Any] = []
    lock = Lock(redis.connect(), new_sku(), ttl_ms=60_000, on_lost=told.append)
    assert lock.acquire()
    first = lock.hold
    assert first
    first.deadline = 0.0  # its life is over by the local clock, and the watchdog has not come by yet
    run(("DEL", keys.lock(lock.name)))
    assert lock.acquire()
    assert told == [lock]
    first.lose(reason="a watchdog that comes late")
    lock.report_loss(first, reason="one that was under way")
    assert not lock.lost.is_set()
    assert lock.release()


def test_one_object_is_one_holder(new_sku: Callable[[], str]) -> None:
    lock = Lock(redis.connect(), new_sku(), ttl_ms=60_000)
    with lock:
        with pytest.raises(LockInUse, match="holds the lock"), lock:
            pass
        with pytest.raises(LockInUse):
            lock.acquire(timeout_seconds=None)
        assert lock.is_locking(remote=True)
    assert pttl(lock.name) == -2
    assert lock.acquire()
    assert lock.release()


def test_threads_that_share_an_object_exclude_each_other(new_sku: Callable[[], str]) -> None:
    lock, barrier = Lock(redis.connect(), new_sku(), ttl_ms=60_000), Barrier(8)
    answers: list[bool | str] = []

    def take() -> None:
        barrier.wait(timeout=120)
        try:
            answers.append(lock.acquire())
        except LockInUse:
            answers.append("in use")
        barrier.wait(timeout=120)

    threads = [Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert answers.count(True) == 1
    assert answers.count("in use") == 7
    release_all()
