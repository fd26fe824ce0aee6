"""Decides one batch in one PostgreSQL transaction: fence, known outcomes, allocation, orders, movements, stock.
Never answers a buyer (that is after COMMIT) and never redoes a batch blindly. Called by the settler.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from inventory import ledger
from inventory.allocation import Claim, Decision, allocate
from inventory.database import Connection, Pipeline
from inventory.faults import fault_point
from inventory.line import Settled, StockFigures
from inventory.outcomes import LIVE_STATES, State
from inventory.tickets import Record
from shop import orders

ACTOR = "settler"


class Settlement(NamedTuple):
    """What a committed batch came to: the stock after it, and the answer to each request, in order of seq."""

    figures: StockFigures
    settled: list[Settled]


class _Known(NamedTuple):
    """What the database says before a batch is decided."""

    stock: ledger.ClaimedStock
    now: datetime
    terms: dict[int, orders.Terms]
    decided: dict[str, orders.Decided]
    live_units: dict[tuple[int, str], int]


def settle_batch(
    connection: Connection, *, sku: str, fence: int, requests: Sequence[tuple[str, Record]], dead: bool = False
) -> Settlement:
    """Decide `requests` (id, record) of `sku` under `fence`, commit, and return the answers (I1–I3, I7–I9, I16).

    dead: these were handed out too often; they are refused without looking further (Q12).
    Raises FenceRefused when a newer holder has been here, psycopg.Error when the database is away; in both cases
    nothing was written, or it was and the next call finds the outcomes by request id.
    """
    with connection.pipeline() as pipeline, connection.transaction():
        known = _look_up(connection, pipeline, sku=sku, fence=fence, requests=requests)
        fault_point("after_fence")
        claims = [_claim(name, record) for name, record in requests if name not in known.decided]
        decisions = _refuse(claims) if dead else _allocate(claims, known)
        figures = _write(connection, pipeline, decisions, known=known, fence=fence)
        fault_point("in_transaction")
    fault_point("after_commit")
    return Settlement(figures, _answers(requests, decisions, known))


def seen_fence(connection: Connection, *, sku: str) -> int:
    """Return the highest fence that the stock row of `sku` has seen, 0 without a row. Raises psycopg.Error."""
    row = connection.execute("SELECT fence FROM inventory_stock WHERE sku = %s", [sku]).fetchone()
    return int(row[0]) if row else 0


def _look_up(
    connection: Connection, pipeline: Pipeline, *, sku: str, fence: int, requests: Sequence[tuple[str, Record]]
) -> _Known:
    cursors = [connection.cursor(binary=True) for _ in range(5)]
    claimed, clock, terms, decided, live = cursors
    ledger.claim_stock(claimed, sku=sku, fence=fence)
    # Not now(), the moment the transaction began: waiting for the row would shorten every hold of the batch.
    clock.execute("SELECT clock_timestamp()")
    orders.ask_terms(terms, sorted({record.sale_id for _, record in requests}))
    orders.ask_decided(decided, [name for name, _ in requests])
    orders.ask_live_units(live, [(record.sale_id, record.buyer) for _, record in requests])
    # Without a Sync the server would count us as busy, not as idle in a transaction: a settler that is stopped here
    # would hold the stock row without end, and no timeout would fire.
    pipeline.sync()
    stock = ledger.read_claim(claimed)
    (now,) = clock.fetchone() or (None,)
    return _Known(
        stock=stock,
        now=now,
        terms=orders.read_terms(terms),
        decided=orders.read_decided(decided),
        live_units=orders.read_live_units(live),
    )


def _claim(name: str, record: Record) -> Claim:
    return Claim(request_id=name, sale_id=record.sale_id, buyer=record.buyer, quantity=record.quantity, seq=record.seq)


def _refuse(claims: Sequence[Claim]) -> list[Decision]:
    return [Decision(claim, State.REFUSED, "dead_letter") for claim in claims]


def _allocate(claims: Sequence[Claim], known: _Known) -> list[Decision]:
    return allocate(
        claims,
        available=known.stock.available,
        limits={sale_id: terms.limit for sale_id, terms in known.terms.items()},
        live_units=known.live_units,
    )


def _write(
    connection: Connection, pipeline: Pipeline, decisions: Sequence[Decision], *, known: _Known, fence: int
) -> StockFigures:
    stock = known.stock
    unchanged = StockFigures(stock.available, stock.held, stock.sold, 0, stock.version)
    if not decisions:
        return unchanged
    inserts, update, moves = (connection.cursor(binary=True) for _ in range(3))
    orders.insert_orders(inserts, decisions, moment=known.now)
    holds = [(each.claim.request_id, each.claim.quantity) for each in decisions if each.state is State.HELD]
    if not holds:
        return unchanged
    ledger.hold_units(update, moves, stock_id=stock.stock_id, fence=fence, holds=holds, actor=ACTOR)
    pipeline.sync()  # as above: read_hold alone would leave us busy, and the row locked for as long as we are stopped
    return ledger.read_hold(update)


def _answers(requests: Sequence[tuple[str, Record]], decisions: Sequence[Decision], known: _Known) -> list[Settled]:
    outcomes: dict[str, tuple[State, datetime | None]] = {
        each.claim.request_id: (each.state, orders.hold_end(each, terms=known.terms, now=known.now))
        for each in decisions
    }
    outcomes |= {name: (was.state, was.hold_expires_at) for name, was in known.decided.items()}
    return [_settled(name, record, *outcomes[name]) for name, record in requests]


def _settled(name: str, record: Record, state: State, hold_end: datetime | None) -> Settled:
    answered = Record(
        state=state,
        seq=record.seq,
        quantity=record.quantity,
        sale_id=record.sale_id,
        buyer=record.buyer,
        hold_expires_ms=None if hold_end is None else round(hold_end.timestamp() * 1000),
    )
    return Settled(name, answered, frees_units=state not in LIVE_STATES)
