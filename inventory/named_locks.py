"""The lock under the names of the articles: lock, unlock, unlock_all, expire, is_locking, by name and thread.
Never holds a rule of its own: each is one call of locks.py. Called by whoever knows those articles.
"""

from __future__ import annotations

import threading

from inventory.exceptions import LockLost
from inventory.lock_base import checked_number
from inventory.locks import Lock, release_all
from inventory.redis import connect

EXPIRE_SECONDS = 15
WAIT_INTERVAL_SECONDS = 0.1
# A lock kept by a hung thread is given up after this many of its lives (L6).
LONGEST_HOLD_LIVES = 10


class _Held(threading.local):
    """The locks of one thread, by name."""

    def __init__(self) -> None:
        self.locks: dict[str, Lock] = {}


_HELD = _Held()


def lock(
    name: str,
    timeout: float = 0,
    expire: float = EXPIRE_SECONDS,
    wait_interval: float = WAIT_INTERVAL_SECONDS,
) -> bool:
    """Take the lock of `name`, waiting up to `timeout` seconds (0 = one try); say whether this thread has it (S1).

    expire: seconds it lives without renewal, > 0; wait_interval: seconds between two tries at most; a lock that is
    given back wakes its next holder at once. Raises InvalidRequest (S16), RedisUnavailable.
    """
    checked_number(expire, argument="expire", least=0.1)
    ttl_ms = int(expire * 1000)
    one = _HELD.locks.get(name) or Lock(connect(), name, ttl_ms=ttl_ms, max_hold_ms=LONGEST_HOLD_LIVES * ttl_ms)
    if not one.acquire(timeout_seconds=timeout, wait_interval_seconds=wait_interval):
        return False
    _HELD.locks[name] = one
    return True


def unlock(name: str) -> bool:
    """Give the lock of `name` back, if it is this thread's; say whether it was (S3). Raises RedisUnavailable."""
    one = _HELD.locks.pop(name, None)
    return one is not None and one.release()


def unlock_all() -> bool:
    """Give back all locks of this process, newest first; say whether all were still ours (S4)."""
    _HELD.locks.clear()
    return release_all()


def expire(name: str, seconds: float) -> bool:
    """Let a lock of this thread live `seconds` (≥ 1) from now (S5); False: it is not ours. Raises InvalidRequest."""
    one = _HELD.locks.get(name)
    checked_number(seconds, argument="seconds", least=1)
    return one is not None and one.expire(seconds)


def is_locking(name: str) -> bool:
    """Say whether this thread holds the lock of `name`, as the server sees it (S6). Raises RedisUnavailable."""
    one = _HELD.locks.get(name)
    return one is not None and one.is_locking(remote=True)


def check(name: str) -> int:
    """Return the fence of a lock of this thread. Raises LockLost when it is not surely ours."""
    one = _HELD.locks.get(name)
    if one is None:
        raise LockLost(f"{name} is not locked by this thread")
    one.check()
    return one.fence
