"""Our lock under the names of python-redis-lock: its tests import this module in the place of the library.
Imitates nothing that our lock does not do: what differs stands in deviations.py.
"""

from __future__ import annotations

import logging
from typing import Any, Self

from our_lock import TTL_SECONDS, client_of, holder_of, name_keys

from inventory.exceptions import InvalidRequest, LockInUse
from inventory.locks.lock import Lock as OurLock
from inventory.locks.lock import force_release

log = logging.getLogger(__name__)
name_keys("lock:{}".format)


class AlreadyAcquired(RuntimeError): ...


class NotAcquired(RuntimeError): ...


class AlreadyStarted(RuntimeError): ...


class TimeoutNotUsable(RuntimeError): ...


class InvalidTimeout(RuntimeError, ValueError): ...


class TimeoutTooLarge(RuntimeError): ...


class NotExpirable(RuntimeError): ...


class Lock:
    """Our lock as python-redis-lock's: without auto_renewal it is held no longer than `expire`."""

    def __init__(
        self,
        redis_client: Any,
        name: str,
        expire: float | None = None,
        auto_renewal: bool = False,
        signal_expire: int = 1000,
        blocking: bool = True,
    ) -> None:
        self._client, self._short_name, self._name = client_of(redis_client), name, f"lock:{name}"
        self._blocking, self._expire = blocking, expire
        self._life_ms = int((expire or TTL_SECONDS) * 1000)
        longest = self._life_ms if expire and not auto_renewal else None
        self._lock = OurLock(self._client, name, ttl_ms=self._life_ms, max_hold_ms=longest)

    @property
    def id(self) -> str:
        return self._lock.token

    def get_owner_id(self) -> str | None:
        return holder_of(self._client, self._short_name)

    def locked(self) -> bool:
        return self.get_owner_id() is not None

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        log.debug("Acquiring Lock(%r) ...", self._name)
        try:
            taken = self._lock.acquire(blocking=blocking, timeout_seconds=timeout)
        except LockInUse as error:
            raise AlreadyAcquired from error
        except InvalidRequest as error:
            raise InvalidTimeout from error
        log.info("Acquired Lock(%r)." if taken else "Failed to acquire Lock(%r).", self._name)
        return taken

    def extend(self, expire: float | None = None) -> None:
        if not self._lock.extend(self._life_ms if expire is None else int(expire * 1000)):
            raise NotAcquired(self._name)

    def release(self) -> None:
        log.debug("Releasing Lock(%r).", self._name)
        if not self._lock.release():
            raise NotAcquired(self._name)

    def reset(self) -> None:
        force_release(self._client, self._short_name)

    def __enter__(self) -> Self:
        if not self.acquire(blocking=self._blocking):
            raise NotAcquired(self._name)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def reset_all(redis_client: Any) -> None:
    client = client_of(redis_client)
    for key in client.scan_iter("lock:*"):
        force_release(client, key.removeprefix("lock:"))
