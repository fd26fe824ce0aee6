"""Reads the lines and locks of many SKUs at once, for people who watch: two round trips however many there are.
Never changes anything. Called by the live stock view and the control room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inventory import keys
from inventory.audit_line import LineLook, look_keys
from inventory.lock_owner import owner_of
from inventory.redis import Client, run_commands, run_script_each
from inventory.tickets import read_record


@dataclass(frozen=True, slots=True)
class LockLook:
    """Who holds the lock of a SKU. since_us: by the server's clock, 0 when nobody does; waiters: how many wait."""

    token: str
    since_us: int
    fence: int
    waiters: int

    @property
    def holder(self) -> str:
        """Who holds it in words; '' when nobody does."""
        if not self.token:
            return ""
        if self.token.startswith("g:"):
            return "being handed on"
        owner = owner_of(self.token)
        return f"{owner.host} process {owner.process_id}" if owner else self.token


@dataclass(frozen=True, slots=True)
class StockLook:
    """One SKU: its line and its lock, read within the same moment or two."""

    line: LineLook
    lock: LockLook

    @property
    def oldest_seconds(self) -> float | None:
        """How long the first of those who wait has been waiting; None when nobody waits or its record is damaged."""
        try:
            seq = read_record(self.line.first_record).seq
        except (ValueError, KeyError):
            return None
        return max(0.0, (self.line.now_us - seq) / 1e6)

    @property
    def lock_seconds(self) -> float | None:
        """How long the lock has been held; None when nobody holds it."""
        return max(0.0, (self.line.now_us - self.lock.since_us) / 1e6) if self.lock.since_us else None


def look_at(client: Client, skus: Sequence[str]) -> dict[str, StockLook]:
    """Return the look of each SKU. Raises RedisUnavailable."""
    if not skus:
        return {}
    # 0: units are not added up by their records here; that is the audit's, one SKU at a time.
    lines = run_script_each(client, "audit_line", [(look_keys(sku), [0, ""]) for sku in skus])
    for reply in lines:
        if isinstance(reply, Exception):
            raise reply
    commands = [
        command
        for sku in skus
        for command in (("GET", keys.lock(sku)), ("GET", keys.fence(sku)), ("ZCARD", keys.lock_waiters(sku)))
    ]
    locks = iter(run_commands(client, commands))
    parts = zip(skus, lines, locks, locks, locks, strict=True)
    return {sku: StockLook(LineLook(*line), _lock(token, fence, waiters)) for sku, line, token, fence, waiters in parts}


def _lock(token: str | None, fence: str | None, waiters: int) -> LockLook:
    # The fence is the server's time at which the present holder took the lock.
    held = bool(token) and not str(token).startswith("g:")
    return LockLook(token or "", int(fence or 0) if held else 0, int(fence or 0), int(waiters))
