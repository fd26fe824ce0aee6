"""Every lock that is compared, behind one interface, opened as its own documentation shows.
Imports a rival only when it is asked for, so that only its own process has it. Called within a hand.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

from django.conf import settings

from inventory.locks.lock import Lock
from inventory.redis import Client, connect, connect_once
from loadtest.bench.load.wire import LoadFailed

LIFE_SECONDS = 10
FAIR, UNFAIR = "ours, fair", "ours, unfair"
REDIS_PY, REDIS_PY_FAST = "redis-py Lock", "redis-py Lock, sleep 1 ms"
REDIS_LOCK, POTTERY = "python-redis-lock", "pottery Redlock"
RAW = "two raw script calls"


RIVAL_MODULES = {REDIS_LOCK: "redis_lock", POTTERY: "pottery"}


def load_lock(*, side: str) -> None:
    """Import the library of `side`."""
    if side in RIVAL_MODULES:
        import_module(RIVAL_MODULES[side])


def rival_client() -> Client:
    """Return a client as the redis package makes it by default: rivals are not given our options."""
    return type(connect_once(settings.REDIS_URL, timeout_seconds=1)).from_url(settings.REDIS_URL)


class AnyLock(ABC):
    """One lock of one name, given up only when it is released or `life_seconds` are over."""

    @abstractmethod
    def acquire(self) -> None:
        """Take the lock, however long that takes. Raises LoadFailed when it was not taken."""

    @abstractmethod
    def release(self) -> None:
        """Give the lock back. Raises an error when it was not ours any more."""


class RenewableLock(AnyLock):
    """One that its holder may keep for longer."""

    @abstractmethod
    def extend(self) -> None:
        """Let the lock live its whole life from now on."""


class OurLock(RenewableLock):
    """inventory/locks/lock.py."""

    def __init__(self, name: str, *, life_seconds: float, fair: bool) -> None:
        self.lock = Lock(connect(), name, ttl_ms=int(life_seconds * 1000), fair=fair)

    def acquire(self) -> None:
        sure(self.lock.acquire(timeout_seconds=None))

    def release(self) -> None:
        sure(self.lock.release())

    def extend(self) -> None:
        sure(self.lock.extend(LIFE_SECONDS * 1000))


class RedisPyLock(RenewableLock):
    """The Lock of the redis package: polls every `sleep_seconds`."""

    def __init__(self, name: str, *, client: Client, life_seconds: float, sleep_seconds: float) -> None:
        self._lock = client.lock(name, timeout=life_seconds, sleep=sleep_seconds)

    def acquire(self) -> None:
        sure(self._lock.acquire())

    def release(self) -> None:
        self._lock.release()

    def extend(self) -> None:
        sure(self._lock.reacquire())


class PythonRedisLock(RenewableLock):
    """python-redis-lock: waits with BLPOP for any release."""

    def __init__(self, name: str, *, client: Client, life_seconds: float) -> None:
        self._lock: Any = import_module("redis_lock").Lock(client, name, expire=life_seconds)

    def acquire(self) -> None:
        sure(self._lock.acquire())

    def release(self) -> None:
        self._lock.release()

    def extend(self) -> None:
        self._lock.extend()


class PotteryLock(RenewableLock):
    """pottery's Redlock on the one server: polls at a random moment within 200 ms."""

    def __init__(self, name: str, *, client: Client, life_seconds: float) -> None:
        redlock: Any = import_module("pottery").Redlock
        self._lock = redlock(key=name, masters={client}, auto_release_time=life_seconds, num_extensions=1000)

    def acquire(self) -> None:
        sure(self._lock.acquire())

    def release(self) -> None:
        self._lock.release()

    def extend(self) -> None:
        self._lock.extend()


class RawCalls(AnyLock):
    """No lock library at all: the two script calls that any safe lock needs, and nothing round them."""

    TAKE = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])"
    GIVE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

    def __init__(self, name: str, *, life_seconds: float) -> None:
        self.client = connect()
        for text in (self.TAKE, self.GIVE):
            self.client.script_load(text)
        self.take = ("EVALSHA", digest(self.TAKE), 1, f"raw:{name}", "token", int(life_seconds * 1000))
        self.give = ("EVALSHA", digest(self.GIVE), 1, f"raw:{name}", "token")

    def acquire(self) -> None:
        sure(self.client.execute_command(*self.take))

    def release(self) -> None:
        sure(self.client.execute_command(*self.give))


def digest(script: str) -> str:
    """Return the name under which Redis knows a script."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


def sure(answer: object) -> None:
    """Raise LoadFailed when a call did not do what was measured."""
    if not answer:
        raise LoadFailed(f"a call answered {answer!r}: nothing was measured")


def open_locks(side: str, names: list[str], *, life_seconds: float = LIFE_SECONDS) -> list[AnyLock]:
    """Return a lock of `side` for each name, over one client."""
    if side in (FAIR, UNFAIR):
        return [OurLock(name, life_seconds=life_seconds, fair=side == FAIR) for name in names]
    if side == RAW:
        return [RawCalls(name, life_seconds=life_seconds) for name in names]
    client = rival_client()
    if side in (REDIS_PY, REDIS_PY_FAST):
        pause = 0.1 if side == REDIS_PY else 0.001
        return [RedisPyLock(name, client=client, life_seconds=life_seconds, sleep_seconds=pause) for name in names]
    kind = {REDIS_LOCK: PythonRedisLock, POTTERY: PotteryLock}[side]
    return [kind(name, client=client, life_seconds=life_seconds) for name in names]
