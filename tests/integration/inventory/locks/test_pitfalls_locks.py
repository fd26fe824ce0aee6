"""Pitfalls of locks that no other test shows us immune to, each with its control; numbers as in docs/failure-cases.md.
Real Redis, in part behind a proxy that is slow, silent or loses replies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from threading import Barrier, Event, Thread
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.test.utils import override_settings

from inventory import redis
from inventory.exceptions import LockLost, RedisUnavailable
from inventory.locks.lock import Lock, force_release, release_all
from inventory.locks.redlock import Redlock
from inventory.locks.statistics import STATISTICS, read_statistics
from inventory.locks.watchdog import WATCHDOG
from inventory.redis import keys, scripts
from tests.support.renewals import renew_now, renew_until
from tests.support.road import run
from tests.support.servers.proxy import Proxy, proxy_to
from tests.support.waiting import assert_waits_at_most, seconds_of, wait_until

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture(autouse=True)
def nothing_held() -> Iterator[None]:
    """Leave no lock behind."""
    yield
    release_all()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Put a proxy in front of the tests' Redis and work through it; `direct` goes round it."""
    address = urlsplit(settings.REDIS_URL)
    assert address.port
    with proxy_to(address.port) as proxy:
        through = address._replace(netloc=f":{address.password}@127.0.0.1:{proxy.port}").geturl()
        with override_settings(REDIS_URL=through):
            yield proxy


@pytest.fixture
def direct() -> redis.Client:
    """Return a client that no proxy hinders."""
    return redis.connect()


def pttl(name: str) -> int:
    return int(run(("PTTL", keys.lock(name)))[0])


def test_a_lock_never_lies_there_without_a_life(new_sku: Callable[[], str]) -> None:
    """L2. The control is the lock in two steps, whose holder dies between them: it lies there for ever."""
    name, client = new_sku(), redis.connect()
    run(("SETNX", keys.lock(name), "died before its EXPIRE"))
    assert pttl(name) == -1
    run(("DEL", keys.lock(name)))
    holder, waiter = (Lock(client, name, ttl_ms=60_000) for _ in range(2))
    lives = [holder.acquire() and pttl(name), holder.extend(90_000) and pttl(name)]
    lives.append(holder.extend(1000, mode="add") and pttl(name))
    assert holder.hold
    WATCHDOG.renew([holder.hold])
    lives.append(pttl(name))
    thread = Thread(target=waiter.acquire, kwargs={"timeout_seconds": 60})
    thread.start()
    wait_until(lambda: run(("ZCARD", keys.lock_waiters(name)))[0])
    force_release(client, name)
    lives.append(pttl(name))
    thread.join()
    assert all(life > 0 or life == -2 for life in lives), lives


def test_of_many_who_take_an_orphan_over_one_gets_it(new_sku: Callable[[], str]) -> None:
    """S2, L2. The control is the take-over in two steps, in which both who saw an orphan write their own name."""
    name = new_sku()
    run(("SET", keys.lock(name), "an orphan"))
    saw_an_orphan = [pttl(name) == -1 for _ in range(2)]
    took = [run(("SET", keys.lock(name), f"careless-{number}"))[0] for number in range(2)]
    assert saw_an_orphan == took == [True, True]
    run(("SET", keys.lock(name), "an orphan"))
    begin, taken = Barrier(12), []

    def try_once() -> None:
        # Of a thread that has ended the lock is given back after a third of its life: not before all have tried.
        lock = Lock(redis.connect(), name, ttl_ms=600_000)
        begin.wait(timeout=120)
        if lock.acquire():
            taken.append(lock.fence)

    threads = [Thread(target=try_once) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert len(taken) == 1


def test_a_holder_whose_server_is_silent_is_told_and_the_others_are_renewed(
    direct: redis.Client, proxy: Proxy, new_sku: Callable[[], str]
) -> None:
    """L3. The control is the lock whose server answers: the same watchdog keeps it all the while."""
    kept = Lock(direct, new_sku(), ttl_ms=60_000)
    cut_off = Lock(redis.connect(timeout_seconds=2), new_sku(), ttl_ms=18_000)
    assert kept.acquire()
    assert cut_off.acquire()
    proxy.black_hole = True
    renew_until(cut_off.lost.is_set, lock=kept, what="it is told")
    with pytest.raises(LockLost):
        cut_off.check()
    assert kept.hold
    renewed_before = kept.hold.deadline
    renew_until(lambda: kept.hold and kept.hold.deadline > renewed_before, lock=kept, what="it is renewed")
    kept.check()
    assert not kept.lost.is_set()


def test_renewals_that_fail_are_tried_again_before_the_life_ends(proxy: Proxy, new_sku: Callable[[], str]) -> None:
    """L4, L8: a renewal whose replies are lost neither ends the hold nor makes it again."""
    lock = Lock(redis.connect(), new_sku(), ttl_ms=60_000)
    assert lock.acquire()
    assert lock.hold
    hold, fence, first_end = lock.hold, lock.fence, lock.hold.deadline
    redis.connect().script_load(scripts.script_text("extend"))
    rule = proxy.drop_replies(scripts.script_digest("extend").encode(), times=4)  # more than one call sends again
    renew_now(lock)  # the first time; what fails is tried again by itself
    wait_until(lambda: hold.deadline > first_end)
    assert rule.dropped == 4
    STATISTICS.flush()
    statistics = lambda: read_statistics(redis.connect(), lock.name)  # noqa: E731
    wait_until(lambda: statistics().get("failed_renewals"))
    assert lock.is_locking(remote=True)
    assert (lock.hold, lock.fence) == (hold, fence)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("watched", [False, True])
def test_a_forked_child_renews_a_lock_of_its_own(new_sku: Callable[[], str], watched: bool) -> None:
    """L7. The control is the child whose watchdog does not know of its lock: the lock ends, as if no thread ran."""
    with Lock(redis.connect(), new_sku(), ttl_ms=60_000) as parents:
        name = new_sku()
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if is_kept(name, watched=watched) is watched else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert parents.is_locking(remote=True)


def is_kept(name: str, *, watched: bool) -> bool:
    """Say whether a lock outlives its life; the longer ones are for a machine that stands still for longer."""
    lives_ms = (1500, 6000, 30_000) if watched else (1500,)
    return any(keeps_a_lock(f"{name}-{ttl_ms}", ttl_ms=ttl_ms, watched=watched) for ttl_ms in lives_ms)


def keeps_a_lock(name: str, *, ttl_ms: int, watched: bool) -> bool:
    """Take a lock and say whether it is still ours, by the server, when more than one life of it has passed."""
    lock = Lock(redis.connect(), name, ttl_ms=ttl_ms)
    wait_until(lock.acquire)
    hold = lock.hold
    if hold is None:
        return False
    if not watched:
        WATCHDOG.remove(hold)
    over_at = hold.since + ttl_ms * 4 / 3000
    wait_until(lambda: time.monotonic() > over_at)
    return lock.is_locking(remote=True)


def test_a_wait_longer_than_the_socket_may_be_silent_is_no_error(each_server: str, new_sku: Callable[[], str]) -> None:
    """L11. The control is the same wait on the ordinary connection: it ends as an error."""
    client, key = redis.connect(timeout_seconds=0.5), keys.lock_signals(new_sku())
    with pytest.raises(RedisUnavailable):
        redis.run_commands(client, [("BLPOP", key, 60)])
    # The wait below has this connection: on a busy machine to open one may take longer than this client waits.
    wait_until(lambda: answers(client, key), what="the server that was silent is asked again")
    began = time.monotonic()
    assert redis.wait_for_signal(client, key, seconds=1, place=redis.WaitingPlace(), place_seconds=1) is None
    assert time.monotonic() - began > 0.95


def answers(client: redis.Client, key: str) -> bool:
    """Say whether the server of `key` answers this client."""
    try:
        redis.run_commands(client, [("EXISTS", key)])
    except RedisUnavailable:
        return False
    return True


def test_a_waiter_that_is_woken_in_vain_gives_up_in_time(new_sku: Callable[[], str]) -> None:
    """L12. Woken all the while, it must not begin its wait again; that it was woken is counted."""
    name, stop, tries = new_sku(), Event(), count(1)
    with Lock(redis.connect(), name, ttl_ms=60_000):
        waiter = Lock(redis.connect(), name, ttl_ms=5000)
        ask = waiter._ask
        waiter._ask = lambda **call: (next(tries), ask(**call))[1]  # type: ignore[method-assign]
        noise = Thread(target=wake_in_vain, args=(name, stop))
        noise.start()
        given: list[bool] = []
        try:
            assert_waits_at_most(10, lambda: seconds_of(lambda: given.append(waiter.acquire(timeout_seconds=3))))
        finally:
            stop.set()
            noise.join()
    assert set(given) == {False}
    assert next(tries) > 5


def wake_in_vain(name: str, stop: Event) -> None:
    """Wake anyone who waits, again and again, without giving the lock back."""
    while not stop.wait(timeout=0.02):
        run(("RPUSH", keys.lock_signals(name), "in vain"), ("PEXPIRE", keys.lock_signals(name), 1000))


@pytest.mark.parametrize(("delay_seconds", "ours"), [(0.0, True), (0.6, False)])
@pytest.mark.parametrize("kind", ["lock", "redlock"])
def test_a_lock_that_ended_before_its_reply_came_is_not_ours(
    proxy: Proxy, new_sku: Callable[[], str], kind: str, delay_seconds: float, ours: bool
) -> None:
    """L18. The control is the same lock without the delay: it is ours, on a busy machine not by the first try."""
    client, name = redis.connect_once(settings.REDIS_URL, timeout_seconds=60), new_sku()
    lock = (
        Lock(client, name, ttl_ms=1000)
        if kind == "lock"
        else Redlock([client], name, ttl_ms=1000, node_timeout_seconds=60)
    )
    client.ping()
    proxy.delay_seconds = delay_seconds  # twice a call
    if ours:
        wait_until(lambda: lock.acquire() and lock.is_valid(), what="a reply in time")
    else:
        assert (lock.acquire(), lock.is_valid()) == (False, False)
    proxy.delay_seconds = 0
    lock.release()
    wait_until(lambda: pttl(name) == -2)
    client.close()


def test_every_key_of_a_lock_ends_by_itself(new_sku: Callable[[], str]) -> None:
    """L20. The control is a counter without a life, which the same look finds."""
    name, client = new_sku(), redis.connect()
    holder, waiter = (Lock(client, name, ttl_ms=60_000) for _ in range(2))
    assert holder.acquire()
    assert not waiter.acquire(timeout_seconds=0.05)
    STATISTICS.flush()
    wait_until(lambda: read_statistics(client, name))
    assert {keys.lock(name), keys.fence(name), keys.lock_statistics(name)} <= lives_of(name).keys()
    assert [key for key, life in lives_of(name).items() if life < 0] == []
    assert 0 < lives_of(name)[keys.fence(name)] <= keys.FENCE_TTL_MS
    counter = f"{keys.fence(name)}:of-others"
    run(("INCR", counter))
    assert [key for key, life in lives_of(name).items() if life < 0] == [counter]
    run(("DEL", counter))
    holder.release()


def lives_of(name: str) -> dict[str, int]:
    """Return every key of `name` with the milliseconds it has to live, -1 for ever."""
    client = redis.connect()
    found = list(client.scan_iter(match=f"fd:{{{name}}}*", count=1000))
    return dict(zip(found, run(*(("PTTL", key) for key in found)), strict=True))
