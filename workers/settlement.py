"""Decides one batch in one PostgreSQL transaction: fence, known outcomes, allocation, orders, movements, stock.
Never answers a buyer (that is after COMMIT) and never redoes a batch blindly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from inventory import ledger
from inventory.allocation import Claim, Decision, allocate
from inventory.fault_injection import fault_point
from inventory.line.writing import Settled
from inventory.postgres import Connection, Pipeline
from inventory.records import Record, StockFigures
from inventory.states import Reason, State
from shop import order_rows

ACTOR = "settler"


class Settlement(NamedTuple):
    """What a committed batch came to: the stock after it, the answer to each request, and who stays in line."""

    figures: StockFigures
    settled: list[Settled]
    staying: list[str]


class _Known(NamedTuple):
    """What the database says before a batch is decided."""

    stock: ledger.ClaimedStock
    now: datetime
    sales: dict[int, order_rows.SaleNow]
    decided: dict[str, order_rows.Decided]
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
        later = {
            name: record.ordinal
            for name, record in requests
            if name in known.decided and known.decided[name].ordinal < record.ordinal
        }
        if later:
            order_rows.renumber(connection.cursor(), later)
        claims = [Claim(name, record) for name, record in requests if name not in known.decided]
        terms = {
            name: known.sales[record.sale_id].terms_for(record.terms_version, seq=record.seq) for name, record in claims
        }
        decisions = _refuse(claims) if dead else _allocate(claims, known, terms)
        figures = _write(connection, pipeline, decisions, known=known, terms=terms, fence=fence)
        fault_point("in_transaction")
    fault_point("after_commit")
    outcomes = _outcomes(decisions, known=known, terms=terms)
    settled = [Settled(name, _decided_record(record, *outcomes[name])) for name, record in requests if name in outcomes]
    staying = [name for name, _ in requests if name not in outcomes]
    return Settlement(figures, settled, staying)


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
    order_rows.send_terms(terms, sorted({record.sale_id for _, record in requests}))
    order_rows.send_decided(decided, [name for name, _ in requests])
    order_rows.send_live_units(live, [(record.sale_id, record.buyer) for _, record in requests])
    # Without a Sync the server would count us as busy, not as idle in a transaction: a settler that is stopped here
    # would hold the stock row for 20 s instead of 5, and before PostgreSQL 17 without end.
    pipeline.sync()
    stock = ledger.recv_claim(claimed)
    (now,) = clock.fetchone() or (None,)
    return _Known(
        stock=stock,
        now=now,
        sales=order_rows.recv_terms(terms),
        decided=order_rows.recv_decided(decided),
        live_units=order_rows.recv_live_units(live),
    )


def _refuse(claims: Sequence[Claim]) -> list[Decision]:
    return [Decision(claim, State.REFUSED, Reason.DEAD_LETTER) for claim in claims]


def _allocate(claims: Sequence[Claim], known: _Known, terms: Mapping[str, order_rows.Terms]) -> list[Decision]:
    return allocate(
        claims,
        available=known.stock.available,
        held=known.stock.held,
        limits={name: promised.limit for name, promised in terms.items()},
        live_units=known.live_units,
        over=[sale_id for sale_id, sale in known.sales.items() if sale.over],
        paused=[sale_id for sale_id, sale in known.sales.items() if sale.paused],
    )


def _write(
    connection: Connection,
    pipeline: Pipeline,
    decisions: Sequence[Decision],
    *,
    known: _Known,
    terms: Mapping[str, order_rows.Terms],
    fence: int,
) -> StockFigures:
    stock, unchanged = known.stock, ledger.figures_of(known.stock)
    if not decisions:
        return unchanged
    inserts, update, moves = (connection.cursor(binary=True) for _ in range(3))
    order_rows.insert_orders(inserts, decisions, terms=terms, moment=known.now, actor=ACTOR)
    holds = [(each.claim.request_id, each.claim.record.quantity) for each in decisions if each.state is State.HELD]
    if not holds:
        return unchanged
    ledger.hold_units(update, moves, stock_id=stock.stock_id, fence=fence, holds=holds, actor=ACTOR)
    pipeline.sync()  # as above: recv_hold alone would leave us busy while we are stopped
    return ledger.recv_hold(update)


def _outcomes(
    decisions: Sequence[Decision], *, known: _Known, terms: Mapping[str, order_rows.Terms]
) -> dict[str, tuple[State, int | None]]:
    """Return the state of each request, and the end of its hold in Unix ms."""
    # A batch has one version of the terms, or two: an end for each request would be the same one 500 times.
    ends = order_rows.ends_of_holds(terms.values(), now=known.now)
    outcomes = {
        name: (was.state, order_rows.end_ms(was.state, was.hold_expires_at)) for name, was in known.decided.items()
    }
    for (name, _), state, _ in decisions:
        outcomes[name] = (state, ends[terms[name].hold_seconds] if state is State.HELD else None)
    return outcomes


def _decided_record(record: Record, state: State, ends_ms: int | None) -> Record:
    _, seq, quantity, sale_id, buyer, _, _, terms_version, ordinal, _ = record
    return Record(state, seq, quantity, sale_id, buyer, ends_ms, False, terms_version, ordinal)
