"""The only writer of Stock and StockMovement: every change of a count and its movement, in the caller's transaction.
Never commits, never decides who gets a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from inventory.exceptions import FenceRefused, InvalidRequest, StaleWrite, UnitsNotFree
from inventory.postgres import Cursor, array
from inventory.records import StockFigures
from inventory.redis.keys import checked_sku

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
LOCK = """
SELECT id, available, held, sold, version FROM inventory_stock WHERE sku = %(sku)s FOR UPDATE
"""
# Every later change of an order's units, as what it does to (available, held, sold).
CHANGE = """
UPDATE inventory_stock
SET available = available + %(available)s, held = held + %(held)s, sold = sold + %(sold)s, version = version + 1
WHERE id = %(stock_id)s AND available + %(available)s >= 0
RETURNING available, held, sold, version
"""
ADJUST = """
UPDATE inventory_stock SET total = total + %(units)s, available = available + %(units)s, version = version + 1
WHERE id = %(stock_id)s
RETURNING available, held, sold, version
"""
HOLD = """
UPDATE inventory_stock SET available = available - %(units)s, held = held + %(units)s, version = version + 1
WHERE id = %(stock_id)s AND available >= %(units)s AND fence = %(fence)s
RETURNING available, held, sold, version
"""
RAISE_VERSION = """
UPDATE inventory_stock SET version = greatest(version, %(above)s) + 1 WHERE id = %(stock_id)s
RETURNING available, held, sold, version
"""
MOVE_MANY = """
INSERT INTO inventory_stockmovement (stock_id, kind, delta, request_id, fence, actor, reason)
SELECT %(stock_id)s, %(kind)s, %(sign)s * quantity, request_id, %(fence)s, %(actor)s, %(reason)s
FROM unnest(%(request_ids)s::text[], %(quantities)s::int[]) AS moved (request_id, quantity)
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
    """Send the statement that locks the row of `sku` and raises its fence; recv_claim fetches what it found.

    Two functions, so that a pipeline can send more before it waits. The row lock serialises the SKU (I16).
    """
    cursor.execute(CLAIM, {"sku": sku, "fence": fence})


def recv_claim(cursor: Cursor) -> ClaimedStock:
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
    """Send the statements that hold units for requests (id, quantity ≥ 1); recv_hold fetches the new figures.

    `cursor` runs the conditional update, `moves` the movements: one of each for a whole batch (I1, I3).
    """
    units = sum(quantity for _, quantity in holds)
    cursor.execute(HOLD, {"stock_id": stock_id, "fence": fence, "units": units})
    _move_many(moves, stock_id=stock_id, kind="hold", sign=-1, units=holds, fence=fence, actor=actor)


def hold_again(
    cursor: Cursor, *, stock_id: int, holds: Sequence[tuple[str, int]], actor: str, reason: str
) -> StockFigures:
    """Hold free units for requests (id, quantity ≥ 1) that had them before the row was restored from a backup.

    Without a fence: the row is locked by the caller. Raises UnitsNotFree.
    """
    units = sum(quantity for _, quantity in holds)
    figures = _change(cursor, stock_id=stock_id, available=-units, held=units, sold=0)
    _move_many(cursor, stock_id=stock_id, kind="hold", sign=-1, units=holds, actor=actor, reason=reason)
    return figures


def raise_version(cursor: Cursor, *, stock_id: int, above: int) -> StockFigures:
    """Let the versions of a restored row go on above one that was told before; the row is locked by the caller."""
    cursor.execute(RAISE_VERSION, {"stock_id": stock_id, "above": above})
    return StockFigures(*cursor.fetchone())


def recv_hold(cursor: Cursor) -> StockFigures:
    """Return the stock after hold_units. Raises StaleWrite when the units were not there any more."""
    row = cursor.fetchone()
    if row is None:
        raise StaleWrite("the stock row changed under this transaction; nothing was written")
    return StockFigures(*row)


def lock_stock(cursor: Cursor, *, sku: str) -> ClaimedStock:
    """Lock the row of `sku` for this transaction without a fence, for what needs none. Raises InvalidRequest.

    Anyone who changes orders of a SKU takes this lock first: it makes them one after another, and no two can deadlock.
    """
    send_lock(cursor, sku=sku)
    row = cursor.fetchone()
    if row is None:
        raise InvalidRequest(f"there is no stock of {sku}")
    return ClaimedStock(*row)


def send_lock(cursor: Cursor, *, sku: str) -> None:
    """Send the statement of lock_stock; what follows it in a pipeline waits with it."""
    cursor.execute(LOCK, {"sku": sku})


def release_units(
    cursor: Cursor, *, stock_id: int, units: Sequence[tuple[str, int]], actor: str, reason: str = ""
) -> StockFigures:
    """Make the held units of requests (id, quantity) free again; the row is locked by the caller (I10)."""
    total = sum(quantity for _, quantity in units)
    figures = _change(cursor, stock_id=stock_id, available=total, held=-total, sold=0)
    _move_many(cursor, stock_id=stock_id, kind="release", sign=1, units=units, actor=actor, reason=reason)
    return figures


def sell_units(cursor: Cursor, *, stock_id: int, units: int) -> StockFigures:
    """Turn `units` that are held into sold ones; nothing becomes free, so nothing moves (I10)."""
    send_sale(cursor, stock_id=stock_id, units=units)
    return recv_sale(cursor)


def send_sale(cursor: Cursor, *, stock_id: int, units: int) -> None:
    """Send the statement of sell_units; recv_sale fetches the figures, also after the COMMIT of a pipeline."""
    _send_change(cursor, stock_id=stock_id, available=0, held=-units, sold=units)


def recv_sale(cursor: Cursor) -> StockFigures:
    """Return the stock after send_sale. Raises UnitsNotFree."""
    row = cursor.fetchone()
    if row is None:
        raise UnitsNotFree
    return StockFigures(*row)


def retake_units(cursor: Cursor, *, stock_id: int, request_id: str, units: int, actor: str) -> StockFigures:
    """Sell free units to a request whose hold had ended. Raises UnitsNotFree (I12)."""
    figures = _change(cursor, stock_id=stock_id, available=-units, held=0, sold=units)
    _move_many(cursor, stock_id=stock_id, kind="retake", sign=-1, units=[(request_id, units)], actor=actor)
    return figures


def return_units(
    cursor: Cursor, *, stock_id: int, request_id: str, units: int, actor: str, reason: str
) -> StockFigures:
    """Make sold units free again: their buyer has the money back."""
    figures = _change(cursor, stock_id=stock_id, available=units, held=0, sold=-units)
    _move_many(
        cursor, stock_id=stock_id, kind="return", sign=1, units=[(request_id, units)], actor=actor, reason=reason
    )
    return figures


def adjust_stock(cursor: Cursor, *, sku: str, units: int, actor: str, reason: str) -> StockFigures:
    """Correct the count of `sku` by `units` (not 0, may be negative), in the caller's transaction.

    Raises InvalidRequest when that would leave less than is held and sold, or nobody says who and why (I20).
    """
    if units == 0:
        raise InvalidRequest("units must not be 0")
    if not actor or not reason:
        raise InvalidRequest("an adjustment needs an actor and a reason")
    stock = lock_stock(cursor, sku=sku)
    if stock.available + units < 0:
        taken = stock.held + stock.sold
        raise InvalidRequest(f"{taken} units of {sku} are held or sold; only {stock.available} can be taken away")
    cursor.execute(ADJUST, {"stock_id": stock.stock_id, "units": units})
    figures = StockFigures(*cursor.fetchone())
    cursor.execute(
        MOVE_ONE, {"stock_id": stock.stock_id, "kind": "adjust", "delta": units, "actor": actor, "reason": reason}
    )
    return figures


def figures_of(stock: ClaimedStock) -> StockFigures:
    """Return the figures of a row as it was claimed."""
    return StockFigures(stock.available, stock.held, stock.sold, stock.version)


def _change(cursor: Cursor, *, stock_id: int, available: int, held: int, sold: int) -> StockFigures:
    _send_change(cursor, stock_id=stock_id, available=available, held=held, sold=sold)
    return recv_sale(cursor)


def _send_change(cursor: Cursor, *, stock_id: int, available: int, held: int, sold: int) -> None:
    cursor.execute(CHANGE, {"stock_id": stock_id, "available": available, "held": held, "sold": sold})


def _move_many(
    cursor: Cursor,
    *,
    stock_id: int,
    kind: str,
    sign: int,
    units: Sequence[tuple[str, int]],
    actor: str,
    reason: str = "",
    fence: int | None = None,
) -> None:
    values = {
        "stock_id": stock_id,
        "kind": kind,
        "sign": sign,
        "fence": fence,
        "actor": actor,
        "reason": reason,
        "request_ids": array(name for name, _ in units),
        "quantities": array(quantity for _, quantity in units),
    }
    cursor.execute(MOVE_MANY, values)
