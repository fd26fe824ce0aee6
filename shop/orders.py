"""Reads and writes orders in bulk, inside the caller's transaction. Never commits, never touches stock.
Called by settlement; the pages read single orders through the ORM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from inventory.allocation import Decision
from inventory.database import Cursor, array
from inventory.outcomes import State

# The terms of now, and those that held for requests with a lower seq: a new price is for new requests only.
TERMS = """
SELECT id, NULL::bigint, per_buyer_limit, hold_seconds, price::text, currency,
       switch = 'paused' AND closes_at > clock_timestamp(), switch = 'closed' OR closes_at <= clock_timestamp(),
       (extract(epoch FROM closes_at) * 1000000)::bigint
FROM shop_sale WHERE id = ANY(%(sale_ids)s)
UNION ALL
(SELECT sale_id, until_us, per_buyer_limit, hold_seconds, price::text, currency, false, false, 0
 FROM shop_pastterms WHERE sale_id = ANY(%(sale_ids)s) ORDER BY version)
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
    (request_id, sale_id, buyer, quantity, buyer_limit, seq, state, actor, reason, unit_price, currency,
     hold_expires_at, decided_at, changed_at, restored)
SELECT d.request_id, d.sale_id, d.buyer, d.quantity, d.buyer_limit, d.seq, d.state, %(actor)s, d.reason, d.price,
       d.currency, CASE WHEN d.state = 'held' THEN %(moment)s + make_interval(secs => d.hold_seconds) END, %(moment)s,
       %(moment)s, d.restored
FROM unnest(%(request_ids)s::text[], %(sale_ids)s::bigint[], %(buyers)s::text[], %(quantities)s::int[],
            %(limits)s::int[], %(seqs)s::bigint[], %(states)s::text[], %(reasons)s::text[], %(prices)s::numeric[],
            %(currencies)s::text[], %(hold_seconds)s::int[], %(restored)s::bool[])
    WITH ORDINALITY AS d (request_id, sale_id, buyer, quantity, buyer_limit, seq, state, reason, price, currency,
                          hold_seconds, restored, place)
ORDER BY d.place
"""


NO_REASON = '""'  # an empty text, as an array literal writes it


class Terms(NamedTuple):
    """What a request was promised. limit: units a buyer; price as text, in currency."""

    limit: int
    hold_seconds: int
    price: str
    currency: str


class SaleNow(NamedTuple):
    """A sale as settlement finds it. past: (until seq, terms) of requests that came before a change, oldest first.

    closes_us: when it ends, in Unix µs.
    """

    terms: Terms
    paused: bool
    over: bool
    closes_us: int
    past: list[tuple[int, Terms]]

    def terms_for(self, seq: int) -> Terms:
        """Return what a request with this seq was promised."""
        return next((terms for until, terms in self.past if seq < until), self.terms)


class Decided(NamedTuple):
    """An order that exists already."""

    request_id: str
    state: State
    hold_expires_at: datetime | None


def ask_terms(cursor: Cursor, sale_ids: Sequence[int]) -> None:
    """Send the statement that read_terms fetches."""
    cursor.execute(TERMS, {"sale_ids": list(sale_ids)})


def read_terms(cursor: Cursor) -> dict[int, SaleNow]:
    """Return each sale by its id."""
    sales: dict[int, SaleNow] = {}
    past: list[tuple[int, int, Terms]] = []
    for sale_id, until, limit, hold_seconds, price, currency, paused, over, closes_us in cursor.fetchall():
        terms = Terms(limit, hold_seconds, price, currency)
        if until is None:
            sales[sale_id] = SaleNow(terms, paused, over, closes_us, [])
        else:
            past.append((until, sale_id, terms))
    for until, sale_id, terms in past:
        sales[sale_id].past.append((until, terms))
    return sales


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


def hold_end(decision: Decision, *, terms: Terms, now: datetime) -> datetime | None:
    """Return when the hold of `decision` ends by the database's clock `now`, None when nothing is held."""
    return now + timedelta(seconds=terms.hold_seconds) if decision.state is State.HELD else None


def insert_orders(
    cursor: Cursor, decisions: Sequence[Decision], *, terms: Mapping[str, Terms], moment: datetime, actor: str
) -> None:
    """Write one order a decision, in the order given: their ids rise with seq (I8).

    terms: request_id → what it was promised; moment: when this is decided, by the database's clock.
    """
    claims = [decision.claim for decision in decisions]
    promised = [terms[claim.request_id] for claim in claims]
    values: dict[str, Any] = {
        "moment": moment,
        "actor": actor,
        "request_ids": array(claim.request_id for claim in claims),
        "sale_ids": array(claim.sale_id for claim in claims),
        "buyers": array(claim.buyer for claim in claims),
        "quantities": array(claim.quantity for claim in claims),
        "limits": array(each.limit for each in promised),
        "seqs": array(claim.seq for claim in claims),
        "states": array(decision.state.value for decision in decisions),
        "reasons": array(decision.reason or NO_REASON for decision in decisions),
        "prices": array(each.price for each in promised),
        "currencies": array(each.currency for each in promised),
        "hold_seconds": array(each.hold_seconds for each in promised),
        "restored": array("t" if claim.restored else "f" for claim in claims),
    }
    cursor.execute(INSERT, values)
