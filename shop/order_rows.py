"""Reads and writes orders in bulk, inside the caller's transaction. Never commits, never touches stock.
Pages read single orders through the ORM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from inventory.allocation import Decision
from inventory.postgres import Cursor, array
from inventory.records import Record
from inventory.states import State
from shop.client_address import network_mark

# A sale as it is now, with each version of its terms.
TERMS = """
SELECT s.id, s.switch = 'paused' AND s.closes_at > clock_timestamp(),
       s.switch = 'closed' OR s.closes_at <= clock_timestamp(),
       t.version, t.until_us, t.per_buyer_limit, t.hold_seconds, t.price::text, t.currency
FROM shop_sale s JOIN shop_saleterms t ON t.sale_id = s.id
WHERE s.id = ANY(%(sale_ids)s) ORDER BY s.id, t.version
"""
DECIDED = """
SELECT request_id, state, hold_expires_at, coalesce(ordinal, 0) FROM shop_order
WHERE request_id = ANY(%(request_ids)s::text[])
"""
RENUMBER = """
UPDATE shop_order o SET ordinal = again.ordinal
FROM unnest(%(request_ids)s::text[], %(ordinals)s::bigint[]) AS again (request_id, ordinal)
WHERE o.request_id = again.request_id AND o.request_id = ANY(%(request_ids)s::text[])
"""
# Each buyer is looked up by itself. As a join it has a plan that reads every order for a batch: a settler that
# prepared it while the table was empty kept that plan until the next ANALYZE, so for the first minute of a shop's life.
LIVE_UNITS = """
SELECT asked.sale_id, asked.buyer, had.units
FROM (SELECT DISTINCT * FROM unnest(%(sale_ids)s::bigint[], %(buyers)s::text[]) AS pair (sale_id, buyer)) AS asked
CROSS JOIN LATERAL (
    SELECT sum(o.quantity) AS units FROM shop_order o
    WHERE o.sale_id = asked.sale_id AND o.buyer = asked.buyer AND o.state IN ('held', 'paid')) AS had
WHERE had.units IS NOT NULL
"""
# What was promised is read from the terms themselves: a batch has one version of them, or two. LEFT JOIN, because a
# request whose terms were missing must fail the statement (unit_price is NOT NULL), and not be left out.
INSERT = """
INSERT INTO shop_order
    (request_id, sale_id, buyer, quantity, buyer_limit, seq, state, actor, reason, unit_price, currency,
     hold_expires_at, decided_at, changed_at, restored, standby, terms_version, ordinal, network)
SELECT d.request_id, d.sale_id, d.buyer, d.quantity, t.per_buyer_limit, d.seq, d.state, %(actor)s,
       coalesce(d.reason, ''), t.price, t.currency,
       CASE WHEN d.state = 'held' THEN %(moment)s + make_interval(secs => t.hold_seconds) END, %(moment)s, %(moment)s,
       d.restored, d.standby, t.version, nullif(d.ordinal, 0), coalesce(d.network, '')
FROM unnest(%(request_ids)s::text[], %(sale_ids)s::bigint[], %(buyers)s::text[], %(quantities)s::int[],
            %(seqs)s::bigint[], %(states)s::text[], %(reasons)s::text[], %(restored)s::bool[],
            %(standbys)s::bool[], %(terms_versions)s::bigint[], %(ordinals)s::bigint[], %(networks)s::text[])
    WITH ORDINALITY AS d (request_id, sale_id, buyer, quantity, seq, state, reason, restored, standby, terms_version,
                          ordinal, network, place)
    LEFT JOIN shop_saleterms t ON t.sale_id = d.sale_id AND t.version = d.terms_version
ORDER BY d.place
"""


class Terms(NamedTuple):
    """What a request was promised. limit: units a buyer; price as text, in currency.

    until_us: those with a lower seq came under it, if they name no version; None: there is no end.
    """

    version: int
    until_us: int | None
    limit: int
    hold_seconds: int
    price: str
    currency: str


class SaleNow(NamedTuple):
    """A sale as settlement finds it; terms: every version there was, oldest first."""

    paused: bool
    over: bool
    terms: list[Terms]

    def terms_for(self, version: int, *, seq: int) -> Terms:
        """Return what a request was promised that came under `version`, by its seq when it names none (0)."""
        for terms in self.terms:
            if terms.version == version:
                return terms
        by_seq = (terms for terms in self.terms if terms.until_us is None or seq < terms.until_us)
        return next(by_seq, self.terms[-1])


class Decided(NamedTuple):
    """An order that exists already."""

    request_id: str
    state: State
    hold_expires_at: datetime | None
    ordinal: int


def record_of(
    state: State,
    seq: int,
    quantity: int,
    sale_id: int,
    buyer: str,
    terms_version: int | None,
    ordinal: int | None,
    *,
    ends_at: datetime | None = None,
) -> Record:
    """Return the record of an order by its columns; ends_at: the end of its hold, kept while it is held."""
    ends_ms = end_ms(state, ends_at)
    return Record(state, seq, quantity, sale_id, buyer, ends_ms, terms_version=terms_version or 0, ordinal=ordinal or 0)


def end_ms(state: State, ends_at: datetime | None) -> int | None:
    """Return the end of a hold in Unix ms, None when nothing is held.

    Rounded here only: PostgreSQL rounds otherwise, and the record of an order must not depend on who writes it.
    """
    return round(ends_at.timestamp() * 1000) if ends_at and state is State.HELD else None


def send_terms(cursor: Cursor, sale_ids: Sequence[int]) -> None:
    """Send the statement that recv_terms fetches."""
    cursor.execute(TERMS, {"sale_ids": list(sale_ids)})


def recv_terms(cursor: Cursor) -> dict[int, SaleNow]:
    """Return each sale by its id."""
    sales: dict[int, SaleNow] = {}
    for sale_id, paused, over, *terms in cursor.fetchall():
        sales.setdefault(sale_id, SaleNow(paused, over, [])).terms.append(Terms(*terms))
    return sales


def send_decided(cursor: Cursor, request_ids: Sequence[str]) -> None:
    """Send the statement that recv_decided fetches."""
    cursor.execute(DECIDED, {"request_ids": array(request_ids)})


def recv_decided(cursor: Cursor) -> dict[str, Decided]:
    """Return the orders that exist already, by request id: their outcome is read, never decided again (I3)."""
    return {row[0]: Decided(row[0], State(row[1]), *row[2:]) for row in cursor.fetchall()}


def renumber(cursor: Cursor, ordinals: Mapping[str, int]) -> None:
    """Give orders the ordinal of a later admission of the same request: its line had lost the first one (I4)."""
    cursor.execute(RENUMBER, {"request_ids": array(ordinals), "ordinals": array(ordinals.values())})


def send_live_units(cursor: Cursor, owners: Sequence[tuple[int, str]]) -> None:
    """Send the statement that recv_live_units fetches; owners: (sale_id, buyer) pairs."""
    sale_ids, buyers = array(pair[0] for pair in owners), array(pair[1] for pair in owners)
    cursor.execute(LIVE_UNITS, {"sale_ids": sale_ids, "buyers": buyers})


def recv_live_units(cursor: Cursor) -> dict[tuple[int, str], int]:
    """Return the units held or paid of each (sale_id, buyer) that has any (I7)."""
    return {(sale_id, buyer): int(units) for sale_id, buyer, units in cursor.fetchall()}


def ends_of_holds(terms: Iterable[Terms], *, now: datetime) -> dict[int, int | None]:
    """Return when a hold under `terms` ends that begins `now`, by the database's clock: hold_seconds → Unix ms."""
    lengths = {each.hold_seconds for each in terms}
    return {seconds: end_ms(State.HELD, now + timedelta(seconds=seconds)) for seconds in lengths}


def insert_orders(
    cursor: Cursor, decisions: Sequence[Decision], *, terms: Mapping[str, Terms], moment: datetime, actor: str
) -> None:
    """Write one order a decision, in the order given: their ids rise with seq (I8).

    terms: request_id → what it was promised; moment: when this is decided, by the database's clock.
    """
    claims, states, reasons = zip(*decisions, strict=True)
    names, records = zip(*claims, strict=True)
    asked = dict(zip(Record._fields, zip(*records, strict=True), strict=True))
    values: dict[str, Any] = {
        "moment": moment,
        "actor": actor,
        "request_ids": array(names),
        "sale_ids": array(asked["sale_id"]),
        "buyers": array(asked["buyer"]),
        "quantities": array(asked["quantity"]),
        "seqs": array(asked["seq"]),
        "states": array(states),
        "reasons": array(reason or "NULL" for reason in reasons),
        "restored": array("t" if restored else "f" for restored in asked["restored"]),
        "standbys": array("t" if state is State.STANDBY else "f" for state in asked["state"]),
        "terms_versions": array(terms[name].version for name in names),
        "ordinals": array(asked["ordinal"]),
        "networks": array(_network_of(decision) or "NULL" for decision in decisions),
    }
    cursor.execute(INSERT, values)


def _network_of(decision: Decision) -> str:
    """Return the mark of the network that got units, '' for one that got none: nobody needs to judge that."""
    network = decision.claim.record.network
    return network_mark(network) if network and decision.state is State.HELD else ""
