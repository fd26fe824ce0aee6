"""Reads the lines and locks of many SKUs at once, for people who watch: two round trips however many there are.
Never changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inventory.audit_line import LineLook, look_keys
from inventory.lock_report import LockReport, report_locks
from inventory.redis import Client, run_script_each
from inventory.tickets import read_record


@dataclass(frozen=True, slots=True)
class StockLook:
    """One SKU: its line and its lock, read within the same moment or two."""

    line: LineLook
    lock: LockReport

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
        since = self.lock.since_unix_seconds
        return max(0.0, self.line.now_us / 1e6 - since) if since else None


def look_at(client: Client, skus: Sequence[str]) -> dict[str, StockLook]:
    """Return the look of each SKU. Raises RedisUnavailable."""
    if not skus:
        return {}
    # 0: units are not added up by their records here; that is the audit's, one SKU at a time.
    lines = run_script_each(client, "audit_line", [(look_keys(sku), [0, ""]) for sku in skus])
    for reply in lines:
        if isinstance(reply, Exception):
            raise reply
    locks = report_locks(client, skus)
    return {sku: StockLook(LineLook(*line), lock) for sku, line, lock in zip(skus, lines, locks, strict=True)}
