"""Reads who holds which lock since when, and who waits. Never changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inventory.locks.token import Owner, in_words, owner_of
from inventory.redis import Client, keys, run_commands


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
    def holder(self) -> str:
        """Who holds it in words; '' when nobody does."""
        return "being handed on" if self.state == "granted" else in_words(self.token or "")

    @property
    def since_unix_seconds(self) -> float | None:
        """When it was taken, by the server's clock: the fence tells; None when nobody holds it."""
        return self.fence / 1e6 if self.state == "held" else None


def report_locks(client: Client, names: Sequence[str]) -> list[LockReport]:
    """Return one report a name, all read in one round trip. Raises RedisUnavailable."""
    commands = [
        command
        for name in names
        for command in (
            ("GET", keys.lock(name)),
            ("PTTL", keys.lock(name)),
            ("GET", keys.fence(name)),
            ("ZRANGE", keys.lock_waiters(name), 0, -1),
        )
    ]
    parts = iter(run_commands(client, commands))
    return [
        LockReport(name, token, max(int(left_ms), 0), int(fence or 0), tuple(waiters))
        for name, token, left_ms, fence, waiters in zip(names, parts, parts, parts, parts, strict=True)
    ]
