"""What every kind of lock does without asking a server: knows its hold, hears of its loss, guards a block.
Never takes or gives back a lock itself.
"""

from __future__ import annotations

import os
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Literal, Self

import structlog

from inventory.exceptions import LockInUse, LockLost, RedisUnavailable, Unavailable
from inventory.locks.arguments import (
    MAX_MS,
    MAX_SECONDS,
    checked_call,
    checked_client,
    checked_name,
    checked_number,
    refused,
)
from inventory.locks.lease import Hold, Holding, HoldState
from inventory.locks.statistics import STATISTICS
from inventory.locks.token import new_token
from inventory.locks.watchdog import WATCHDOG
from inventory.redis import Client, keys

log = structlog.get_logger(__name__)

MIN_TTL_MS = 100
ExtendMode = Literal["set", "add"]


def lock_keys(name: str) -> list[str]:
    """Return the keys that scripts/locks/acquire.lua and scripts/locks/force.lua declare."""
    return [keys.lock(name), keys.fence(name), keys.lock_signals(name), keys.lock_waiters(name)]


class AnyLock(Holding):
    """A lock of one name on one server or many. client: the server that keeps the statistics; the rest as in Lock.

    An object is one holder: another thread or task that wants the lock makes an object of its own.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        ttl_ms: int,
        max_hold_ms: int | None,
        on_lost: Callable[[AnyLock], None] | None,
    ) -> None:
        self.name = checked_name(name)
        self._ttl_ms = int(self._number(ttl_ms, "ttl_ms", minimum=MIN_TTL_MS))
        if max_hold_ms is not None:
            self._number(max_hold_ms, "max_hold_ms", minimum=MIN_TTL_MS)
        checked_client(client, lock=name)
        checked_call(on_lost, argument="on_lost", lock=name)
        self.token = new_token()
        self.fence = 0
        self.lost = threading.Event()
        self.hold: Hold | None = None
        self._client = client
        self._lock_keys = lock_keys(name)
        self._max_hold_ms = max_hold_ms
        self._on_lost = on_lost
        self._process_id = os.getpid()
        self._taking = threading.Lock()

    @abstractmethod
    def acquire(self, *, timeout_seconds: float | None = 0, blocking: bool = True) -> bool:
        """Try to take the lock for up to `timeout_seconds` (0: one try, None: without end); say whether it is ours."""

    @abstractmethod
    def extend(self, milliseconds: int, *, mode: ExtendMode = "set") -> bool:
        """Let the lock live `milliseconds` from now, or longer than now; False when it is not ours."""

    @property
    def release_keys(self) -> list[str]:
        """The keys of the release script."""
        return [self._lock_keys[0], *self._lock_keys[2:]]

    @property
    def renewed_with(self) -> object:
        """What this lock is renewed together with: by one thread, in one round trip if it can be."""
        return self._client

    def is_valid(self) -> bool:
        """Say whether the lock is surely ours by the local clock; asks no server."""
        return self.hold is not None and self.hold.is_valid()

    def check(self) -> None:
        """Raise LockLost unless the lock is surely still ours by the local clock."""
        if self.is_valid():
            return
        if self.hold is not None:
            self.hold.lose_if_over()
        raise LockLost(f"the lock of {self.name} is no longer ours")

    def expire(self, seconds: float) -> bool:
        """Let the lock live `seconds` (≥ 1) from now, for long work (S5); False when it is not ours.

        The longest hold counts from this call on. Raises InvalidRequest, RedisUnavailable.
        """
        return self.extend(int(self._number(seconds, "seconds", minimum=1, maximum=MAX_SECONDS) * 1000))

    def report_loss(self, hold: Hold, *, reason: str) -> None:
        """Note and log the loss, set `lost`, call on_lost."""
        WATCHDOG.remove(hold)
        STATISTICS.count(self._client, self.name, "losses")
        STATISTICS.held(self._client, self.name, seconds=time.monotonic() - hold.since)
        log.warning("lock lost", action="lock_lost", lock=self.name, fence=self.fence, reason=reason)
        if hold is self.hold:  # not a later hold of the same object
            self.lost.set()
        if self._on_lost is not None:
            try:
                self._on_lost(self)
            except Exception:  # a holder's mistake must not end the renewals of all others
                log.exception("on_lost failed", action="on_lost_failed", lock=self.name)

    def count_failed_renewal(self) -> None:
        """Count one renewal without an answer."""
        STATISTICS.count(self._client, self.name, "failed_renewals")

    def end_hold(self) -> bool:
        """End the hold on this side, so that no renewal counts any more; say whether it was surely ours."""
        hold = self.hold
        if hold is None:
            return False
        was_valid = hold.is_valid()
        if hold.end():
            WATCHDOG.remove(hold)
            STATISTICS.held(self._client, self.name, seconds=time.monotonic() - hold.since)
        return was_valid

    def _begin_acquire(self) -> None:
        """Let one caller take the lock with this object; it ends that with self._taking.release().

        One token a hold; the same token as long as a call with it may have been heard and not answered (L1).
        Raises LockInUse.
        """
        if os.getpid() != self._process_id:
            self._taking = threading.Lock()  # in a forked child: the thread that had it is not there
            self._process_id, self.token, self.hold = os.getpid(), new_token(), None
        if not self._taking.acquire(blocking=False):
            raise LockInUse(f"this object is taking the lock of {self.name}; use one object for each caller")
        if self.is_valid():
            self._taking.release()
            raise LockInUse(f"this object holds the lock of {self.name}; use one object for each caller")
        if self.hold is not None:
            self.hold.lose_if_over()  # told now: nobody may take it for a loss of the next hold
            self.token, self.hold = new_token(), None
        self.lost.clear()

    def _begin_hold(self, *, fence: int, since: float) -> None:
        self.fence = fence
        self.hold = Hold(self, ttl_ms=self._ttl_ms, since=since, max_hold_ms=self._max_hold_ms)
        WATCHDOG.add(self.hold)

    def _is_held(self) -> bool:
        return self.hold is not None and self.hold.state is HoldState.HELD

    def _released(self, *, was_there: bool, held: bool) -> bool:
        """Say whether the lock was ours until this release. held: no loss was told, nor was it given back before."""
        if held and not was_there:
            log.warning("lock was not ours any more", action="release_failed", lock=self.name, fence=self.fence)
            self.lost.set()
        return was_there and not self.lost.is_set()

    def _number(self, value: float, argument: str, *, minimum: float, maximum: float = MAX_MS) -> float:
        return checked_number(value, argument=argument, minimum=minimum, maximum=maximum, lock=self.name)

    def _check_extend(self, milliseconds: int, mode: ExtendMode) -> None:
        self._number(milliseconds, "milliseconds", minimum=1)
        if mode not in ("set", "add"):
            raise refused("mode", "must be 'set' or 'add'", mode, lock=self.name)

    def __enter__(self) -> Self:
        """Take the lock or raise Unavailable: the block is never entered without it (L23)."""
        if not self.acquire():
            raise Unavailable(f"{self.name} is locked by another worker")
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: object) -> None:
        """Give the lock back. Raises LockLost when it was lost inside a block that did not fail by itself."""
        try:
            was_ours = self.release()
        except RedisUnavailable:
            if kind is None:
                raise
            return
        if not was_ours and self.lost.is_set() and kind is None:
            raise LockLost(f"the lock of {self.name} was lost before its block had ended")
