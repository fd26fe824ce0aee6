"""A distributed lock with a fence: one-script acquire, compare-and-delete, renewal by one watchdog a process.
Never promises more than "usually one holder": safety is the fence that the stock row checks. Called by the settler.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time

from inventory import keys
from inventory.exceptions import InvalidRequest, LockLost, RedisUnavailable, Unavailable
from inventory.redis import Client, run_script

FENCE_TTL_MS = 24 * 3600 * 1000
RETRY_SECONDS = 0.1  # the seeds' wait interval (S1)


def new_token() -> str:
    """Return an owner's name: host|pid|thread|time|64 random bits, so that a stuck lock can be traced (S8, L9)."""
    return "|".join(
        (
            socket.gethostname(),
            str(os.getpid()),
            str(threading.get_ident()),
            str(time.time_ns()),
            secrets.token_hex(8),
        )
    )


class Watchdog:
    """Renews every lock of this process at a third of its TTL; tells the holder when one is lost (S10, L3–L5)."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locks: dict[str, Lock] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    def add(self, lock: Lock) -> None:
        """Renew `lock` until it is removed or lost; starts the thread when none runs (also after a fork, L7)."""
        with self._mutex:
            self._locks[lock.token] = lock
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="lock-watchdog", daemon=True)
                self._thread.start()
        self._wake.set()

    def remove(self, lock: Lock) -> None:
        """Stop renewing `lock`."""
        with self._mutex:
            self._locks.pop(lock.token, None)

    def forget_all(self) -> None:
        """Start afresh in a forked child: what its parent holds is not the child's."""
        self.__init__()  # type: ignore[misc]

    def _run(self) -> None:
        while True:
            with self._mutex:
                locks = list(self._locks.values())
            for lock in locks:
                lock.renew_if_due()
            soonest = min((lock.renew_at for lock in locks), default=time.monotonic() + 1)
            self._wake.wait(max(0.005, min(soonest - time.monotonic(), 1)))
            self._wake.clear()


WATCHDOG = Watchdog()
os.register_at_fork(after_in_child=WATCHDOG.forget_all)


class Lock:
    """One hold of one name. name: what is locked (a SKU); ttl_ms: life without renewal, at least 100.

    fence: rises with every new holder. lost: set when the lock is no longer ours. Raises InvalidRequest (S16).
    """

    def __init__(self, client: Client, name: str, *, ttl_ms: int) -> None:
        if ttl_ms < 100:
            raise InvalidRequest(f"ttl_ms must be at least 100, got {ttl_ms}")
        self.name = keys.checked_sku(name)
        self.token = new_token()
        self.fence = 0
        self.lost = threading.Event()
        self.renew_at = 0.0
        self._client = client
        self._ttl_ms = ttl_ms
        self._deadline = 0.0

    def acquire(self, *, timeout_seconds: float = 0) -> bool:
        """Try to take the lock for up to `timeout_seconds` (0 = one try, S1). Raises RedisUnavailable.

        Asking again with the same token is success with the same fence, so a lost reply is harmless (L1).
        """
        if timeout_seconds < 0:
            raise InvalidRequest(f"timeout_seconds must not be negative, got {timeout_seconds}")
        give_up_at = time.monotonic() + timeout_seconds
        while True:
            asked_at = time.monotonic()  # the lease counts from before the call
            taken, value = run_script(
                self._client,
                "acquire",
                keys=[keys.lock(self.name), keys.fence(self.name)],
                args=[self.token, self._ttl_ms, FENCE_TTL_MS],
            )
            if taken:
                self._hold(fence=int(value), since=asked_at)
                return True
            left = give_up_at - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, RETRY_SECONDS, int(value) / 1000 + 0.005))

    def _hold(self, *, fence: int, since: float) -> None:
        self.fence = fence
        self.lost.clear()
        self._renewed(since=since)
        WATCHDOG.add(self)

    def _renewed(self, *, since: float) -> None:
        # 1 % and 2 ms are taken off for the drift between our clock and the server's.
        self._deadline = since + self._ttl_ms / 1000 * 0.99 - 0.002
        self.renew_at = since + self._ttl_ms / 3000

    def renew_if_due(self) -> None:
        """Lengthen the lock when a third of its TTL has passed; on failure try again until it must count as lost."""
        now = time.monotonic()
        if now < self.renew_at or self.lost.is_set():
            return
        try:
            ours = run_script(self._client, "extend", keys=[keys.lock(self.name)], args=[self.token, self._ttl_ms])
        except RedisUnavailable:
            self.renew_at = now + self._ttl_ms / 10_000
            if now >= self._deadline:
                self._lose()
            return
        if ours:
            self._renewed(since=now)
        else:
            self._lose()

    def _lose(self) -> None:
        self.lost.set()
        WATCHDOG.remove(self)

    def check(self) -> None:
        """Raise LockLost unless the lock is surely still ours by the local clock."""
        if self.lost.is_set() or time.monotonic() >= self._deadline:
            self._lose()
            raise LockLost(f"the lock of {self.name} is no longer ours")

    def release(self) -> bool:
        """Give the lock back; say whether it was still ours. Raises RedisUnavailable (it then ends by itself)."""
        WATCHDOG.remove(self)
        self._deadline = 0.0
        return bool(run_script(self._client, "release", keys=[keys.lock(self.name)], args=[self.token]) == 1)

    def __enter__(self) -> Lock:
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
