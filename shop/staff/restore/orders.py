"""Brings orders back that Redis remembers and a restored database lacks: in their place and state, their units taken
from the stock through the ledger. Never makes an order paid: only its provider's word does (charges.py).
Each page is one transaction under the stock's lock, and what is there already is left alone: run it again at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db import connection, transaction

from inventory import ledger
from inventory.allocation import Claim, Decision
from inventory.fault_injection import fault_point
from inventory.line import reading, repair, writing
from inventory.models import Stock
from inventory.postgres import Cursor
from inventory.records import Record, StockFigures, record_or_none
from inventory.redis import Client, keys, scan
from inventory.states import AFTER_RESTORE, RANK, WAITING_STATES, Reason, State
from shop import order_rows
from shop.models import Order
from shop.orders import holds
from shop.payments.losses import Loss

READ_PAGE, PAGE = 1_000, 2_000
# Of the stock row: far more than bringing back everything can take.
MANY_VERSIONS = 1_000_000
WITH_UNITS = (State.PAID, State.HELD)
# They had units and gave them back. One that was refunded waits as expired until its provider says so.
ENDED = (State.EXPIRED, State.REFUNDED)
HAD_UNITS = WITH_UNITS + ENDED


class Ahead(NamedTuple):
    """Where Redis is ahead of the orders of a SKU. missing: no order; over: held here, ended there.

    ends: the hold has another end here, as (request id, text in Redis, record as it should be).
    """

    missing: list[Claim]
    over: list[tuple[str, State]]
    ends: list[tuple[str, str, Record]]


def bring_back(client: Client, sku: str) -> list[Loss]:
    """Bring back what Redis remembers of `sku`; return what could not be, and why. Raises RedisUnavailable."""
    _keep_difference(client, sku)
    ahead = look(client, sku)
    _end_holds(sku, ahead.over)
    sales = _read_sales(ahead.missing)
    losses: list[Loss] = []
    safe: list[Claim] = []
    for claim in sorted(ahead.missing, key=lambda each: each.record.seq):
        why = _unknown(claim.record, sales)
        losses += [_left(sku, claim, kind="terms_missing", why=why)] if why else []
        safe += [] if why else [claim]
    # What ended needs its units for a moment only; who paid comes before who only held.
    for states in (ENDED, WITH_UNITS[:1], WITH_UNITS[1:], tuple(set(State) - set(HAD_UNITS))):
        left = _write([claim for claim in safe if claim.record.state in states], sku=sku, sales=sales)
        losses += [_left(sku, claim, kind="units_short", why="the stock has not so many free units") for claim in left]
    return losses


def _keep_difference(client: Client, sku: str) -> None:
    """Keep Redis ahead of the row while it was told another number of units in all.

    What is brought back raises the row's version, and could hide that units are missing. Its figures stay as they are.
    """
    told = reading.figures(client, sku)
    row = Stock.objects.get(sku=sku)
    if told is None or told.available + told.held + told.sold == row.total:
        return
    if row.version <= told.version < row.version + MANY_VERSIONS:
        figures = StockFigures(told.available, told.held, told.sold, told.version + 2 * MANY_VERSIONS)
        writing.publish_changes(client, sku, figures=figures, changed=[])


def publish_line(client: Client, sku: str) -> None:
    """Tell Redis the stock and the ends of holds as the books have them now, above every version it has heard of.

    To be called when nothing is left to decide: an older row must not pass for the newer one. Raises RedisUnavailable.
    """
    told = reading.figures(client, sku)
    if told is None:
        return
    with transaction.atomic(), connection.cursor() as cursor:
        stock = ledger.lock_stock(cursor, sku=sku)
        figures = ledger.figures_of(stock)
        seen = StockFigures(told.available, told.held, told.sold, told.version)
        if told.version >= stock.version and figures != seen:
            figures = ledger.raise_version(cursor, stock_id=stock.stock_id, above=told.version)
    fault_point("before_tell")
    holds.publish(holds.Changes(sku, figures, []))
    repair.renew_ends(client, sku, look(client, sku).ends)


def look(client: Client, sku: str) -> Ahead:
    """Compare every record of `sku` with its order. Raises RedisUnavailable."""
    ahead, seen = Ahead([], [], []), set[str]()
    for page in scan.pages(client, "HSCAN", keys.records(sku), size=READ_PAGE):
        fresh = {name: text for name, text in page if name not in seen}  # what moves during the walk may come twice
        seen.update(fresh)
        rows = Order.objects.filter(request_id__in=fresh).values_list("request_id", "state", "hold_expires_at")
        orders = {name: (State(state), ends) for name, state, ends in rows}
        for name, text in fresh.items():
            record = record_or_none(text)
            if record is not None and record.state not in WAITING_STATES:
                _note(ahead, Claim(name, record), text, orders.get(name))
    return ahead


def _note(ahead: Ahead, claim: Claim, text: str, order: tuple[State, datetime | None] | None) -> None:
    name, record = claim
    if order is None:
        ahead.missing.append(claim)
    elif order[0] is not State.HELD:
        return
    elif record.state is State.HELD:
        ends_ms = order_rows.end_ms(*order)
        if ends_ms != record.hold_expires_ms:
            ahead.ends.append((name, text, record._replace(hold_expires_ms=ends_ms)))
    elif RANK[record.state] > RANK[State.HELD] and record.state is not State.PAID:
        ahead.over.append((name, State.CANCELLED if record.state is State.CANCELLED else State.EXPIRED))


def _end_holds(sku: str, over: Iterable[tuple[str, State]]) -> None:
    for state in (State.EXPIRED, State.CANCELLED):
        names = [name for name, ended in over if ended is state]
        for start in range(0, len(names), PAGE):
            with transaction.atomic(), connection.cursor() as cursor:
                _end(cursor, sku, names[start : start + PAGE], state=state)


def _end(cursor: Cursor, sku: str, names: Sequence[str], *, state: State) -> None:
    why = Reason.BROUGHT_BACK
    holds.end_holds(cursor, sku=sku, request_ids=names, state=state, actor=AFTER_RESTORE, reason=why, due_only=False)


def _read_sales(claims: Sequence[Claim]) -> dict[int, order_rows.SaleNow]:
    with connection.cursor() as cursor:
        order_rows.send_terms(cursor, sorted({claim.record.sale_id for claim in claims}))
        return order_rows.recv_terms(cursor)


def _unknown(record: Record, sales: Mapping[int, order_rows.SaleNow]) -> str:
    """Return what the database lacks to bring a request back, '' when it has everything."""
    sale = sales.get(record.sale_id)
    if sale is None:
        return f"sale {record.sale_id} is not in the database"
    if record.terms_version and all(terms.version != record.terms_version for terms in sale.terms):
        return f"version {record.terms_version} of its sale's terms is not in the database"
    return ""


def _left(sku: str, claim: Claim, *, kind: str, why: str) -> Loss:
    record = claim.record
    units = record.quantity if record.state in WITH_UNITS else 0
    detail = f"was {record.state}, {record.quantity} asked, seq {record.seq}: {why}"
    return Loss(kind, sku, claim.request_id, record.buyer, units, detail)


def _write(claims: Sequence[Claim], *, sku: str, sales: Mapping[int, order_rows.SaleNow]) -> list[Claim]:
    """Write orders page by page; return those for whose units the stock has no room."""
    waiting, short = list(claims), []
    while waiting:
        page, waiting = waiting[:PAGE], waiting[PAGE:]
        left = _write_page(page, sku=sku, sales=sales)
        fault_point("after_bring_back")
        # Units of those that ended are free again after their page: then the others of it are tried again.
        is_stuck = len(left) == len(page) or page[0].record.state not in ENDED
        short += left if is_stuck else []
        waiting = waiting if is_stuck else left + waiting
    return short


def _write_page(claims: Sequence[Claim], *, sku: str, sales: Mapping[int, order_rows.SaleNow]) -> list[Claim]:
    with transaction.atomic(), connection.cursor() as cursor:
        stock = ledger.lock_stock(cursor, sku=sku)
        order_rows.send_decided(cursor, [claim.request_id for claim in claims])
        known = order_rows.recv_decided(cursor)
        fitting, left = _fit([claim for claim in claims if claim.request_id not in known], available=stock.available)
        if fitting:
            cursor.execute("SELECT clock_timestamp()")
            _insert(cursor, fitting, sales=sales, moment=cursor.fetchone()[0])
        units = [(name, record.quantity) for name, record in fitting if record.state in HAD_UNITS]
        if units:
            why = Reason.BROUGHT_BACK
            ledger.hold_again(cursor, stock_id=stock.stock_id, holds=units, actor=AFTER_RESTORE, reason=why)
        ended = [name for name, record in fitting if record.state in ENDED]
        if ended:
            _end(cursor, sku, ended, state=State.EXPIRED)
        fault_point("in_bring_back")
    return left


def _fit(claims: Sequence[Claim], *, available: int) -> tuple[list[Claim], list[Claim]]:
    fitting: list[Claim] = []
    left: list[Claim] = []
    for claim in claims:
        units = claim.record.quantity if claim.record.state in HAD_UNITS else 0
        (fitting if units <= available else left).append(claim)
        available -= units if units <= available else 0
    return fitting, left


def _insert(
    cursor: Cursor, claims: Sequence[Claim], *, sales: Mapping[int, order_rows.SaleNow], moment: datetime
) -> None:
    """Write orders as of now, each hold with its full time again. They are marked as restored: I8 leaves them out."""
    terms = {name: sales[record.sale_id].terms_for(record.terms_version, seq=record.seq) for name, record in claims}
    decisions = [
        Decision(
            claim._replace(record=claim.record._replace(restored=True)),
            State.HELD if claim.record.state in HAD_UNITS else claim.record.state,
            Reason.BROUGHT_BACK,
        )
        for claim in claims
    ]
    order_rows.insert_orders(cursor, decisions, terms=terms, moment=moment, actor=AFTER_RESTORE)
