"""Every lock that is compared, behind one interface, opened as its own documentation shows.
Imports a rival only when it is asked for, so that only its own process has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.conf import settings

from inventory.locks.lock import Lock
from inventory.redis import Client, connect, connect_once
from loadtest.bench.load.loop import LoadFailed

LIFE_SECONDS = 10
FAIR, UNFAIR = "ours, fair", "ours, unfair"
REDIS_PY, REDIS_PY_FAST = "redis-py Lock", "redis-py Lock, sleep 1 ms"
REDIS_LOCK, POTTERY = "python-redis-lock", "pottery Redlock"
RAW = "two raw script calls"
RIVAL_MODULES = {REDIS_LOCK: "redis_lock", POTTERY: "pottery"}
# How often redis-py's Lock polls.
SLEEP_SECONDS = {REDIS_PY: 0.1, REDIS_PY_FAST: 0.001}
# No lock library at all: the two script calls that any safe lock needs, and nothing round them.
TAKE = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])"
GIVE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


def load_lock(*, side: str) -> None:
    """Import the library of `side`."""
    if side in RIVAL_MODULES:
        import_module(RIVAL_MODULES[side])


def rival_client() -> Client:
    """Return a client as the redis package makes it by default: rivals are not given our options."""
    return type(connect_once(settings.REDIS_URL, timeout_seconds=1)).from_url(settings.REDIS_URL)


@dataclass(frozen=True, kw_only=True)
class AnyLock:
    """One lock of one name, given up only when it is released or its life is over.

    acquire: takes it, however long that takes; release: gives it back; extend: lets it live its whole life from now
    on, None: it cannot. Each raises an error when it did not do so.
    """

    acquire: Callable[[], object]
    release: Callable[[], object]
    extend: Callable[[], object] | None


def _ours(name: str, *, life_seconds: float, fair: bool) -> AnyLock:
    lock = Lock(connect(), name, ttl_ms=int(life_seconds * 1000), fair=fair)
    return AnyLock(
        acquire=lambda: sure(lock.acquire(timeout_seconds=None)),
        release=lambda: sure(lock.release()),
        extend=lambda: sure(lock.extend(LIFE_SECONDS * 1000)),
    )


def _redis_py(name: str, *, client: Client, life_seconds: float, sleep_seconds: float) -> AnyLock:
    lock = client.lock(name, timeout=life_seconds, sleep=sleep_seconds)
    return AnyLock(
        acquire=lambda: sure(lock.acquire()),
        release=lambda: lock.release(),
        extend=lambda: sure(lock.reacquire()),
    )


def _rival(lock: Any) -> AnyLock:
    return AnyLock(
        acquire=lambda: sure(lock.acquire()),
        release=lambda: lock.release(),
        extend=lambda: lock.extend(),
    )


def _raw(name: str, *, life_seconds: float) -> AnyLock:
    client, take, give = raw_calls(name, life_seconds=life_seconds)
    return AnyLock(
        acquire=lambda: sure(client.execute_command(*take)),
        release=lambda: sure(client.execute_command(*give)),
        extend=None,
    )


def raw_calls(name: str, *, life_seconds: float) -> tuple[Client, tuple[Any, ...], tuple[Any, ...]]:
    """Return a client that knows both scripts, and the two commands."""
    client = connect()
    digests = []
    for text in (TAKE, GIVE):
        client.script_load(text)
        digests.append(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
    take, give = (("EVALSHA", digest, 1, f"raw:{name}", "token") for digest in digests)
    return client, (*take, int(life_seconds * 1000)), give


def sure(answer: object) -> None:
    """Raise LoadFailed when a call did not do what was measured."""
    if not answer:
        raise LoadFailed(f"a call answered {answer!r}: nothing was measured")


def open_locks(side: str, names: list[str], *, life_seconds: float = LIFE_SECONDS) -> list[AnyLock]:
    """Return a lock of `side` for each name, over one client."""
    if side in (FAIR, UNFAIR):
        return [_ours(name, life_seconds=life_seconds, fair=side == FAIR) for name in names]
    if side == RAW:
        return [_raw(name, life_seconds=life_seconds) for name in names]
    client = rival_client()
    if side in SLEEP_SECONDS:
        pause = SLEEP_SECONDS[side]
        return [_redis_py(name, client=client, life_seconds=life_seconds, sleep_seconds=pause) for name in names]
    library: Any = import_module(RIVAL_MODULES[side])
    if side == REDIS_LOCK:  # waits with BLPOP for any release
        return [_rival(library.Lock(client, name, expire=life_seconds)) for name in names]
    # pottery's Redlock on the one server: polls at a random moment within 200 ms.
    options: dict[str, Any] = {"masters": {client}, "auto_release_time": life_seconds, "num_extensions": 1000}
    return [_rival(library.Redlock(key=name, **options)) for name in names]
