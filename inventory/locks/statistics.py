"""Counts in this process how each lock is used, and adds that up over all processes every few seconds.
Never costs a command per lock; what was counted since the last flush is lost with its process.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from inventory.redis import Client, as_dict, keys, run_commands, run_script, sending_once

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 2.0
LIFE_MS = 7 * 24 * 3600 * 1000
# Twice as many as are added: then at most about half of the list is unused, however many names there ever were.
SEARCHED_A_NAME = 2
BOUNDS_MS = (1, 2, 5, 10, 50, 100, 500, 1_000, 5_000, 60_000)
_BUCKETS = (*(f"below_{bound}_ms" for bound in BOUNDS_MS), "longer")


class LockCounts:
    """What one process has counted about one name since the last flush."""

    def __init__(self) -> None:
        self.added: defaultdict[str, int] = defaultdict(int)
        self.highest: defaultdict[str, int] = defaultdict(int)

    def add_time(self, kind: str, *, seconds: float) -> None:
        """Count one wait or hold of `seconds`: number, sum, longest, histogram."""
        microseconds = int(seconds * 1_000_000)
        added, longest = self.added, f"{kind}_max_us"
        added[kind] += 1
        added[f"{kind}_us"] += microseconds
        added[f"{kind}_{_BUCKETS[bisect_right(BOUNDS_MS, microseconds / 1000)]}"] += 1
        if microseconds > self.highest[longest]:
            self.highest[longest] = microseconds


class Statistics:
    """The counts of this process, by server and name."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._counts: dict[tuple[Client, str], LockCounts] = {}
        self._uncounted: set[tuple[Client, str]] = set()
        self.flush_at = 0.0

    @property
    def dirty(self) -> bool:
        """Say whether anything waits for a flush."""
        return bool(self._counts)

    def taken(self, client: Client, name: str, *, waited_seconds: float, contended: bool, waiters: int) -> None:
        """Count a lock that was taken after `waited_seconds`; waiters: how many waited then."""
        with self._mutex:
            counts = self._of(client, name)
            counts.added["attempts"] += 1
            counts.added["contended"] += contended
            counts.add_time("waits", seconds=waited_seconds)
            counts.highest["waiters_max"] = max(counts.highest["waiters_max"], waiters)

    def not_taken(self, client: Client, name: str, *, timed_out: bool, waiters: int) -> None:
        """Count a lock that was not taken; timed_out: after a wait, not at the first try."""
        with self._mutex:
            counts = self._of(client, name)
            counts.added["attempts"] += 1
            counts.added["contended"] += 1
            counts.added["timeouts"] += timed_out
            counts.highest["waiters_max"] = max(counts.highest["waiters_max"], waiters)

    def held(self, client: Client, name: str, *, seconds: float) -> None:
        """Count a hold that ended after `seconds`."""
        with self._mutex:
            self._of(client, name).add_time("holds", seconds=seconds)

    def count(self, client: Client, name: str, what: str) -> None:
        """Count one of `losses`, `failed_renewals`."""
        with self._mutex:
            self._of(client, name).added[what] += 1

    @contextmanager
    def without(self, client: Client, name: str) -> Iterator[None]:
        """Count nothing about `name` for the length of a block: a flush would write again what is just forgotten."""
        with self._mutex:
            self._uncounted.add((client, name))
            self._counts.pop((client, name), None)
        try:
            yield
        finally:
            with self._mutex:
                self._uncounted.discard((client, name))

    def flush_when_due(self) -> None:
        """Flush if the last time is FLUSH_SECONDS ago; several threads may ask."""
        now = time.monotonic()
        with self._mutex:
            if now < self.flush_at:
                return
            self.flush_at = now + FLUSH_SECONDS
        self.flush()

    def flush(self) -> None:
        """Send what was counted, to each server from a thread of its own: one that is silent holds up nobody.

        While a server is away its counts are dropped, so that nothing is counted twice.
        """
        with self._mutex:
            counted, self._counts = self._counts, {}
        by_client: defaultdict[Client, dict[str, LockCounts]] = defaultdict(dict)
        for (client, name), counts in counted.items():
            by_client[client][name] = counts
        for client, rows in by_client.items():
            threading.Thread(target=_send, args=(client, rows), name="lock-statistics", daemon=True).start()

    def forget_all(self) -> None:
        """Start afresh in a forked child: its parent sends what the parent counted."""
        self.__init__()  # type: ignore[misc]

    def _of(self, client: Client, name: str) -> LockCounts:
        counts = self._counts.get((client, name))
        if (client, name) in self._uncounted:
            return LockCounts()
        if counts is None:
            counts = self._counts[client, name] = LockCounts()
        return counts


STATISTICS = Statistics()


def _send(client: Client, rows: dict[str, LockCounts]) -> None:
    try:
        once = sending_once(client)
        for name, counts in rows.items():
            added = {field: number for field, number in counts.added.items() if number}
            flat = [text for fields in (added, counts.highest) for pair in fields.items() for text in pair]
            run_script(once, "lock_statistics", keys=[keys.lock_statistics(name)], args=[LIFE_MS, len(added), *flat])
            run_commands(once, [("SADD", keys.lock_names(), name)])
        _forget_unused(once, limit=SEARCHED_A_NAME * len(rows))
    except Exception as error:
        log.warning(
            "statistics dropped", action="lock_statistics", locks=len(rows), error=repr(error.__cause__ or error)
        )


def _forget_unused(client: Client, *, limit: int) -> None:
    """Take names out of the list whose counts have ended: of `limit` drawn at random, so all come up in time (L20).

    One that is counted again in this very moment is listed again when its next counts are sent.
    """
    drawn = run_commands(client, [("SRANDMEMBER", keys.lock_names(), limit)])[0]
    counted = run_commands(client, [("EXISTS", keys.lock_statistics(name)) for name in drawn])
    unused = [name for name, exists in zip(drawn, counted, strict=True) if not exists]
    if unused:
        run_commands(client, [("SREM", keys.lock_names(), *unused)])


def read_statistics(client: Client, name: str) -> dict[str, int]:
    """Return every counter of `name` over all processes; empty when it was never counted. Raises RedisUnavailable."""
    (found,) = run_commands(client, [("HGETALL", keys.lock_statistics(name))])
    return {field: int(number) for field, number in sorted(as_dict(found).items())}
