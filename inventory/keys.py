"""Makes every Redis key, a function each, type and lifetime beside it. Never talks to Redis.
Called by all of inventory.

All keys of a SKU carry the hash tag {sku}: one slot on Redis Cluster, one script may touch them all.
"""

from __future__ import annotations

import re

from inventory.exceptions import InvalidRequest

SKU_PATTERN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")


def checked_sku(sku: str) -> str:
    """Return `sku`, or raise InvalidRequest: a brace or a newline in it would break the hash tag (pitfall L22)."""
    if not SKU_PATTERN.fullmatch(sku):
        raise InvalidRequest(f"sku must match {SKU_PATTERN.pattern}, got {sku!r}")
    return sku


def line(sku: str) -> str:
    """zset, request_id → seq: who waits. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:line"


def in_flight(sku: str) -> str:
    """zset, request_id → seq: taken by the lock holder, not yet settled. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:flight"


def records(sku: str) -> str:
    """hash, request_id → record (see tickets.py): every request ever admitted. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:records"


def live_units(sku: str) -> str:
    """hash, "sale_id:buyer" → units in line, in flight, held or paid. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:live"


def stock(sku: str) -> str:
    """hash: available, held, sold, version, queued, last_seq, counters, the last hand-out. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:stock"


def sale(sku: str, *, sale_id: int) -> str:
    """hash: status, opens_us, closes_us, limit, room of one sale. Lives as long as the SKU."""
    return f"fd:{{{sku}}}:sale:{sale_id}"


def hand_outs(sku: str) -> str:
    """hash, request_id → how often it was handed out again after a crash. Emptied by settle."""
    return f"fd:{{{sku}}}:handouts"


def dead_letters(sku: str) -> str:
    """zset, request_id → seq: handed out too often; an operator must look. Lives until they do."""
    return f"fd:{{{sku}}}:dead"


def lock(name: str) -> str:
    """string, the holder's token. Lives for the lock's TTL, renewed by its holder."""
    return f"fd:{{{name}}}:lock"


def fence(name: str) -> str:
    """string, the last fence given out. Lives 24 h after the last acquire (pitfall L20)."""
    return f"fd:{{{name}}}:fence"


def skus() -> str:
    """set of SKUs that have been primed. Lives for ever; rebuilt by priming."""
    return "fd:skus"


def wake_channel() -> str:
    """channel: a SKU whose line was empty and is not any more. A hint only; the sweep is the guarantee."""
    return "fd:wake"


def settled_channel() -> str:
    """channel: a SKU of which a batch was settled or whose stock changed. A hint only."""
    return "fd:settled"
