"""Reads and writes orders in bulk, inside the caller's transaction. Never commits, never touches stock.
Called by settlement; the pages read single orders through the ORM.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from inventory.allocation import Decision
from inventory.database import Cursor, array
from inventory.outcomes import State

TERMS = """
SELECT id, per_buyer_limit, hold_seconds FROM shop_sale WHERE id = ANY(%(sale_ids)s)
"""
DECIDED = """
SELECT request_id, state, hold_expires_at FROM shop_order WHERE request_id = ANY(%(request_ids)s::text[])
"""
LIVE_UNITS = """
SELECT o.sale_id, o.buyer, sum(o.quantity)
FROM (SELECT DISTINCT * FROM unnest(%(sale_ids)s::bigint[], %(buyers)s::text[]) AS pair (sale_id, buyer)) AS asked
JOIN shop_order o ON o.sale_id = asked.sale_id AND o.buyer = asked.buyer AND o.state IN ('held', 'paid')
GROUP BY o.sale_id, o.buyer
"""
INSERT = """
INSERT INTO shop_order
    (request_id, sale_id, buyer, quantity, buyer_limit, seq, state, reason, unit_price, currency, hold_expires_at)
SELECT d.request_id, d.sale_id, d.buyer, d.quantity, s.per_buyer_limit, d.seq, d.state, d.reason, s.price, s.currency,
       CASE WHEN d.state = 'held' THEN %(moment)s + make_interval(secs => s.hold_seconds) END
FROM unnest(%(request_ids)s::text[], %(sale_ids)s::bigint[], %(buyers)s::text[], %(quantities)s::int[],
            %(seqs)s::bigint[], %(states)s::text[], %(reasons)s::text[])
    WITH ORDINALITY AS d (request_id, sale_id, buyer, quantity, seq, state, reason, place)
JOIN shop_sale s ON s.id = d.sale_id
ORDER BY d.place
"""


NO_REASON = '""'  # an empty text, as an array literal writes it


class Terms(NamedTuple):
    """What settlement must know of a sale to decide its requests."""

    sale_id: int
    limit: int
    hold_seconds: int


class Decided(NamedTuple):
    """An order that exists already."""

    request_id: str
    state: State
    hold_expires_at: datetime | None


def ask_terms(cursor: Cursor, sale_ids: Sequence[int]) -> None:
    """Send the statement that read_terms fetches."""
    cursor.execute(TERMS, {"sale_ids": list(sale_ids)})


def read_terms(cursor: Cursor) -> dict[int, Terms]:
    """Return the terms of each sale by its id."""
    return {row[0]: Terms(*row) for row in cursor.fetchall()}


def ask_decided(cursor: Cursor, request_ids: Sequence[str]) -> None:
    """Send the statement that read_decided fetches."""
    cursor.execute(DECIDED, {"request_ids": array(request_ids)})


def read_decided(cursor: Cursor) -> dict[str, Decided]:
    """Return the orders that exist already, by request id: their outcome is read, never decided again (I3)."""
    return {row[0]: Decided(row[0], State(row[1]), row[2]) for row in cursor.fetchall()}


def ask_live_units(cursor: Cursor, owners: Sequence[tuple[int, str]]) -> None:
    """Send the statement that read_live_units fetches; owners: (sale_id, buyer) pairs."""
    sale_ids, buyers = array(pair[0] for pair in owners), array(pair[1] for pair in owners)
    cursor.execute(LIVE_UNITS, {"sale_ids": sale_ids, "buyers": buyers})


def read_live_units(cursor: Cursor) -> dict[tuple[int, str], int]:
    """Return the units held or paid of each (sale_id, buyer) that has any (I7)."""
    return {(sale_id, buyer): int(units) for sale_id, buyer, units in cursor.fetchall()}


def hold_end(decision: Decision, *, terms: dict[int, Terms], now: datetime) -> datetime | None:
    """Return when the hold of `decision` ends by the database's clock `now`, None when nothing is held."""
    if decision.state is not State.HELD:
        return None
    return now + timedelta(seconds=terms[decision.claim.sale_id].hold_seconds)


def insert_orders(cursor: Cursor, decisions: Sequence[Decision], *, moment: datetime) -> None:
    """Write one order a decision, in the order given: their ids rise with seq (I8a).

    The price is copied from the sale in the statement itself. moment: when this is decided, by the database's clock.
    """
    claims = [decision.claim for decision in decisions]
    values: dict[str, Any] = {
        "moment": moment,
        "request_ids": array(claim.request_id for claim in claims),
        "sale_ids": array(claim.sale_id for claim in claims),
        "buyers": array(claim.buyer for claim in claims),
        "quantities": array(claim.quantity for claim in claims),
        "seqs": array(claim.seq for claim in claims),
        "states": array(decision.state.value for decision in decisions),
        "reasons": array(decision.reason or NO_REASON for decision in decisions),
    }
    cursor.execute(INSERT, values)
