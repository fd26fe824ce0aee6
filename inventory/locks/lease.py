"""One hold of a lock as its own process sees it: until when it is surely ours, and that it ends once.
Never talks to Redis; clocks are monotonic.
"""

from __future__ import annotations

import os
import threading
import time
from abc import abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from inventory.redis import Argument, Client


class Holding(Protocol):
    """A lock of any kind, as the watchdog sees it."""

    name: str
    token: str

    @property
    @abstractmethod
    def renewed_with(self) -> object:
        """What this lock is renewed together with."""

    @abstractmethod
    def renewal_call(self, hold: Hold) -> tuple[Client, Sequence[str], Sequence[Argument]] | None:
        """Return client, keys and arguments of the extend script, or None when the lock has renewed `hold` itself."""

    @abstractmethod
    def release(self) -> bool:
        """Give the lock back."""

    @abstractmethod
    def report_loss(self, hold: Hold, *, reason: str) -> None:
        """Hear that `hold` was lost; called once."""

    @abstractmethod
    def give_back(self, hold: Hold) -> None:
        """Remove the key of a hold that is over, if it is still there; never raises RedisUnavailable."""

    @abstractmethod
    def count_failed_renewal(self) -> None:
        """Hear that one renewal had no answer."""


class HoldState(Enum):
    """What became of a hold; it leaves HELD once and never comes back."""

    HELD = "held"
    ENDED = "ended"
    LOST = "lost"


def lease_end(since: float, *, life_ms: float) -> float:
    """Return until when a lease is surely ours that was asked for at `since`; both in monotonic seconds."""
    # 1 % and 2 ms are taken off for the drift between our clock and the server's.
    return since + life_ms / 1000 * 0.99 - 0.002


class Hold:
    """From taking a lock to its end. since: monotonic seconds before the taking call; max_hold_ms: None = no cap."""

    def __init__(self, lock: Holding, *, ttl_ms: int, since: float, max_hold_ms: int | None) -> None:
        self.lock = lock
        self.token = lock.token
        self.ttl_ms = ttl_ms
        self.since = since
        self.ends_by = since + max_hold_ms / 1000 if max_hold_ms else float("inf")
        self.state = HoldState.HELD
        self.deadline = 0.0
        self.renew_at = 0.0
        self._thread = threading.current_thread()
        self._process_id = os.getpid()
        self._mutex = threading.Lock()
        self._max_hold_ms = max_hold_ms
        self.renewed(since=since, life_ms=ttl_ms)

    def renewed(self, *, since: float, life_ms: int, by_holder: bool = False) -> bool:
        """Count the lease from `since`, taken before the call; False when the hold has ended meanwhile (L5).

        by_holder: the holder asked for it, so it is not stuck: the longest hold counts from now on, and never ends
        before the life that it asked for (S5).
        """
        with self._mutex:
            if self.state is not HoldState.HELD:
                return False
            self.deadline = lease_end(since, life_ms=life_ms)
            # A third of a normal lease has passed then; a lengthened one is not cut short by a renewal.
            self.renew_at = since + (life_ms - self.ttl_ms * 2 / 3) / 1000
            if by_holder and self._max_hold_ms is not None:
                self.ends_by = since + max(self._max_hold_ms, life_ms) / 1000
            return True

    def shorten(self, *, since: float, life_ms: int) -> None:
        """Count on no longer life than the one about to be asked for at `since`: its answer may be lost (L1)."""
        with self._mutex:
            self.deadline = min(self.deadline, lease_end(since, life_ms=life_ms))

    def postpone(self) -> None:
        """Try the renewal again after a tenth of the TTL (L4)."""
        self.renew_at = time.monotonic() + self.ttl_ms / 10_000

    def loss_reason(self) -> str:
        """Return why this hold must not be renewed any more, or an empty text."""
        now = time.monotonic()
        if now >= self.deadline:
            return "not renewed in time"
        if now >= self.ends_by:
            return "held longer than max_hold_ms"
        return "" if self._thread.is_alive() else "the thread that took it has ended"

    def is_valid(self) -> bool:
        """Say whether the lock is surely still ours by the local clock, in the process that took it."""
        return (
            self.state is HoldState.HELD
            and time.monotonic() < min(self.deadline, self.ends_by)
            and self._process_id == os.getpid()
        )

    def end(self) -> bool:
        """The lock is about to be given back: no renewal counts any more. False when it had ended before."""
        return self._leave(HoldState.ENDED)

    def lose(self, *, reason: str) -> None:
        """The lock is not ours any more: tell its holder, once."""
        if self._leave(HoldState.LOST):
            self.lock.report_loss(self, reason=reason)

    def lose_if_over(self) -> bool:
        """Lose the hold when it must not be renewed any more, and say whether that is so.

        A key that it leaves on the server is given back: it would lock others out for nobody (L6).
        """
        reason = self.loss_reason()
        is_there = time.monotonic() < self.deadline
        if reason and self._leave(HoldState.LOST):
            self.lock.report_loss(self, reason=reason)
            if is_there:
                self.lock.give_back(self)
        return bool(reason)

    def disown(self) -> None:
        """In a forked child: what the parent holds is not ours. Takes no mutex: another thread may have had it."""
        self.state = HoldState.LOST
        self.deadline = 0.0

    def _leave(self, state: HoldState) -> bool:
        with self._mutex:
            if self.state is not HoldState.HELD:
                return False
            self.state = state
            self.deadline = 0.0
            return True
