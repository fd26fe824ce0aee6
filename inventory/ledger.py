"""The only writer of Stock and StockMovement: every change of a count and its movement, in the caller's transaction.
Never commits, never decides who gets a unit. Called by settlement, the admin's services and the demo's seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from inventory.database import Cursor, array
from inventory.exceptions import FenceRefused, InvalidRequest, LockLost
from inventory.keys import checked_sku
from inventory.line import StockFigures

LOAD = """
INSERT INTO inventory_stock AS s (sku, total, available, held, sold, fence, version)
VALUES (%(sku)s, %(units)s, %(units)s, 0, 0, 0, 1)
ON CONFLICT (sku) DO UPDATE
SET total = s.total + EXCLUDED.total, available = s.available + EXCLUDED.available, version = s.version + 1
RETURNING id
"""
CLAIM = """
UPDATE inventory_stock SET fence = %(fence)s WHERE sku = %(sku)s AND fence <= %(fence)s
RETURNING id, available, held, sold, version
"""
HOLD = """
UPDATE inventory_stock SET available = available - %(units)s, held = held + %(units)s, version = version + 1
WHERE id = %(stock_id)s AND available >= %(units)s AND fence = %(fence)s
RETURNING available, held, sold, version
"""
MOVE_MANY = """
INSERT INTO inventory_stockmovement (stock_id, kind, delta, request_id, fence, actor, reason)
SELECT %(stock_id)s, 'hold', -quantity, request_id, %(fence)s, %(actor)s, ''
FROM unnest(%(request_ids)s::text[], %(quantities)s::int[]) AS held (request_id, quantity)
"""
MOVE_ONE = """
INSERT INTO inventory_stockmovement (stock_id, kind, delta, actor, reason)
VALUES (%(stock_id)s, %(kind)s, %(delta)s, %(actor)s, %(reason)s)
"""


class ClaimedStock(NamedTuple):
    """A stock row locked for this transaction under a fence."""

    stock_id: int
    available: int
    held: int
    sold: int
    version: int


def load_stock(cursor: Cursor, *, sku: str, units: int, actor: str, reason: str) -> int:
    """Add `units` (≥ 1) to `sku`, making its row when there is none; return the row's id. Raises InvalidRequest."""
    if units < 1:
        raise InvalidRequest(f"units must be at least 1, got {units}")
    if not actor:
        raise InvalidRequest("actor must be named")
    cursor.execute(LOAD, {"sku": checked_sku(sku), "units": units})
    stock_id = int(cursor.fetchone()[0])
    cursor.execute(MOVE_ONE, {"stock_id": stock_id, "kind": "load", "delta": units, "actor": actor, "reason": reason})
    return stock_id


def claim_stock(cursor: Cursor, *, sku: str, fence: int) -> None:
    """Send the statement that locks the row of `sku` and raises its fence; read_claim fetches what it found.

    Two functions, so that a pipeline can send more before it waits. The row lock serialises the SKU (I16).
    """
    cursor.execute(CLAIM, {"sku": sku, "fence": fence})


def read_claim(cursor: Cursor) -> ClaimedStock:
    """Return the row that claim_stock locked. Raises FenceRefused when a newer holder has been here (L15, L16)."""
    row = cursor.fetchone()
    if row is None:
        raise FenceRefused
    return ClaimedStock(*row)


def hold_units(
    cursor: Cursor,
    moves: Cursor,
    *,
    stock_id: int,
    fence: int,
    holds: Sequence[tuple[str, int]],
    actor: str,
) -> None:
    """Send the statements that hold units for requests (id, quantity ≥ 1); read_hold fetches the new figures.

    `cursor` runs the conditional update, `moves` the movements: one of each for a whole batch (I1, I3).
    """
    units = sum(quantity for _, quantity in holds)
    cursor.execute(HOLD, {"stock_id": stock_id, "fence": fence, "units": units})
    moves.execute(
        MOVE_MANY,
        {
            "stock_id": stock_id,
            "fence": fence,
            "actor": actor,
            "request_ids": array(name for name, _ in holds),
            "quantities": array(quantity for _, quantity in holds),
        },
    )


def read_hold(cursor: Cursor) -> StockFigures:
    """Return the stock after hold_units. Raises LockLost when the units were not there any more."""
    row = cursor.fetchone()
    if row is None:
        raise LockLost("the stock row changed under this transaction; nothing was written")
    available, held, sold, version = row
    return StockFigures(available=available, held=held, sold=sold, returning=0, version=version)
