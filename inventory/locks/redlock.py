"""The lock over N independent servers: ours while a majority agrees and the agreed time has not run out (S11).
Promises fewer duplicates, never safety: no clock is trusted for long, yet a pause or a jump can make two holders (L16).
It is for programs with several servers and no database that checks a fence; this shop's settler uses lock.py.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Literal

import structlog

from inventory.exceptions import RedisUnavailable
from inventory.locks.arguments import MAX_SECONDS, checked_client, checked_flag, refused
from inventory.locks.base import AnyLock, ExtendMode
from inventory.locks.lease import Hold
from inventory.locks.statistics import STATISTICS
from inventory.locks.token import DICE, new_nonce, new_token
from inventory.locks.watchdog import WATCHDOG
from inventory.redis import Argument, Client, keys, run_script

log = structlog.get_logger(__name__)

NODE_TIMEOUT_SECONDS = 0.05
RETRY_SECONDS = (0.05, 0.15)


class _Callers:
    """The threads that ask the servers, made again in a forked child (L7)."""

    def __init__(self) -> None:
        self._process_id = 0
        self._pool: ThreadPoolExecutor | None = None

    def ask(self, client: Client, script: str, script_keys: Sequence[str], args: Sequence[Argument]) -> Future[Any]:
        """Run a script on a server, in one of the threads."""
        if self._pool is None or self._process_id != os.getpid():
            self._pool, self._process_id = ThreadPoolExecutor(32, thread_name_prefix="redlock"), os.getpid()
        return self._pool.submit(run_script, client, script, keys=script_keys, args=args)


_CALLERS = _Callers()


class Redlock(AnyLock):
    """A lock of one name on `clients`, an odd number of servers that know nothing of each other.

    Take the clients from inventory.redis.connect_once, so that none waits longer than `node_timeout_seconds` or sends
    twice. The rest as in Lock. fence stays 0: counters of single servers are not in order (L16), and a stock row that
    has seen a fence refuses 0; take a fence from the database. No hand-over: waiters ask again. Raises InvalidRequest.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        name: str,
        *,
        ttl_ms: int,
        max_hold_ms: int | None = None,
        on_lost: Callable[[AnyLock], None] | None = None,
        node_timeout_seconds: float = NODE_TIMEOUT_SECONDS,
    ) -> None:
        if not isinstance(clients, Sequence) or isinstance(clients, str) or not clients:
            raise refused("clients", "must be a list of at least one client", clients)
        super().__init__(clients[0], name, ttl_ms=ttl_ms, max_hold_ms=max_hold_ms, on_lost=on_lost)
        self._clients = [checked_client(client, lock=name) for client in clients]
        self._quorum = len(self._clients) // 2 + 1
        self._node_timeout_seconds = self._number(
            node_timeout_seconds, "node_timeout_seconds", minimum=0.001, maximum=MAX_SECONDS
        )

    def acquire(self, *, timeout_seconds: float | None = 0, blocking: bool = True) -> bool:
        """Try to take the lock for up to `timeout_seconds` (0: one try, None: without end); say whether it is ours.

        A server that is away is a vote against, never an error (L19). Raises InvalidRequest, LockInUse.
        """
        if timeout_seconds is not None:
            self._number(timeout_seconds, "timeout_seconds", minimum=0, maximum=MAX_SECONDS)
        checked_flag(blocking, argument="blocking", lock=self.name)
        self._begin_acquire()
        try:
            return self._acquire(timeout_seconds, blocking=blocking)
        finally:
            self._taking.release()

    def _acquire(self, timeout_seconds: float | None, *, blocking: bool) -> bool:
        began, tries = time.monotonic(), 0
        give_up_at = math.inf if timeout_seconds is None else began + timeout_seconds
        while True:
            tries += 1
            if self._try_once():
                waited = time.monotonic() - began
                STATISTICS.taken(self._client, self.name, waited_seconds=waited, contended=tries > 1, waiters=0)
                return True
            left = give_up_at - time.monotonic()
            if left <= 0 or not blocking:
                STATISTICS.not_taken(self._client, self.name, timed_out=tries > 1, waiters=0)
                WATCHDOG.attend(self.renewed_with)
                return False
            # Drawn by lot, so that two who split the votes do not do so again.
            time.sleep(min(left, DICE.uniform(*RETRY_SECONDS)))

    def _try_once(self) -> bool:
        since, token, abandoned, begun = time.monotonic(), self.token, [False], list[Hold]()

        def answered_late(client: Client, reply: Future[Any]) -> None:
            # A vote that came after the lock was given up or given back must not outlive it.
            if reply.exception() is None and (abandoned[0] or any(not hold.is_valid() for hold in begun)):
                self._release_on(client, token)

        votes = self._ask_all("acquire", self._lock_keys, self._acquire_args(), late=answered_late)
        if self._agree([vote is not None and vote[0] for vote in votes]):
            self._begin_hold(fence=0, since=since)
            begun += [self.hold] if self.hold is not None else []
            if self.is_valid():  # the votes may have taken longer than the lock lives (L18)
                return True
        abandoned[0] = True
        self.end_hold()
        self._release_everywhere()
        # A late answer to this try, or to its release, must not take away what the next one is given.
        self.token = new_token()
        return False

    def extend(self, milliseconds: int, *, mode: ExtendMode = "set") -> bool:
        """Let the lock live `milliseconds` from now ("set") or longer than now ("add"), on a majority.

        False when it is not ours. Raises InvalidRequest, RedisUnavailable when too few servers answered.
        """
        self._check_extend(milliseconds, mode)
        hold = self.hold
        if hold is None or not hold.is_valid():
            return False
        if not self._extend(hold, int(milliseconds), mode):
            return False
        WATCHDOG.add(hold)
        return hold.is_valid()

    def _extend(self, hold: Hold, milliseconds: int, mode: ExtendMode | Literal["keep"]) -> bool:
        since = time.monotonic()
        if mode == "set":
            hold.shorten(since=since, life_ms=milliseconds)
        lives = self._ask_all("extend", self._lock_keys[:1], [hold.token, milliseconds, mode])
        agreed = [life for life in lives if life]
        if len(agreed) >= self._quorum:
            counts = hold.renewed(since=since, life_ms=min(agreed), by_holder=mode != "keep")
            self._top_up(hold, lives)
            return counts and hold.is_valid()
        if len(agreed) + lives.count(None) >= self._quorum:
            raise RedisUnavailable(f"too few servers answered for the lock of {self.name}")
        hold.lose(reason="no majority holds it for us any more")
        return False

    def _top_up(self, hold: Hold, lives: Sequence[int | None]) -> None:
        """Give the lock to servers that lost it, so that one more loss does not break the majority (L17)."""
        for client, life in zip(self._clients, lives, strict=True):
            if life == 0:
                done = _CALLERS.ask(client, "acquire", self._lock_keys, self._acquire_args(hold.token))
                done.add_done_callback(partial(self._topped_up, client, hold))
                wait([done], timeout=self._node_timeout_seconds)

    def _topped_up(self, client: Client, hold: Hold, _reply: Future[Any]) -> None:
        if not hold.is_valid():  # given back meanwhile: nothing may be left behind (L5)
            self._release_on(client, hold.token)

    @property
    def renewed_with(self) -> object:
        """All Redlocks of a process: none of their servers is waited for longer than the node timeout."""
        return _CALLERS

    def renewal_call(self, hold: Hold) -> None:
        """Renew on all servers at once; without enough answers try again soon, until the time has run out."""
        try:
            self._extend(hold, self._ttl_ms, "keep")
        except RedisUnavailable as error:
            WATCHDOG.put_off(hold, error=error)

    def is_locking(self, *, remote: bool = False) -> bool:
        """Say whether we hold the lock: by the local clock, or as a majority says (S6)."""
        checked_flag(remote, argument="remote", lock=self.name)
        if not self.is_valid() or not remote:
            return self.is_valid()
        return self._agree(self._ask_all("extend", self._lock_keys[:1], [self.token, 0, "look"]))

    def release(self) -> bool:
        """Give the lock back on every server, also on those that did not vote; say whether it was still ours."""
        if os.getpid() != self._process_id:
            return False  # a forked child: the hold is its parent's (L7)
        held, was_valid = self._is_held(), self.end_hold()
        was_there = self._agree([reply == 1 for reply in self._release_everywhere()]) and was_valid
        return self._released(was_there=was_there, held=held)

    def give_back(self, hold: Hold) -> None:
        """Remove the keys of a hold that is over, where they are still there."""
        self._ask_all("release", self.release_keys, _release_args(hold.token))

    def _agree(self, votes: Sequence[object]) -> bool:
        return sum(map(bool, votes)) >= self._quorum

    def _acquire_args(self, token: str = "") -> list[Argument]:
        return [token or self.token, self._ttl_ms, keys.FENCE_TTL_MS, 0, ""]

    def _release_everywhere(self) -> list[Any]:
        return self._ask_all("release", self.release_keys, _release_args(self.token))

    def _release_on(self, client: Client, token: str) -> None:
        _CALLERS.ask(client, "release", self.release_keys, _release_args(token))

    def _ask_all(
        self,
        script: str,
        script_keys: Sequence[str],
        args: Sequence[Argument],
        *,
        late: Callable[[Client, Future[Any]], None] | None = None,
    ) -> list[Any]:
        """Run a script on all servers at once; None for each that failed or was too slow."""
        calls = [_CALLERS.ask(client, script, script_keys, args) for client in self._clients]
        in_time, too_slow = wait(calls, timeout=self._node_timeout_seconds)
        for client, call in zip(self._clients, calls, strict=True):
            if call in too_slow and late is not None:
                call.add_done_callback(partial(late, client))
        return [call.result() if call in in_time and call.exception() is None else None for call in calls]


def _release_args(token: str) -> list[Argument]:
    return [token, 1, new_nonce(), 0]
