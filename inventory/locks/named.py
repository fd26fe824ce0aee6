"""The lock under the names of the articles: lock, unlock, unlock_all, expire, is_locking, by name and caller.
Never holds a rule of its own: each is one call of lock.py.

Nested and concurrent callers exclude each other, whether they are threads or asyncio tasks. `lock` returns an id; with
the id any thread or task of this process may unlock, lengthen and ask: what locks in `asyncio.to_thread` needs it.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Literal, NamedTuple
from weakref import ref

from inventory.exceptions import LockLost, RedisUnavailable
from inventory.locks.arguments import HIGHEST_WHOLE, MAX_SECONDS, checked_name, checked_number, checked_text
from inventory.locks.base import AnyLock
from inventory.locks.lock import Lock, release_all
from inventory.redis import connect

EXPIRE_SECONDS = 15
MAX_EXPIRE_SECONDS = 30 * 24 * 3600
WAIT_INTERVAL_SECONDS = 0.1
# A lock kept by a hung thread is given up after this many of its lives (L6), counted from its last `expire`.
MAX_HOLD_LIVES = 10


class _Held(NamedTuple):
    """A lock and the caller that took it."""

    lock: Lock
    caller: ref[Any]


_HELD: dict[str, _Held] = {}


def lock(
    name: str | int,
    timeout: float = 0,
    expire: float = EXPIRE_SECONDS,
    wait_interval: float = WAIT_INTERVAL_SECONDS,
) -> str | Literal[False]:
    """Take the lock of `name`, waiting up to `timeout` seconds (0 = one try); return its id, or False (S1).

    False also when the caller has it already. expire: seconds it lives without renewal, 0.1 to 30 days; wait_interval:
    seconds between two tries at most; a lock that is given back wakes its next holder at once. A wait stops the event
    loop: in a task use timeout 0, or `asyncio.to_thread`. Raises InvalidRequest (S16), RedisUnavailable.
    """
    text = _text(name)
    checked_number(timeout, argument="timeout", minimum=0, maximum=MAX_SECONDS, lock=text)
    checked_number(expire, argument="expire", minimum=0.1, maximum=MAX_EXPIRE_SECONDS, lock=text)
    checked_number(wait_interval, argument="wait_interval", minimum=0.001, maximum=MAX_SECONDS, lock=text)
    ttl_ms = int(expire * 1000)
    one = Lock(connect(), text, ttl_ms=ttl_ms, max_hold_ms=MAX_HOLD_LIVES * ttl_ms, on_lost=_forget)
    if not one.acquire(timeout_seconds=timeout, wait_interval_seconds=wait_interval):
        return False
    _HELD[text] = _Held(one, ref(_caller()))
    return one.token


def unlock(name: str | int, lock_id: str | None = None) -> bool:
    """Give the lock of `name` back; False: it is not the caller's, nor that of `lock_id`, any more (S3).

    Raises InvalidRequest, RedisUnavailable: the call may be repeated then.
    """
    one = _lock_of(name, lock_id)
    if one is None:
        return False
    held = _HELD.get(one.name)
    _forget(one)
    try:
        return one.release()
    except RedisUnavailable:
        if held is not None:
            _HELD.setdefault(one.name, held)  # its key may still be there: the call may be repeated
        raise


def unlock_all() -> bool:
    """Give back all locks of this process, newest first; say whether all were still ours (S4)."""
    _HELD.clear()
    return release_all()


def expire(name: str | int, seconds: float, lock_id: str | None = None) -> bool:
    """Let the lock of `name` live `seconds` (≥ 1) from now (S5); False: it is not the caller's, nor that of `lock_id`.

    The lock is kept that long, and the ten lives after which it is given up count from now on. Raises InvalidRequest,
    RedisUnavailable.
    """
    one = _lock_of(name, lock_id)
    checked_number(seconds, argument="seconds", minimum=1, maximum=MAX_SECONDS, lock=_text(name))
    return one is not None and one.expire(seconds)


def is_locking(name: str | int, lock_id: str | None = None) -> bool:
    """Say whether the caller, or the holder of `lock_id`, has the lock of `name`, as the server sees it (S6).

    Raises InvalidRequest, RedisUnavailable.
    """
    one = _lock_of(name, lock_id)
    return one is not None and one.is_locking(remote=True)


def check(name: str | int, lock_id: str | None = None) -> int:
    """Return the fence of the caller's lock, or of that of `lock_id`. Raises LockLost when it is not surely ours."""
    one = _lock_of(name, lock_id)
    if one is None:
        raise LockLost(f"{name} is not locked by this caller")
    one.check()
    return one.fence


def _text(name: str | int) -> str:
    return checked_name(str(name) if type(name) is int and name <= HIGHEST_WHOLE else name)  # type: ignore[arg-type]


def _caller() -> object:
    """Return the asyncio task that runs, else the thread."""
    try:
        return asyncio.current_task() or threading.current_thread()
    except RuntimeError:  # no event loop runs in this thread
        return threading.current_thread()


def _lock_of(name: str | int, lock_id: str | None) -> Lock | None:
    held = _HELD.get(_text(name))
    if lock_id is not None:
        checked_text(lock_id, argument="lock_id", minimum=1, maximum=500, lock=_text(name))
        return held.lock if held and held.lock.token == lock_id else None
    return held.lock if held and held.caller() is _caller() else None


def _forget(one: AnyLock) -> None:
    held = _HELD.get(one.name)
    if held and held.lock is one:
        _HELD.pop(one.name, None)
