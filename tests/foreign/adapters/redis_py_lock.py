"""A pytest plugin that puts our lock in the place of redis.lock.Lock, with its interface.
Imitates nothing that our lock does not do: what differs stands in deviations.py.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any, Self

from our_lock import TTL_SECONDS, client_of, holder_of, name_keys

from inventory.locks.lock import Lock as OurLock

library = import_module("redis.lock")
errors = import_module("redis.exceptions")
name_keys(str)


class Lock:
    """Our lock as redis-py's: timeout is its life, after which it is not renewed."""

    def __init__(
        self,
        redis: Any,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.name, self._client = name, client_of(redis)
        self._life_ms = int((timeout or TTL_SECONDS) * 1000)
        self._sleep, self._blocking, self._timeout = sleep, blocking, blocking_timeout
        self._raises = raise_on_release_error
        self._lock = OurLock(
            self._client, name, ttl_ms=self._life_ms, max_hold_ms=None if timeout is None else self._life_ms
        )
        self.local = SimpleNamespace(token=None)

    def acquire(self, blocking: bool | None = None, token: str | None = None) -> bool:
        taken = self._lock.acquire(
            timeout_seconds=self._timeout,
            blocking=self._blocking if blocking is None else blocking,
            wait_interval_seconds=self._sleep,
        )
        if taken:
            self.local.token = self._lock.token.encode()
        return taken

    def release(self) -> None:
        self._check_token()
        self.local.token = None
        self._check(self._lock.release())

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        self._check_token()
        return self._check(self._lock.extend(int(additional_time * 1000), mode="set" if replace_ttl else "add"))

    def reacquire(self) -> bool:
        self._check_token()
        return self._check(self._lock.extend(self._life_ms))

    def locked(self) -> bool:
        return holder_of(self._client, self.name) is not None

    def owned(self) -> bool:
        return self._lock.is_locking(remote=True)

    def __enter__(self) -> Self:
        if not self.acquire():
            raise errors.LockError("not acquired", lock_name=self.name)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.release()
        except errors.LockError:
            if self._raises:
                raise

    def _check_token(self) -> None:
        if self.local.token is None:
            raise errors.LockError("not held", lock_name=self.name)

    def _check(self, was_ours: bool) -> bool:
        if not was_ours:
            raise errors.LockNotOwnedError("lost", lock_name=self.name)
        return True


library.Lock = Lock
