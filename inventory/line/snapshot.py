"""Reads the lines and locks of many SKUs at once, for people who watch: two round trips however many there are.
Never changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from inventory.locks.report import LockReport, report_locks
from inventory.records import record_or_none
from inventory.redis import Client, keys, run_script_each
from inventory.states import State


class LineLook(NamedTuple):
    """A SKU's line in one moment: requests, except queued and units (units of stock) and the figures of the stock.

    both: in line and in flight at once. admitted: since ordinals last jumped. units: by the records, -1 when not added
    up. now_us: the server's clock. first: who is next, first_record: their record, sale: what is known of its sale.
    bases: the ordinals after which those of the SKU's sales went on, added up. discarded: dead letters that nobody
    could read, so they have no order; their tickets may still bring them back. replaced: 1 when the one sale that was
    asked for was primed at another server, or before this one was started, so admissions may be lost unnoticed.
    decides_from_us: before it nobody in line is decided, as tickets have time to come after a loss; 0 for none.
    """

    waiting: int
    in_flight: int
    both: int
    admitted: int
    queued: int
    dead_letters: int
    aside: int
    primed: int
    version: int
    available: int
    held: int
    sold: int
    waitlisted: int
    units: int
    records: int
    now_us: int
    first: str
    first_record: str
    sale: str
    dead: str
    bases: int
    discarded: int
    replaced: int
    decides_from_us: int

    @property
    def undecided(self) -> int:
        """How many wait for a decision."""
        return self.waiting + self.in_flight + self.aside

    @property
    def decided(self) -> int:
        """How many were decided since ordinals last jumped."""
        return max(0, self.admitted - self.discarded - self.undecided)

    @property
    def over_ms(self) -> int:
        """For how long the sale of the first in line has been over, below 0 while it is not, or is not known."""
        state, _, closes_us, *_ = self.sale.split("|") if self.sale else ("", "", str(self.now_us + 1))
        return 0x7FFFFFFFFFFF if state == "closed" else (self.now_us - int(closes_us)) // 1000

    @property
    def waits_for(self) -> str:
        """What the first in line waits for: 'tickets' (of those who were lost), 'paused', 'waitlist' (a held unit).

        '': nothing, as after its sale.
        """
        record = record_or_none(self.first_record)
        if record is not None and self.now_us < self.decides_from_us:
            return "tickets"
        if record is None or self.over_ms >= 0:
            return ""
        if self.sale.startswith("paused|"):
            return "paused"
        may_come = self.available < record.quantity <= self.available + self.held
        return "waitlist" if may_come and record.state is not State.STANDBY else ""


def look_keys(sku: str) -> list[str]:
    """Return the keys that scripts/audit/audit_line.lua declares."""
    makers = (keys.line, keys.in_flight, keys.stock, keys.dead_letters, keys.records, keys.aside, keys.sales)
    return [make(sku) for make in makers]


@dataclass(frozen=True, slots=True)
class StockLook:
    """One SKU: its line and its lock, read within the same moment or two."""

    line: LineLook
    lock: LockReport

    @property
    def oldest_seconds(self) -> float | None:
        """How long the first of those who wait has been waiting, since the line is decided again after a loss.

        None when nobody waits, but on standby, or when its record is damaged.
        """
        record = record_or_none(self.line.first_record)
        if record is None or record.state is State.STANDBY:
            return None
        return max(0.0, (self.line.now_us - max(record.seq, self.line.decides_from_us)) / 1e6)

    @property
    def lock_seconds(self) -> float | None:
        """How long the lock has been held; None when nobody holds it."""
        since = self.lock.since_unix_seconds
        return max(0.0, self.line.now_us / 1e6 - since) if since else None


def look_at(client: Client, skus: Sequence[str]) -> dict[str, StockLook]:
    """Return the look of each SKU, without those whose shard of a Cluster is away, or of which a key is damaged.

    Raises RedisUnavailable when none can be read.
    """
    if not skus:
        return {}
    # 0: units are not added up by their records here; that is the audit's, one SKU at a time.
    lines = run_script_each(client, "audit_line", [(look_keys(sku), [0, ""]) for sku in skus])
    read = {sku: LineLook(*line) for sku, line in zip(skus, lines, strict=True) if not isinstance(line, Exception)}
    if not read:
        raise lines[0]
    locks = report_locks(client, list(read))
    return {sku: StockLook(line, lock) for (sku, line), lock in zip(read.items(), locks, strict=True)}
