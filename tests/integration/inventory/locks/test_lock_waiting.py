"""Who waits for a lock waits in one place: in order however long it takes, blocked and not polling, on every kind.
Each guard has its control. Real Redis of every kind.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from multiprocessing.connection import Connection
from threading import Thread
from urllib.parse import urlsplit

import pytest
from django.conf import settings

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.locks.lock import Lock, release_all
from inventory.redis import keys
from inventory.redis.connections import WaitingPlace
from tests.support.lock_waiters import blocked_clients, note_for_long
from tests.support.road import run
from tests.support.servers.proxy import Proxy, proxy_to
from tests.support.servers.server_matrix import ON_ONE_KIND, nodes_of
from tests.support.waiting import PATIENCE_SECONDS, TRIES, assert_waits_at_most, seconds_of, wait_until

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")
FORK = multiprocessing.get_context("fork")
TTL_MS = 120_000
# How often somebody who is blocked asks in a wait of 2.2 s; without a way to block it is many times as often.
MOST_LOOKS = 4


@pytest.fixture(autouse=True)
def nothing_held(each_server: str) -> Iterator[None]:
    """Leave no lock behind."""
    yield
    release_all()


@pytest.fixture
def patient_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody lose the turn that was granted because the machine stood still for a moment."""
    monkeypatch.setattr("inventory.locks.lock.GRANT_TTL_MS", 60_000)


def a_lock(name: str, *, fair: bool = True) -> Lock:
    return Lock(redis.connect(), name, ttl_ms=TTL_MS, fair=fair)


class Row:
    """Threads that wait for one lock, each noted and blocked before the next one comes."""

    def __init__(self, name: str, intervals: list[float], *, fair: bool = True) -> None:
        self.entered: list[int] = []
        self.asked = [count() for _ in intervals]
        self._name, self._fair, self._threads = name, fair, list[Thread]()
        for number, interval in enumerate(intervals):
            before = blocked_clients()
            self._threads.append(Thread(target=self._take_turn, args=(number, interval)))
            self._threads[-1].start()
            wait_until(lambda before=before: blocked_clients() > before, what=f"{number} waits")

    def _take_turn(self, number: int, interval: float) -> None:
        lock = a_lock(self._name, fair=self._fair)
        note_for_long(lock)
        ask = lock._ask
        lock._ask = lambda **call: (next(self.asked[number]), ask(**call))[1]  # type: ignore[method-assign]
        if lock.acquire(timeout_seconds=PATIENCE_SECONDS, wait_interval_seconds=interval):
            self.entered.append(number)
            lock.release()

    def looks_of_first(self) -> int:
        """Return how often the first has asked, this question counted with it."""
        return next(self.asked[0])

    def ends(self) -> list[int]:
        """Return the order in which they had the lock."""
        for thread in self._threads:
            thread.join(timeout=2 * PATIENCE_SECONDS)
        return self.entered


def leaves_late(leave: Callable[[WaitingPlace], None]) -> Callable[[WaitingPlace], None]:
    """Return a leave that lets the server end the wait first: a call that is cut before is not counted."""

    def wait_and_leave(place: WaitingPlace) -> None:
        if place._connection is not None:
            place._connection.can_read(timeout=PATIENCE_SECONDS)
        leave(place)

    return wait_and_leave


def never_keeps(wait: Callable[..., str | None]) -> Callable[..., str | None]:
    """Return a wait whose place is given up at every look: anyone who comes back stands at the end."""

    def wait_and_leave(place: WaitingPlace, *args: object, **options: object) -> str | None:
        try:
            return wait(place, *args, **options)
        finally:
            place.leave()

    return wait_and_leave


@pytest.mark.parametrize("kept", [True, False])
def test_the_order_of_coming_holds_for_waits_of_any_length(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, patient_grants: None, kept: bool
) -> None:
    """The control gives its place up whenever it looks; the first, who looks most often, is then the last."""
    if kept:
        assert order_of_turns(new_sku(), kept=True) == [0, 1, 2, 3]
        return
    monkeypatch.setattr(WaitingPlace, "wait", never_keeps(WaitingPlace.wait))
    # By chance all may come back in the old order, but not each time.
    assert any(order_of_turns(new_sku(), kept=False) != [0, 1, 2, 3] for _ in range(TRIES))


def order_of_turns(name: str, *, kept: bool) -> list[int]:
    """Let four wait for longer than the first looks, and return the order in which they have the lock."""
    holder = a_lock(name)
    assert holder.acquire()
    before = blocked_clients()
    row = Row(holder.name, [0.1, 1, 1, 1])
    everybody_looked = time.monotonic() + 2.5
    wait_until(lambda: time.monotonic() > everybody_looked)
    wait_until(lambda: row.looks_of_first() > 4, what="the first has looked, and lost no turn by it")
    wait_until(lambda: blocked_clients() >= before + 4 or not kept, what="all four wait at the list")
    assert holder.release()
    return row.ends()


def wait_in_a_process(name: str, pipe: Connection) -> None:
    """Wait for the lock in a process of its own; nobody ever hears that it has it."""
    pipe.send(os.getpid())
    a_lock(name).acquire(timeout_seconds=60)
    pipe.send("has it")
    pipe.recv()


@pytest.mark.parametrize(("sign", "seconds"), [(signal.SIGKILL, 0.9), (signal.SIGSTOP, 10.0)])
def test_a_waiter_that_died_in_the_middle_is_skipped(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, sign: signal.Signals, seconds: float
) -> None:
    """Dead: at once, its connection is gone. Only frozen: after the life of the grant. The others keep their order."""
    # Long enough that no waiter of ours loses its grant because the machine stood still.
    monkeypatch.setattr("inventory.locks.lock.GRANT_TTL_MS", 60_000 if sign == signal.SIGKILL else 5000)
    assert_waits_at_most(seconds, lambda: seconds_behind_a_waiter(new_sku(), sign=sign))


def seconds_behind_a_waiter(name: str, *, sign: signal.Signals) -> float:
    """Let five wait, of whom the third is struck, and return how long the others take when the lock is given back."""
    holder = a_lock(name)
    assert holder.acquire()
    first, entered = Row(holder.name, [1, 1]), list[tuple[list[int], list[int]]]()
    before, (ours, theirs) = blocked_clients(), FORK.Pipe()
    process = FORK.Process(target=wait_in_a_process, args=(holder.name, theirs), daemon=True)
    process.start()
    wait_until(lambda: blocked_clients() > before)
    last = Row(holder.name, [1, 1])
    os.kill(ours.recv(), sign)
    wait_until(lambda: blocked_clients() == before + (2 if sign == signal.SIGKILL else 3))
    assert holder.release()
    took = seconds_of(lambda: entered.append((first.ends(), last.ends())))
    assert entered == [([0, 1], [0, 1])]
    process.kill()
    process.join()
    return took


@pytest.mark.parametrize("fair", [True, False])
def test_a_lock_whose_holder_died_goes_to_the_longest_waiter(
    new_sku: Callable[[], str], patient_grants: None, fair: bool
) -> None:
    """The control is the unfair lock: anyone who asks first has it, and that is the last one here."""
    if fair:
        assert order_after_a_death(new_sku(), fair=True) == [0, 1, 2]
    else:
        assert any(order_after_a_death(new_sku(), fair=False) != [0, 1, 2] for _ in range(TRIES))


def order_after_a_death(name: str, *, fair: bool) -> list[int]:
    """Let three wait, of whom the last asks most often, and return the order in which they have the lock."""
    holder = a_lock(name, fair=fair)
    assert holder.acquire()
    row = Row(holder.name, [1, 1, 0.02], fair=fair)
    assert run(("DEL", keys.lock(holder.name)))  # it ended, and nobody was woken
    return row.ends()


@pytest.mark.parametrize("fair", [True, False])
def test_who_asks_once_does_not_come_before_those_who_wait(
    new_sku: Callable[[], str], patient_grants: None, fair: bool
) -> None:
    """L13, also where the lock ended by itself. The control is the unfair lock, which anybody may take then."""
    if fair:
        assert not newcomer_gets_it(new_sku(), fair=True)
    else:  # unless the one who waits has looked in that very moment
        assert any(newcomer_gets_it(new_sku(), fair=False) for _ in range(TRIES))


def newcomer_gets_it(name: str, *, fair: bool) -> bool:
    """Let a lock end that one waits for, and say whether somebody who asks then has it before that one."""
    holder, newcomer = a_lock(name, fair=fair), a_lock(name, fair=fair)
    assert holder.acquire()
    row = Row(holder.name, [1], fair=fair)
    assert run(("DEL", keys.lock(holder.name)))  # it ended, and nobody was woken
    got_it = newcomer.acquire(timeout_seconds=0)
    newcomer.release()
    assert row.ends() == [0]
    assert newcomer.acquire(timeout_seconds=0)
    return got_it


@pytest.mark.parametrize("blocking", [True, False])
def test_who_waits_is_blocked_and_does_not_poll(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    """The control has no way to block: it asks again and again."""
    monkeypatch.setattr(WaitingPlace, "leave", leaves_late(WaitingPlace.leave))
    if blocking:
        looks, blocks = looks_and_blocks(new_sku())
        assert looks <= MOST_LOOKS
        assert blocks == 1
        return
    monkeypatch.setattr("inventory.locks.lock.wait_for_signal", refuse)
    # A machine that stands still leaves no time to ask, but not each time.
    assert any(
        looks > MOST_LOOKS and not blocks for looks, blocks in (looks_and_blocks(new_sku()) for _ in range(TRIES))
    )


def looks_and_blocks(name: str) -> tuple[int, int]:
    """Wait in vain for a lock; return how often that asked for it, and how many blocking calls were answered."""
    holder, asked = a_lock(name), count()
    assert holder.acquire()
    waiter = a_lock(holder.name)
    ask = waiter._ask
    waiter._ask = lambda **call: (next(asked), ask(**call))[1]  # type: ignore[method-assign]
    before = blpops()
    assert not waiter.acquire(timeout_seconds=2.2)  # longer than any socket may be silent
    return next(asked), blpops() - before


def refuse(*_args: object, **_options: object) -> str | None:
    raise RedisUnavailable("it cannot block")


def blpops() -> int:
    """Return how many blocking calls the servers have answered."""
    stats = [each.info("commandstats").get("cmdstat_blpop", {}) for each in nodes_of(redis.connect())]
    return sum(int(each.get("calls", 0)) for each in stats)


def test_a_waiter_has_the_lock_soon_after_it_is_given_back(new_sku: Callable[[], str]) -> None:
    """A bar that only polling misses: the machine may be busy. `make bench-locks` holds the real one, 2 ms."""
    assert_waits_at_most(0.4, lambda: median_wait(new_sku()))


def median_wait(name: str) -> float:
    """Return how long, of nine times, a waiter usually waits for a lock that is given back."""
    given_back, taken = list[float](), list[float]()
    for _ in range(9):
        holder, waiter, before = a_lock(name), a_lock(name), blocked_clients()
        assert holder.acquire()
        thread = Thread(
            target=lambda waiter=waiter: waiter.acquire(timeout_seconds=60) and taken.append(time.monotonic())
        )
        thread.start()
        wait_until(lambda before=before: blocked_clients() > before)
        given_back.append(time.monotonic())
        assert holder.release()
        thread.join(timeout=PATIENCE_SECONDS)
        assert waiter.release()
    waits = [after - before for before, after in zip(given_back, taken, strict=True)]
    return statistics.median(waits)


def note_when_taken(lock: Lock, taken: list[float]) -> None:
    if lock.acquire(timeout_seconds=10):
        taken.append(time.monotonic())


def test_who_gave_up_leaves_no_blocked_connection(new_sku: Callable[[], str]) -> None:
    holder = a_lock(new_sku())
    before = blocked_clients()
    assert holder.acquire()
    assert not a_lock(holder.name).acquire(timeout_seconds=0.3)
    wait_until(lambda: blocked_clients() == before)
    assert holder.release()
    assert run(("GET", keys.lock(holder.name)))[0] is None


@ON_ONE_KIND
def test_a_word_is_heard_by_whoever_keeps_a_place(new_sku: Callable[[], str]) -> None:
    place, key = WaitingPlace(), keys.lock_signals(new_sku())
    try:
        assert redis.wait_for_signal(redis.connect(), key, seconds=0.05, place=place, place_seconds=30) is None
        run(("RPUSH", key, "a word"), ("PEXPIRE", key, 1000))
        assert redis.wait_for_signal(redis.connect(), key, seconds=1, place=place, place_seconds=30) == "a word"
    finally:
        place.leave()


@contextmanager
def client_behind_a_proxy(*, timeout_seconds: float) -> Iterator[tuple[redis.Client, Proxy]]:
    """Return a client that sends nothing twice, and the proxy between it and the server."""
    address = urlsplit(settings.REDIS_URL)
    assert address.port
    with proxy_to(address.port) as proxy:
        through = address._replace(netloc=f":{address.password}@127.0.0.1:{proxy.port}").geturl()
        with closing(redis.connect_once(through, timeout_seconds=timeout_seconds)) as once:
            yield once, proxy


@ON_ONE_KIND
def test_a_silent_server_is_waited_for_once_a_command(new_sku: Callable[[], str]) -> None:
    """The control is the look into a connection that is not open: it opens one, and waits for that as well."""
    key = keys.lock_signals(new_sku())
    with client_behind_a_proxy(timeout_seconds=3) as (once, proxy):
        redis.run_script(once, "extend", keys=[key], args=["x", 0, "look"])
        proxy.black_hole = True
        opened = []
        for _ in range(3):
            before = proxy.accepted
            with pytest.raises(RedisUnavailable):
                redis.run_script(once, "extend", keys=[key], args=["x", 0, "look"])
            opened.append(proxy.accepted - before)
        assert opened == [0, 1, 1]


@ON_ONE_KIND
def test_a_kept_connection_that_was_closed_is_not_used(new_sku: Callable[[], str]) -> None:
    """Also by a client that sends nothing twice. The control is a connection that is closed while a caller waits."""
    key = keys.lock_signals(new_sku())
    with client_behind_a_proxy(timeout_seconds=30) as (once, proxy):
        for _ in range(3):
            assert redis.run_script(once, "extend", keys=[key], args=["x", 0, "look"]) == 0
            proxy.reset_all()
        place, before = WaitingPlace(), blocked_clients()
        assert redis.wait_for_signal(once, key, seconds=0.01, place=place, place_seconds=30) is None
        wait_until(lambda: blocked_clients() > before)
        proxy.reset_all()
        with pytest.raises(RedisUnavailable):
            redis.wait_for_signal(once, key, seconds=1, place=place, place_seconds=30)
