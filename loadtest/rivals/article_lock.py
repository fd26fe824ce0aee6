"""The lock of the articles, step by step as they have it: SETNX, then EXPIRE; GET, then DEL; another try each 100 ms.
Keeps their flaws on purpose: EXPIRE is given a moment instead of seconds, a lock without an end is taken over without
a check, and its value is not unique. Never used by the shop.
"""

from __future__ import annotations

import time

from loadtest.rivals.stores import redis_client

EXPIRE_SECONDS = 15
TRY_AGAIN_SECONDS = 0.1


class ArticleLock:
    """One caller's locks: it remembers what it wrote."""

    def __init__(self) -> None:
        self._mine: dict[str, int] = {}

    def lock(self, name: str, *, timeout_seconds: float = 0, expire_seconds: int = EXPIRE_SECONDS) -> bool:
        """Take the lock `name`, trying for `timeout_seconds`; say whether it is ours (S1)."""
        now = time.time()
        give_up_at, expires_at = now + timeout_seconds, int(now) + expire_seconds
        key, client = _key(name), redis_client()
        while True:
            if client.setnx(key, expires_at):
                client.expire(key, expires_at)
                self._mine[name] = expires_at
                return True
            if client.ttl(key) < 0:  # somebody died between the two steps, or is just between them (S2)
                client.set(key, expires_at)
                self._mine[name] = expires_at
                return True
            if timeout_seconds <= 0 or give_up_at < time.time():
                return False
            time.sleep(TRY_AGAIN_SECONDS)

    def is_locking(self, name: str) -> bool:
        """Say whether Redis has what we wrote (S6)."""
        value = redis_client().get(_key(name))
        return value is not None and self._mine.get(name) == int(value)

    def unlock(self, name: str) -> bool:
        """Give the lock back if it is ours (S3)."""
        if not self.is_locking(name):
            return False
        redis_client().delete(_key(name))
        del self._mine[name]
        return True


def _key(name: str) -> str:
    return f"rival:Lock:{name}"
