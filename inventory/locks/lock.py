"""A distributed lock with a fence: taken and given back in one script each, handed on to the one that waited longest.
Never promises more than "usually one holder": safety is the fence that the stock row checks.
"""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from inventory.exceptions import RedisUnavailable
from inventory.locks.arguments import MAX_SECONDS, checked_client, checked_flag, checked_name
from inventory.locks.base import AnyLock, ExtendMode, lock_keys
from inventory.locks.lease import Hold, lease_end
from inventory.locks.statistics import STATISTICS
from inventory.locks.token import DICE, new_nonce, new_token
from inventory.locks.watchdog import WATCHDOG
from inventory.redis import (
    MAX_BLOCK_SECONDS,
    Argument,
    Client,
    ScriptCall,
    WaitingPlace,
    keys,
    run_commands,
    run_script,
    run_script_each,
    run_scripts,
    sending_once,
    wait_for_signal,
)

log = structlog.get_logger(__name__)

# How long a waiter that was handed the lock may take to fetch it: the worst stall after one that died (L14).
GRANT_TTL_MS = 1000
# The server ends a waiter's place after that, also when nobody told it that the waiter is gone.
MAX_PLACE_SECONDS = 3600.0


class Lock(AnyLock):
    """A lock of one name that this object may hold; each caller makes an object of its own.

    client: from connect() or connect_once(). name: what is locked (a SKU). ttl_ms: life without renewal, ≥ 100. fair:
    give it to the longest waiter (default), or let anyone push in, which is faster for tiny sections. on_lost: called
    from any thread with this lock when it was lost. max_hold_ms: the longest hold, counted from the last extend by its
    holder, None = as long as the thread that took it lives (L6); then the lock is given back. fence: rises with every
    new holder. lost: an event. Raises InvalidRequest (S16).
    """

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        ttl_ms: int,
        fair: bool = True,
        max_hold_ms: int | None = None,
        on_lost: Callable[[AnyLock], None] | None = None,
    ) -> None:
        super().__init__(client, name, ttl_ms=ttl_ms, max_hold_ms=max_hold_ms, on_lost=on_lost)
        self._fair = checked_flag(fair, argument="fair", lock=name)

    def acquire(
        self,
        *,
        timeout_seconds: float | None = 0,
        blocking: bool = True,
        wait_interval_seconds: float = MAX_BLOCK_SECONDS,
    ) -> bool:
        """Try to take the lock for up to `timeout_seconds` (0: one try, None: without end); say whether it is ours.

        blocking=False: one try whatever the timeout. wait_interval_seconds: longest wait between two tries, ≤ 1 (S1).
        A call that is sent again has the same token, which is success with the same fence: a lost reply is harmless
        (L1). Raises InvalidRequest, RedisUnavailable; LockInUse when this object holds the lock or is taking it.
        """
        # What is left as it is need not be checked: each check costs a microsecond of a short call.
        if timeout_seconds is not None and timeout_seconds != 0:
            self._number(timeout_seconds, "timeout_seconds", minimum=0, maximum=MAX_SECONDS)
        if blocking is not True:
            checked_flag(blocking, argument="blocking", lock=self.name)
        if wait_interval_seconds is not MAX_BLOCK_SECONDS:
            self._number(wait_interval_seconds, "wait_interval_seconds", minimum=0.001, maximum=MAX_SECONDS)
        self._begin_acquire()
        try:
            began = time.monotonic()
            give_up_at = math.inf if timeout_seconds is None else began + timeout_seconds
            longest_block = min(wait_interval_seconds, MAX_BLOCK_SECONDS)
            until = give_up_at if blocking else began
            taken, tries, waiters = self._acquire_until(until, since=began, longest_block=longest_block)
        finally:
            self._taking.release()
        if taken:
            waited = time.monotonic() - began
            STATISTICS.taken(self._client, self.name, waited_seconds=waited, contended=tries > 1, waiters=waiters)
            return True
        STATISTICS.not_taken(self._client, self.name, timed_out=tries > 1, waiters=waiters)
        WATCHDOG.attend(self.renewed_with)
        return False

    def _acquire_until(self, give_up_at: float, *, since: float, longest_block: float) -> tuple[bool, int, int]:
        """Try until `give_up_at`; return whether it is ours, how many tries it took, how many waited at the last.

        since: when the first try begins; the lease of each counts from before its call.
        """
        nonce, tries, waiters, place = "", 0, 0, None
        try:
            while True:
                tries += 1
                left = max(0.0, give_up_at - since)
                block = min(left, longest_block)
                # Noted for a second more than this wait: a waiter that died is soon forgotten (L14).
                wait_ms = int(block * 1000) + 1000 if block > 0 else 0
                taken, value, waiters = self._ask(wait_ms=wait_ms, nonce=nonce)
                if taken and time.monotonic() < lease_end(since, life_ms=self._ttl_ms):
                    self._begin_hold(fence=int(value), since=since)
                    return True, tries, waiters
                if taken:
                    self._give_back_late()
                if left <= 0:
                    return False, tries, waiters
                place = place or WaitingPlace()
                pause = 0.0 if taken else int(value) / 1000 + _jitter()
                seconds = min(block, give_up_at - time.monotonic(), pause)
                nonce = self._wait(seconds, place=place, give_up_at=give_up_at)
                since = time.monotonic()
        finally:
            if place is not None:
                self._stop_waiting(place)

    def _give_back_late(self) -> None:
        """The reply took longer than the lock lives: another may have it by now (L18)."""
        log.warning("lock came too late", action="lock_late", lock=self.name)
        self.end_hold()
        self._send_release(self.release_args())
        self.token = new_token()

    def _ask(self, *, wait_ms: int, nonce: str) -> tuple[int, str, int]:
        args: list[Argument] = [self.token, self._ttl_ms, keys.FENCE_TTL_MS, wait_ms, nonce, GRANT_TTL_MS * self._fair]
        taken, value, waiters = run_script(self._client, "acquire", keys=self._lock_keys, args=args)
        return int(taken), str(value), int(waiters)

    def _wait(self, seconds: float, *, place: WaitingPlace, give_up_at: float) -> str:
        """Wait to be woken; the signal is a hint only: after `seconds` at most the lock is asked for again (L10).

        The place among the waiters is kept until `give_up_at`: asking meanwhile costs no turn.
        """
        if seconds <= 0:
            return ""
        stay = min(give_up_at - time.monotonic(), MAX_PLACE_SECONDS)
        try:
            key = keys.lock_signals(self.name)
            return wait_for_signal(self._client, key, seconds=seconds, place=place, place_seconds=stay) or ""
        except RedisUnavailable:
            time.sleep(min(seconds, 0.05))  # the next try says whether the server is away
            return ""

    def _stop_waiting(self, place: WaitingPlace) -> None:
        place.leave()
        if not self.is_valid():  # a lock that was taken is no longer waited for: the script has seen to that
            self._cancel()

    def _cancel(self) -> None:
        try:
            run_commands(self._client, [("ZREM", keys.lock_waiters(self.name), self.token)])
        except RedisUnavailable as error:
            log.warning("still noted as waiting", action="cancel_failed", lock=self.name, error=repr(error.__cause__))

    def is_locking(self, *, remote: bool = False) -> bool:
        """Say whether we hold the lock: by the local clock, or as the server says (S6). Raises RedisUnavailable."""
        checked_flag(remote, argument="remote", lock=self.name)
        if not self.is_valid() or not remote:
            return self.is_valid()
        return int(run_script(self._client, "extend", keys=self._lock_keys[:1], args=[self.token, 0, "look"])) > 0

    def extend(self, milliseconds: int, *, mode: ExtendMode = "set") -> bool:
        """Let the lock live `milliseconds` from now ("set") or longer than now ("add"); False when it is not ours.

        The watchdog goes on from there: a life shorter than ttl_ms is soon ttl_ms again.
        The longest hold counts from this call on. Never creates a lock that is gone (L8).
        Raises InvalidRequest, RedisUnavailable.
        """
        self._check_extend(milliseconds, mode)
        hold, since = self.hold, time.monotonic()
        if hold is None or not hold.is_valid():
            return False
        if mode == "set":
            hold.shorten(since=since, life_ms=int(milliseconds))
        args: list[Argument] = [self.token, int(milliseconds), mode]
        life_ms = int(run_script(sending_once(self._client), "extend", keys=self._lock_keys[:1], args=args))
        if life_ms <= 0:
            hold.lose(reason="another holds it, or nobody")
            return False
        if hold.renewed(since=since, life_ms=life_ms, by_holder=True):
            WATCHDOG.add(hold)
        return hold.is_valid()

    def renewal_call(self, hold: Hold) -> tuple[Client, Sequence[str], Sequence[Argument]]:
        """Return client, keys and arguments of the extend script."""
        return self._client, self._lock_keys[:1], [hold.token, self._ttl_ms, "keep"]

    def release(self) -> bool:
        """Give the lock back; say whether it was ours until now. Raises RedisUnavailable (it then ends by itself).

        False also when its loss was told before. Asked twice when the first answer was lost: "gone" is then what the
        first call has done (L1).
        """
        if os.getpid() != self._process_id:
            return False  # a forked child: the hold is its parent's (L7)
        held, was_valid, args = self._is_held(), self.end_hold(), self.release_args()
        try:
            return self._released(was_there=self.is_released(self._send_release(args)), held=held)
        except RedisUnavailable:
            if not was_valid:
                raise
        self._send_release(args)
        return True

    def release_after(self, script: ScriptCall) -> Any:
        """Run a script for what is locked and give the lock back, in one round trip; return the script's reply.

        The hold is None afterwards. Sent once: a script that needs the lock would not find it any more. Raises
        RedisUnavailable: either may have been done, and release() is to be called.
        """
        held = self._is_held()
        self.end_hold()
        client = sending_once(self._client)
        reply, released = run_scripts(client, [script, ("release", self.release_keys, self.release_args())])
        self._released(was_there=self.is_released(released), held=held)
        self.hold = None
        return reply

    def give_back(self, hold: Hold) -> None:
        """Remove the key of a hold that is over, if it is still there; never raises RedisUnavailable."""
        try:
            self._send_release(self.release_args(hold.token))
        except RedisUnavailable as error:
            log.warning("lock left to its TTL", action="release_failed", lock=self.name, error=repr(error.__cause__))

    def release_args(self, token: str = "") -> list[Argument]:
        """Return the arguments of one release; sent twice, they are one release. token: of a hold, by default ours."""
        return [token or self.token, GRANT_TTL_MS, new_nonce(), int(self._fair)]

    @staticmethod
    def is_released(reply: object) -> bool:
        """Say whether a reply of the release script means that the lock was ours until now."""
        return reply in (1, 2)

    def _send_release(self, args: list[Argument]) -> int:
        return int(run_script(sending_once(self._client), "release", keys=self.release_keys, args=args))


def _jitter() -> float:
    # Those who wait for the same end of life do not all ask in the same instant.
    return 0.002 + DICE.random() * 0.005


def release_all() -> bool:
    """Give back every lock of this process, newest first; say whether all of them were still ours (S4).

    One round trip a server. A server that is away makes it False: those locks end by themselves.
    """
    complete = True
    trips: defaultdict[Client, list[Lock]] = defaultdict(list)
    for hold in WATCHDOG.newest_first():
        if isinstance(hold.lock, Lock):
            trips[hold.lock._client].append(hold.lock)
        else:
            complete &= hold.lock.release()
    for client, locks in trips.items():
        complete &= _release_at_once(client, locks)
    return complete


def _release_at_once(client: Client, locks: list[Lock]) -> bool:
    for lock in locks:
        lock.end_hold()
    try:
        calls = [(lock.release_keys, lock.release_args()) for lock in locks]
        replies = run_script_each(sending_once(client), "release", calls)
    except RedisUnavailable as error:
        names = [lock.name for lock in locks]
        log.warning("locks left to their TTL", action="release_failed", locks=names, error=repr(error.__cause__))
        return False
    failed = [lock.name for lock, reply in zip(locks, replies, strict=True) if not Lock.is_released(reply)]
    if failed:
        log.warning("locks were not ours any more", action="release_failed", locks=failed)
    return not failed


def force_release(client: Client, name: str, *, token: str = "") -> int:
    """Take the lock of `name` away from its holder, wake a waiter, return the raised fence. For operators.

    token: take it from this holder alone, and return 0 when another has it by now, or nobody. The old holder hears of
    it at its next renewal. Raises InvalidRequest, RedisUnavailable.
    """
    checked_client(client, lock=checked_name(name))
    args: list[Argument] = [keys.FENCE_TTL_MS, GRANT_TTL_MS, new_nonce(), token]
    fence = int(run_script(sending_once(client), "force", keys=lock_keys(name), args=args))
    if not fence:
        return 0
    log.warning("lock taken away by an operator", action="lock_forced", lock=name, fence=fence)
    return fence
