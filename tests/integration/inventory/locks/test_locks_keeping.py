"""What a holder can do and must hear: lengthen, ask, lose, give all back; what is counted; what an operator sees.
Runs on every kind of Redis.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from inventory import redis
from inventory.exceptions import InvalidRequest, LockLost
from inventory.locks import named
from inventory.locks.lock import GRANT_TTL_MS, Lock, force_release, release_all
from inventory.locks.redlock import Redlock
from inventory.locks.report import LockReport, report_locks
from inventory.locks.statistics import STATISTICS, read_statistics
from inventory.locks.watchdog import WATCHDOG
from inventory.queues.queue import Queue
from inventory.redis import keys, scripts
from tests.support.road import run
from tests.support.servers.server_matrix import ON_ONE_KIND, nodes_of
from tests.support.waiting import assert_waits_at_most, seconds_of, wait_until
from workers.management.commands import locks

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")
SPAWN = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def nothing_held(each_server: str) -> Iterator[None]:
    """Begin and end without a lock, whatever ran before in this process."""
    release_all()
    yield
    release_all()


def a_lock(name: str, *, ttl_ms: int = 60_000, **options: object) -> Lock:
    return Lock(redis.connect(), name, ttl_ms=ttl_ms, **options)  # type: ignore[arg-type]


def pttl(lock: Lock) -> int:
    return int(run(("PTTL", keys.lock(lock.name)))[0])


def test_a_lock_is_lengthened_in_both_ways(new_sku: Callable[[], str]) -> None:
    with a_lock(new_sku()) as lock:
        assert lock.extend(200_000)
        assert 100_000 < pttl(lock) <= 200_000
        assert lock.extend(100_000, mode="add")
        assert 200_000 < pttl(lock) <= 300_000
        assert lock.expire(600)
        assert 300_000 < pttl(lock) <= 600_000


def test_a_renewal_does_not_shorten_what_the_holder_asked_for(new_sku: Callable[[], str]) -> None:
    """S5. The control is a life that is shorter than the lock's own: the same renewal lengthens it."""
    with a_lock(new_sku()) as lock:
        assert lock.hold
        for asked_ms, least_ms, max_ms in ((600_000, 500_000, 600_000), (30_000, 40_000, 60_000)):
            assert lock.extend(asked_ms)
            WATCHDOG.renew([lock.hold])
            assert least_ms < pttl(lock) <= max_ms
            server_ms = pttl(lock)
            left_ms = (lock.hold.deadline - time.monotonic()) * 1000
            assert least_ms < left_ms < server_ms + 100


def test_a_lock_that_is_gone_is_not_made_anew_by_lengthening(new_sku: Callable[[], str]) -> None:
    lock = a_lock(new_sku())
    assert not lock.extend(1000)
    assert lock.acquire()
    run(("DEL", keys.lock(lock.name)))
    assert not lock.extend(1000)
    assert pttl(lock) == -2
    assert lock.lost.is_set()


NO_NUMBERS: tuple[Any, ...] = ("5", True, None, float("nan"), float("inf"), 10**400, -1)
BAD_ARGUMENTS: list[tuple[str, Callable[[Lock, Any], object], tuple[Any, ...]]] = [
    ("milliseconds", lambda lock, bad: lock.extend(bad), (0, 1e300, *NO_NUMBERS)),
    ("mode", lambda lock, bad: lock.extend(1, mode=bad), ("more", None, [], "keep")),
    ("seconds", lambda lock, bad: lock.expire(bad), (0.5, 1e300, *NO_NUMBERS)),
    ("timeout_seconds", lambda lock, bad: lock.acquire(timeout_seconds=bad), ("5", True, float("nan"), 10**400, -1)),
    ("wait_interval_seconds", lambda lock, bad: lock.acquire(wait_interval_seconds=bad), (0, *NO_NUMBERS)),
    ("blocking", lambda lock, bad: lock.acquire(blocking=bad), ("no", None, 0)),
    ("remote", lambda lock, bad: lock.is_locking(remote=bad), ("no", None, 1)),
    ("ttl_ms", lambda lock, bad: a_lock(lock.name, ttl_ms=bad), (99, 1e300, *NO_NUMBERS)),
    ("max_hold_ms", lambda lock, bad: a_lock(lock.name, max_hold_ms=bad), (1, 0, "5", True, float("inf"), 10**400)),
    ("name", lambda lock, bad: a_lock(bad), ("", "a}", "a b", "a" * 201, None, 5, b"a")),
    ("fair", lambda lock, bad: a_lock(lock.name, fair=bad), ("yes", 1, None)),
    ("on_lost", lambda lock, bad: a_lock(lock.name, on_lost=bad), ("tell", 5)),
    ("client", lambda lock, bad: Lock(bad, lock.name, ttl_ms=5000), (None, "redis://", object(), {1})),
    ("client", lambda lock, bad: force_release(bad, lock.name), (None, object())),
    ("name", lambda lock, bad: force_release(redis.connect(), bad), (None, "a}")),
    ("clients", lambda lock, bad: Redlock(bad, lock.name, ttl_ms=5000), (None, [], "abc", 5)),
    ("client", lambda lock, bad: Redlock([bad], lock.name, ttl_ms=5000), (None, object())),
    ("timeout", lambda lock, bad: named.lock(lock.name, timeout=bad), NO_NUMBERS),
    ("expire", lambda lock, bad: named.lock(lock.name, expire=bad), (0, *NO_NUMBERS)),
    ("wait_interval", lambda lock, bad: named.lock(lock.name, wait_interval=bad), (0, *NO_NUMBERS)),
    ("seconds", lambda lock, bad: named.expire(lock.name, bad), (0.5, *NO_NUMBERS)),
    ("lock_id", lambda lock, bad: named.unlock(lock.name, bad), ("", 5, b"a", "a" * 501)),
]


@pytest.mark.parametrize(
    ("argument", "call"),
    [(argument, partial(call, bad=bad)) for argument, call, values in BAD_ARGUMENTS for bad in values],
    ids=lambda value: value if isinstance(value, str) else "",
)
@ON_ONE_KIND  # no server is asked
def test_a_bad_argument_is_named(
    new_sku: Callable[[], str], argument: str, call: Callable[[Lock], object], caplog: pytest.LogCaptureFixture
) -> None:
    """The error names the argument and its bound, and is logged (S16, S17). The control: a good one is no error."""

    def refused() -> list[tuple[str, str]]:
        lines = [record.msg for record in caplog.records if record.name == "inventory.locks.arguments"]
        return [(line["action"], line["argument"]) for line in lines]

    lock = a_lock(new_sku())
    assert (refused(), run(("EXISTS", keys.lock(lock.name)))) == ([], [0])
    with pytest.raises(InvalidRequest, match=rf"^{argument} must"):
        call(lock)
    assert refused() == [("argument_refused", argument)]
    assert run(("EXISTS", keys.lock(lock.name))) == [0]


@ON_ONE_KIND
def test_a_client_that_we_did_not_open_is_refused(new_sku: Callable[[], str]) -> None:
    """Its retries and its decoding are unknown. The control is one that we opened."""
    foreign = type(redis.connect()).from_url(settings.REDIS_URL)
    for make in (lambda: Lock(foreign, new_sku(), ttl_ms=5000), lambda: Queue(foreign, new_sku())):
        with pytest.raises(InvalidRequest, match="client must come from"):
            make()
    foreign.close()
    ours = redis.connect_once(settings.REDIS_URL, timeout_seconds=60)
    with Lock(ours, new_sku(), ttl_ms=60_000) as lock:
        assert lock.is_locking(remote=True)
    ours.close()


def test_a_renewal_under_way_does_not_bring_a_released_lock_back(new_sku: Callable[[], str]) -> None:
    lock = a_lock(new_sku())
    assert lock.acquire()
    hold = lock.hold
    assert hold
    assert lock.release()
    assert not hold.renewed(since=time.monotonic(), life_ms=5000)
    assert not lock.is_locking()
    with pytest.raises(LockLost):
        lock.check()


def test_a_lock_is_held_no_longer_than_its_cap(new_sku: Callable[[], str]) -> None:
    told: list[object] = []
    lock = a_lock(new_sku(), ttl_ms=500, max_hold_ms=1000, on_lost=told.append)
    heir = a_lock(lock.name)
    wait_until(lock.acquire)
    assert lock.lost.wait(timeout=120)
    wait_until(lambda: told == [lock])
    assert heir.acquire(timeout_seconds=60)
    heir.release()


def test_the_lock_of_a_thread_that_died_is_not_kept(new_sku: Callable[[], str]) -> None:
    lock = a_lock(new_sku(), ttl_ms=1000)
    heir = a_lock(lock.name)
    thread = Thread(target=wait_until, args=[lock.acquire])
    thread.start()
    thread.join()
    assert lock.lost.wait(timeout=120)
    assert heir.acquire(timeout_seconds=60)
    heir.release()


def test_all_locks_are_given_back_at_once(new_sku: Callable[[], str]) -> None:
    locks = [a_lock(new_sku()) for _ in range(5)]
    assert all(lock.acquire() for lock in locks)
    assert [hold.lock for hold in WATCHDOG.newest_first()] == locks[::-1]
    assert release_all()
    assert {pttl(lock) for lock in locks} == {-2}
    assert locks[0].acquire()
    assert locks[1].acquire()
    run(("DEL", keys.lock(locks[0].name)))
    assert not release_all()
    assert pttl(locks[1]) == -2


def test_all_locks_are_given_back_although_one_server_forgot_its_scripts(new_sku: Callable[[], str]) -> None:
    locks = [a_lock(new_sku()) for _ in range(12)]
    assert all(lock.acquire() for lock in locks)
    servers = nodes_of(redis.connect())
    for each in servers:
        each.script_load(scripts.script_text("release"))
    servers[0].script_flush()  # of a Cluster the others know it still: what they ran is not run again
    assert release_all()
    assert {pttl(lock) for lock in locks} == {-2}


def test_the_articles_names_work(new_sku: Callable[[], str]) -> None:
    name, other = new_sku(), a_lock("other")
    assert named.lock(name, expire=10)
    assert named.is_locking(name)
    assert named.check(name) > 0
    assert not a_lock(name).acquire()
    assert named.expire(name, 20)
    assert named.unlock(name)
    assert [named.unlock(name), named.is_locking(name), other.is_locking()] == [False] * 3
    assert named.lock(name)
    assert named.unlock_all()
    assert a_lock(name).acquire()
    release_all()


def test_a_forked_child_holds_nothing_and_ends_nothing(new_sku: Callable[[], str]) -> None:
    with a_lock(new_sku()) as lock:
        child = os.fork()
        if child == 0:
            wrong = lock.is_locking() or lock.release()
            os._exit(1 if wrong or WATCHDOG.newest_first() else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert lock.is_locking(remote=True)


def hold_and_tell(name: str, ttl_ms: int, ours: Connection) -> None:
    """Take a lock in a process of its own; say the fence; when asked, say whether it still counts as ours."""
    lock = a_lock(name, ttl_ms=ttl_ms)
    wait_until(lock.acquire)  # the first try connects too, and may come too late
    ours.send(lock.fence)
    ours.recv()
    try:
        lock.check()
        ours.send("ours")
    except LockLost:
        ours.send("lost")


@pytest.fixture
def holder_process(new_sku: Callable[[], str]) -> Callable[[int], tuple[str, int, object, Connection]]:
    """Return a function that starts a holder with a TTL and returns name, fence, process, pipe."""

    def start(ttl_ms: int) -> tuple[str, int, object, Connection]:
        name, (ours, theirs) = new_sku(), SPAWN.Pipe()
        process = SPAWN.Process(target=hold_and_tell, args=(name, ttl_ms, theirs), daemon=True)
        process.start()
        return name, ours.recv(), process, ours

    return start


def test_the_heir_of_a_killed_holder_waits_for_its_life_only(holder_process: Callable[..., tuple]) -> None:
    def seconds() -> float:
        name, fence, process, _ = holder_process(1000)
        os.kill(process.pid, signal.SIGKILL)
        heir = a_lock(name)
        took = seconds_of(lambda: heir.acquire(timeout_seconds=60))
        assert heir.fence > fence
        assert heir.release()
        process.join(timeout=120)
        return took

    assert_waits_at_most((1000 + GRANT_TTL_MS) / 1000, seconds)


def test_a_holder_that_slept_beyond_its_life_is_told(holder_process: Callable[..., tuple]) -> None:
    name, fence, process, pipe = holder_process(500)
    os.kill(process.pid, signal.SIGSTOP)
    heir = a_lock(name)
    assert heir.acquire(timeout_seconds=60)
    assert heir.fence > fence
    pipe.send("are you ours?")
    os.kill(process.pid, signal.SIGCONT)
    assert pipe.recv() == "lost"
    assert heir.is_locking(remote=True)
    heir.release()
    process.join(timeout=120)


def test_use_is_counted_and_shown(new_sku: Callable[[], str]) -> None:
    lock = a_lock(new_sku())
    other = a_lock(lock.name)
    assert lock.acquire()
    assert not other.acquire()
    assert not other.acquire(timeout_seconds=0.05)
    STATISTICS.flush()
    counted = {"attempts": 3, "contended": 2, "timeouts": 1, "waits": 1}
    # The watchdog writes them too, perhaps a part of them before.
    wait_until(lambda: counted.items() <= read_statistics(redis.connect(), lock.name).items(), what="all is counted")
    out = StringIO()
    call_command("locks", lock.name, "--json", stdout=out)
    shown = json.loads(out.getvalue())[lock.name]
    assert (shown["state"], shown["owner"]["process_id"], shown["fence"]) == ("held", os.getpid(), lock.fence)
    assert abs(shown["since_unix_seconds"] - time.time()) < 60
    lock.release()
    wait_until(lambda: read_statistics(redis.connect(), lock.name).get("holds"))
    call_command("locks", stdout=out)
    assert f"{lock.name}  free" in out.getvalue()


def test_an_operator_takes_a_lock_away_by_command(new_sku: Callable[[], str]) -> None:
    lock, out, errors = a_lock(new_sku()), StringIO(), StringIO()
    assert lock.acquire()
    call_command("locks", lock.name, "--force", lock.name, stdout=out, stderr=errors)
    assert "free" in out.getvalue()
    assert "taken away" in errors.getvalue()
    assert not lock.is_locking(remote=True)


def test_a_lock_that_nobody_holds_is_not_taken_away(new_sku: Callable[[], str]) -> None:
    lock = a_lock(new_sku())
    with pytest.raises(CommandError, match=r"nobody holds .* nothing was changed"):
        call_command("locks", "--force", lock.name)
    assert report_locks(redis.connect(), [lock.name])[0].fence == 0


def test_a_lock_that_went_on_is_not_taken_from_its_next_holder(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = a_lock(new_sku())
    second = a_lock(first.name)

    def look_and_hand_on(client: redis.Client, names: list[str]) -> list[LockReport]:
        seen = report_locks(client, names)
        first.release()
        assert second.acquire()
        return seen

    assert first.acquire()
    monkeypatch.setattr(locks, "report_locks", look_and_hand_on)
    with pytest.raises(CommandError, match="nothing was changed"):
        call_command("locks", "--force", first.name)
    assert second.is_locking(remote=True)
    second.release()
