"""What every kind of lock does without asking a server: knows its hold, hears of its loss, guards a block.
Never takes or gives back a lock itself. Called by locks.py and redlock.py.
"""

from __future__ import annotations

import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal, Self

import structlog

from inventory import keys
from inventory.exceptions import InvalidRequest, LockLost, RedisUnavailable, Unavailable
from inventory.lock_hold import Hold
from inventory.lock_owner import new_token
from inventory.lock_statistics import STATISTICS
from inventory.redis import Argument, Client
from inventory.watchdog import WATCHDOG

log = structlog.get_logger(__name__)

FENCE_TTL_MS = 24 * 3600 * 1000
SHORTEST_TTL_MS = 100
ExtendMode = Literal["set", "add"]


def checked_name(name: str) -> str:
    """Return `name`, or raise InvalidRequest: a brace in it would break the hash tag of its keys (L22, S16)."""
    if not isinstance(name, str) or not keys.SKU_PATTERN.fullmatch(name):
        raise InvalidRequest(f"name must match {keys.SKU_PATTERN.pattern}, got {name!r}")
    return name


def checked_number(value: float, *, argument: str, least: float) -> float:
    """Return `value`, or raise InvalidRequest that names the argument when it is below `least` (S16)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        raise InvalidRequest(f"{argument} must be at least {least:g}, got {value!r}")
    return value


class AnyLock(ABC):
    """A lock of one name on one server or many. client: the server that keeps the statistics; the rest as in Lock."""

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
        self._ttl_ms = int(checked_number(ttl_ms, argument="ttl_ms", least=SHORTEST_TTL_MS))
        if max_hold_ms is not None:
            checked_number(max_hold_ms, argument="max_hold_ms", least=SHORTEST_TTL_MS)
        self.token = new_token()
        self.fence = 0
        self.lost = threading.Event()
        self.hold: Hold | None = None
        self._client = client
        self._max_hold_ms = max_hold_ms
        self._on_lost = on_lost
        self._process_id = os.getpid()

    @abstractmethod
    def acquire(self, *, timeout_seconds: float | None = 0, blocking: bool = True) -> bool:
        """Try to take the lock for up to `timeout_seconds` (0: one try, None: without end); say whether it is ours."""

    @abstractmethod
    def release(self) -> bool:
        """Give the lock back; say whether it was still ours."""

    @abstractmethod
    def extend(self, milliseconds: int, *, mode: ExtendMode = "set") -> bool:
        """Let the lock live `milliseconds` from now, or longer than now; False when it is not ours."""

    @abstractmethod
    def renewal_call(self) -> tuple[Client, Sequence[str], Sequence[Argument]] | None:
        """Return client, keys and arguments of the extend script, or None when the lock renews itself."""

    @abstractmethod
    def renew(self, hold: Hold) -> None:
        """Renew `hold` now."""

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
            self.hold.lose(reason=self.hold.trouble() or "the lock is no longer ours")
        raise LockLost(f"the lock of {self.name} is no longer ours")

    def expire(self, seconds: float) -> bool:
        """Let the lock live `seconds` (≥ 1) from now, for long work (S5); False when it is not ours."""
        return self.extend(int(checked_number(seconds, argument="seconds", least=1) * 1000))

    def tell_lost(self, hold: Hold, *, reason: str) -> None:
        """Note and log the loss, set `lost`, call on_lost."""
        WATCHDOG.remove(hold)
        STATISTICS.count(self._client, self.name, "losses")
        STATISTICS.held(self._client, self.name, seconds=time.monotonic() - hold.since)
        log.warning("lock lost", action="lock_lost", lock=self.name, fence=self.fence, reason=reason)
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

    def _renew_token(self) -> None:
        """One token a hold; the same token as long as a call with it may have been heard and not answered (L1)."""
        if os.getpid() != self._process_id or (self.hold is not None and not self.hold.is_valid()):
            self._process_id, self.token, self.hold = os.getpid(), new_token(), None

    def _begin_hold(self, *, fence: int, since: float) -> None:
        self.fence = fence
        if self.hold is not None and self.hold.renewed(since=since, life_ms=self._ttl_ms):
            return
        self.lost.clear()
        self.hold = Hold(self, ttl_ms=self._ttl_ms, since=since, max_hold_ms=self._max_hold_ms)
        WATCHDOG.add(self.hold)

    def __enter__(self) -> Self:
        """Take the lock or raise Unavailable: the block is never entered without it (L23)."""
        if not self.acquire():
            raise Unavailable(f"{self.name} is locked by another worker")
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: object) -> None:
        try:
            self.release()
        except RedisUnavailable:
            if kind is None:
                raise
