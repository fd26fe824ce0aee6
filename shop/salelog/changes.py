"""Reads what happened to each SKU in the order of its lock: the history of orders and the numbered events alongside it.
Never decides what of it is published.
"""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

from inventory.audit.lifecycles import MOVEMENTS
from inventory.postgres import SET_INDEX_ONLY, Cursor
from inventory.states import State

# A look-up costs a fifth of State(text), which is called twice a change.
STATES = {each.value: each for each in State}
# One row a change. Both tables draw from one sequence under the stock's lock, so within a SKU the numbers rise in the
# order in which things happened, and none below one that is seen can come later.
ORDERS = """
SELECT e.id, s.stock_id, o.sale_id, e.from_state, e.to_state, e.reason, (extract(epoch FROM e.at) * 1000000)::bigint,
       o.request_id, o.buyer, o.quantity, o.seq, coalesce(o.ordinal, 0), coalesce(o.terms_version, 0), o.restored,
       o.standby
FROM shop_orderevent e JOIN shop_order o ON o.id = e.order_id JOIN shop_sale s ON s.id = o.sale_id
WHERE e.id > %(after)s
  AND e.id > (SELECT min(l.cursor) FROM salelog_salelog l JOIN shop_sale kept ON kept.id = l.sale_id
              WHERE kept.stock_id = s.stock_id AND l.is_kept)
ORDER BY e.id LIMIT %(limit)s
"""
EVENTS = """
SELECT number, stock_id, coalesce(sale_id, 0), kind, change, act, role, reason, coalesce(terms_version, 0),
       (extract(epoch FROM at) * 1000000)::bigint
FROM salelog_lineevent WHERE number > %(after)s ORDER BY number LIMIT %(limit)s
"""
NEWEST = """
SELECT greatest(%(after)s, (SELECT max(id) FROM shop_orderevent), (SELECT max(number) FROM salelog_lineevent))
"""
# Without statistics, as in a flood, PostgreSQL would read a sale's whole history and sort it for the newest rows.
IN_ORDER = f"{SET_INDEX_ONLY}; SET LOCAL enable_sort = off"


class Request(NamedTuple):
    """An admitted request, as its record or its order has it. terms: their version."""

    request_id: str
    buyer: str
    quantity: int
    seq: int
    ordinal: int
    terms: int
    restored: bool = False
    standby: bool = False


class OrderChange(NamedTuple):
    """One change of an order's state. at_us: by the database's clock."""

    number: int
    stock_id: int
    sale_id: int
    was: State
    now: State
    reason: str
    at_us: int
    request: Request

    @property
    def units(self) -> int:
        """By how much it changed the free units of its SKU."""
        return MOVEMENTS.get((self.was, self.now), ("", 0))[1] * self.request.quantity


class StockEvent(NamedTuple):
    """Units loaded or corrected, or an act of staff (units 0). sale_id: 0 when it concerns the stock alone."""

    number: int
    stock_id: int
    sale_id: int
    kind: str
    units: int
    act: str
    role: str
    reason: str
    terms: int
    at_us: int


Change = OrderChange | StockEvent


def is_decision(change: Change, *, sale_id: int) -> TypeGuard[OrderChange]:
    """Say whether a change decided a request of this sale."""
    return isinstance(change, OrderChange) and change.sale_id == sale_id and change.was is State.QUEUED


def read_changes(cursor: Cursor, *, after: int, limit: int) -> tuple[list[Change], int, bool]:
    """Return what is numbered above `after` and some log lacks, in order; up to which number that is all of it; and
    whether it is all there is."""
    values = {"after": after, "limit": limit}
    cursor.execute(IN_ORDER)
    cursor.execute(ORDERS, values)
    orders: list[Change] = [
        OrderChange._make((*row[:3], STATES[row[3]], STATES[row[4]], *row[5:7], Request(*row[7:])))
        for row in cursor.fetchall()
    ]
    cursor.execute(EVENTS, values)
    events: list[Change] = [StockEvent(*row) for row in cursor.fetchall()]
    ends = [found[-1].number for found in (orders, events) if len(found) >= limit]
    found = sorted((*orders, *events), key=lambda change: change.number)
    if ends:
        return [change for change in found if change.number <= min(ends)], min(ends), False
    cursor.execute(NEWEST, values)
    (newest,) = cursor.fetchone()
    return found, int(newest), True
