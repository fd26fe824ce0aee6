"""Reads and writes orders in bulk, inside the caller's transaction. Never commits, never touches stock.
Called by settlement; the pages read single orders through the ORM.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from inventory.allocation import Decision
from inventory.database import Cursor
from inventory.outcomes import State

TERMS = """
SELECT id, per_buyer_limit, hold_seconds, price, currency FROM shop_sale WHERE id = ANY(%(sale_ids)s)
"""
DECIDED = """
SELECT request_id, state, hold_expires_at FROM shop_order WHERE request_id = ANY(%(request_ids)s)
"""
LIVE_UNITS = """
SELECT o.sale_id, o.buyer, sum(o.quantity)
FROM (SELECT DISTINCT * FROM unnest(%(sale_ids)s::bigint[], %(buyers)s::text[]) AS pair (sale_id, buyer)) AS asked
JOIN shop_order o ON o.sale_id = asked.sale_id AND o.buyer = asked.buyer AND o.state IN ('held', 'paid')
GROUP BY o.sale_id, o.buyer
"""
INSERT = """
INSERT INTO shop_order
    (request_id, sale_id, stock_id, buyer, quantity, seq, state, reason, unit_price, currency, hold_expires_at)
SELECT request_id, sale_id, %(stock_id)s, buyer, quantity, seq, state, reason, unit_price, currency, hold_expires_at
FROM unnest(%(request_ids)s::text[], %(sale_ids)s::bigint[], %(buyers)s::text[], %(quantities)s::int[],
            %(seqs)s::bigint[], %(states)s::text[], %(reasons)s::text[], %(prices)s::numeric[], %(currencies)s::text[],
            %(ends)s::timestamptz[])
    AS decided (request_id, sale_id, buyer, quantity, seq, state, reason, unit_price, currency, hold_expires_at)
"""


class Terms(NamedTuple):
    """What settlement must know of a sale; the price is copied into the order, so a later change alters nothing."""

    sale_id: int
    limit: int
    hold_seconds: int
    price: Decimal
    currency: str


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
    cursor.execute(DECIDED, {"request_ids": list(request_ids)})


def read_decided(cursor: Cursor) -> dict[str, Decided]:
    """Return the orders that exist already, by request id: their outcome is read, never decided again (I3)."""
    return {row[0]: Decided(row[0], State(row[1]), row[2]) for row in cursor.fetchall()}


def ask_live_units(cursor: Cursor, owners: Sequence[tuple[int, str]]) -> None:
    """Send the statement that read_live_units fetches; owners: (sale_id, buyer) pairs."""
    cursor.execute(LIVE_UNITS, {"sale_ids": [pair[0] for pair in owners], "buyers": [pair[1] for pair in owners]})


def read_live_units(cursor: Cursor) -> dict[tuple[int, str], int]:
    """Return the units held or paid of each (sale_id, buyer) that has any (I7)."""
    return {(sale_id, buyer): int(units) for sale_id, buyer, units in cursor.fetchall()}


def hold_end(decision: Decision, *, terms: dict[int, Terms], now: datetime) -> datetime | None:
    """Return when the hold of `decision` ends by the database's clock `now`, None when nothing is held."""
    if decision.state is not State.HELD:
        return None
    return now + timedelta(seconds=terms[decision.claim.sale_id].hold_seconds)


def insert_orders(
    cursor: Cursor, decisions: Sequence[Decision], *, stock_id: int, terms: dict[int, Terms], now: datetime
) -> None:
    """Write one order a decision, in the order given: their ids rise with seq (I8a)."""
    claims = [decision.claim for decision in decisions]
    values: dict[str, Any] = {
        "stock_id": stock_id,
        "request_ids": [claim.request_id for claim in claims],
        "sale_ids": [claim.sale_id for claim in claims],
        "buyers": [claim.buyer for claim in claims],
        "quantities": [claim.quantity for claim in claims],
        "seqs": [claim.seq for claim in claims],
        "states": [decision.state.value for decision in decisions],
        "reasons": [decision.reason for decision in decisions],
        "prices": [terms[claim.sale_id].price for claim in claims],
        "currencies": [terms[claim.sale_id].currency for claim in claims],
        "ends": [hold_end(decision, terms=terms, now=now) for decision in decisions],
    }
    cursor.execute(INSERT, values)
