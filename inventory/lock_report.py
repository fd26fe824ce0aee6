"""Reads who holds which lock since when, who waits, and how locks were used. Never changes anything.
Called by `manage.py locks`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from inventory import keys
from inventory.lock_owner import Owner, owner_of
from inventory.lock_statistics import read_statistics
from inventory.redis import Client, run_commands


@dataclass(frozen=True, slots=True)
class LockReport:
    """One name. token: as it lies in Redis, None when free; left_ms: until it ends unless renewed.

    waiters: the tokens of those who wait; one that died is listed for two seconds more.
    """

    name: str
    token: str | None
    left_ms: int
    fence: int
    waiters: tuple[str, ...]
    statistics: dict[str, Any]

    @property
    def state(self) -> str:
        """free, held, or granted: given to a waiter that has not fetched it yet."""
        if self.token is None:
            return "free"
        return "granted" if self.token.startswith("g:") else "held"

    @property
    def owner(self) -> Owner | None:
        """Who holds it; None when nobody does, or when its token is not ours."""
        return owner_of(self.token) if self.token and self.state == "held" else None

    @property
    def since_unix_seconds(self) -> float | None:
        """When it was taken, by the server's clock: the fence tells; None when nobody holds it."""
        return self.fence / 1e6 if self.state == "held" else None


def report_locks(client: Client, names: Iterable[str]) -> list[LockReport]:
    """Return one report a name; its parts are read in one round trip. Raises RedisUnavailable."""
    return [_report(client, name) for name in names]


def _report(client: Client, name: str) -> LockReport:
    token, left_ms, fence, waiters = run_commands(
        client,
        [
            ("GET", keys.lock(name)),
            ("PTTL", keys.lock(name)),
            ("GET", keys.fence(name)),
            ("ZRANGE", keys.lock_waiters(name), 0, -1),
        ],
    )
    statistics = read_statistics(client, name)
    return LockReport(name, token, max(int(left_ms), 0), int(fence or 0), tuple(waiters), statistics)
