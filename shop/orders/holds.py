"""Ends holds and places in line: expired, cancelled. Each exactly once: one conditional UPDATE, under the stock's lock.
Never decides which request is next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import structlog
from django.db import connection, transaction

from inventory import ledger, redis
from inventory.allocation import Claim, Decision
from inventory.exceptions import LineNotTold, NotPayable, RedisUnavailable, RequestNotFound
from inventory.line import reading, writing
from inventory.line.writing import Settled
from inventory.postgres import Cursor, array
from inventory.records import Record, StockFigures, sale_id_of
from inventory.states import RANK, WAITING_STATES, Reason, State
from shop import order_rows
from shop.models import Order
from shop.sales import catalogue

log = structlog.get_logger(__name__)

END = """
UPDATE shop_order o SET state = %(state)s, actor = %(actor)s, reason = %(reason)s, changed_at = clock_timestamp()
FROM shop_sale s
WHERE s.id = o.sale_id AND s.stock_id = %(stock_id)s AND o.state = 'held'
  AND o.request_id = ANY(%(request_ids)s::text[]) AND (NOT %(due_only)s OR o.hold_expires_at <= clock_timestamp())
RETURNING o.request_id, o.seq, o.quantity, o.sale_id, o.buyer, o.terms_version, o.ordinal
"""
# statement_timestamp(), because a volatile clock could not be used with the index.
DUE = """
SELECT t.sku, o.request_id
FROM (SELECT request_id, sale_id FROM shop_order
      WHERE state = 'held' AND hold_expires_at > statement_timestamp() - make_interval(secs => %(seconds)s)
            AND hold_expires_at <= statement_timestamp()
            AND sale_id <> ALL(ARRAY(SELECT l.id FROM shop_sale l JOIN inventory_stock k ON k.id = l.stock_id
                                     WHERE k.sku = ANY(%(without)s::text[])))
      ORDER BY hold_expires_at LIMIT %(limit)s) o
JOIN shop_sale s ON s.id = o.sale_id JOIN inventory_stock t ON t.id = s.stock_id
"""

RECORDS = """
SELECT request_id, seq, quantity, sale_id, buyer, terms_version, ordinal, state, hold_expires_at
FROM shop_order WHERE request_id = ANY(%(request_ids)s::text[])
"""


EVER_SECONDS = 10**9
# So many requests are named in a line of the log.
MAX_NAMED = 500
# Writes down who acted, in the transaction of the act itself, which holds the lock of the stock.
Note = Callable[[], None]


class Changes(NamedTuple):
    """What a COMMIT changed: the SKU's stock after it, and the new record of each request."""

    sku: str
    figures: StockFigures
    changed: list[Settled]


def end_holds(
    cursor: Cursor, *, sku: str, request_ids: Sequence[str], state: State, actor: str, reason: str, due_only: bool
) -> Changes:
    """End the holds among `request_ids` of `sku`, in the caller's transaction; the units are free again (I10).

    due_only: only those whose time is over by the database's clock. A request that is no longer held is left alone,
    so that of all who want to end a hold exactly one does.
    """
    stock = ledger.lock_stock(cursor, sku=sku)
    values = {
        "stock_id": stock.stock_id,
        "state": state.value,
        "actor": actor,
        "reason": reason,
        "request_ids": array(request_ids),
        "due_only": due_only,
    }
    cursor.execute(END, values)
    ended = cursor.fetchall()
    if not ended:
        return Changes(sku, ledger.figures_of(stock), [])
    units = [(name, quantity) for name, _, quantity, *_ in ended]
    figures = ledger.release_units(cursor, stock_id=stock.stock_id, units=units, actor=actor, reason=state.value)
    return Changes(sku, figures, [Settled(name, order_rows.record_of(state, *columns)) for name, *columns in ended])


def expire_due(cursor: Cursor, *, sku: str, request_ids: Sequence[str]) -> Changes:
    """Expire those of `request_ids` whose time is over, in the caller's transaction."""
    return end_holds(
        cursor,
        sku=sku,
        request_ids=request_ids,
        state=State.EXPIRED,
        actor="expirer",
        reason=Reason.NOT_PAID_IN_TIME,
        due_only=True,
    )


def find_due(
    cursor: Cursor, *, limit: int, ended_within_seconds: int = EVER_SECONDS, without: Iterable[str] = ()
) -> dict[str, list[str]]:
    """Return up to `limit` requests by SKU whose hold is over by the database's clock.

    ended_within_seconds: look only at holds that ended so lately; all are looked at by default.
    without: SKUs that are left out.
    """
    cursor.execute(DUE, {"limit": limit, "seconds": ended_within_seconds, "without": array(without)})
    due: dict[str, list[str]] = {}
    for sku, name in cursor.fetchall():
        due.setdefault(sku, []).append(name)
    return due


def records_now(cursor: Cursor, request_ids: Sequence[str]) -> list[Settled]:
    """Return the record of each request that has an order, as the database knows it now."""
    cursor.execute(RECORDS, {"request_ids": array(request_ids)})
    return [
        Settled(name, order_rows.record_of(State(state), *columns, ends_at=ends))
        for name, *columns, state, ends in cursor.fetchall()
    ]


def publish(changes: Changes) -> None:
    """Tell the line what was committed. Raises LineNotTold when it is away; the reconciler also tells it later.

    Let that error be the answer of a call: what a buyer has been told, the line must know, or its next answer would
    take it back. The call repeated tells the line first (see catch_up).
    """
    try:
        writing.publish_changes(redis.connect(), changes.sku, figures=changes.figures, changed=changes.changed)
    except RedisUnavailable as error:
        names = [name for name, _ in changes.changed[:MAX_NAMED]]
        what = {"sku": changes.sku, "requests": names, "error": repr(error)}
        log.warning("committed, but the line was not told", action="tell_failed", **what)
        raise LineNotTold from error


def catch_up(order: Order) -> None:
    """Tell the line how `order` (read with its sale and stock) stands, if the line is behind.

    To be called before anybody hears of a state that was read from the database. A request that the line has lost is
    answered from the database everywhere. Raises RedisUnavailable, LineNotTold.
    """
    stock, state = order.sale.stock, State(order.state)
    (place,) = reading.places(redis.connect(), stock.sku, [order.request_id])
    if place is None or RANK[place.record.state] >= RANK[state]:
        return
    with connection.cursor() as cursor:
        records = records_now(cursor, [order.request_id])
    publish(Changes(stock.sku, StockFigures(stock.available, stock.held, stock.sold, stock.version), records))


def cancel(
    request_id: str,
    *,
    buyer: str,
    actor: str = "buyer",
    reason: str = Reason.CANCELLED_BY_BUYER,
    again_ok: bool = True,
    note: Note = lambda: None,
) -> State:
    """Give up `buyer`'s hold, or their place in line; return the state after it. Safe to repeat.

    again_ok: False for staff, whose act it must be: NotPayable when a call before this one did it.
    note: called in the transaction that ends the hold.

    Raises RequestNotFound (also for another buyer's), NotPayable when it is paid or over, Unavailable; LineNotTold
    when it is done and must be asked again.
    """
    order = Order.objects.select_related("sale__stock").filter(request_id=request_id).first()
    if order is None:
        if _leave_line(request_id, buyer=buyer, actor=actor):
            return State.CANCELLED
        order = Order.objects.select_related("sale__stock").filter(request_id=request_id).first()
    if order is None or order.buyer != buyer:
        raise RequestNotFound
    changes = _cancel_hold(order, actor=actor, reason=reason, note=note)
    if changes.changed:
        publish(changes)
        return State.CANCELLED
    order = Order.objects.select_related("sale__stock").get(pk=order.pk)
    if again_ok:  # staff read the database, buyers the line
        if order.state == State.CANCELLED:
            return State.CANCELLED
        catch_up(order)
    text = f"this request is {order.state.replace('_', ' ')}; there is nothing to cancel"
    raise NotPayable(text, state=order.state)


def _cancel_hold(order: Order, *, actor: str, reason: str, note: Note) -> Changes:
    with transaction.atomic(), connection.cursor() as cursor:
        changes = end_holds(
            cursor,
            sku=order.sale.stock.sku,
            request_ids=[order.request_id],
            state=State.CANCELLED,
            actor=actor,
            reason=reason,
            due_only=False,
        )
        if changes.changed:
            note()
    return changes


def _leave_line(request_id: str, *, buyer: str, actor: str) -> bool:
    """Decide a waiting request as cancelled; False when it was decided meanwhile. Raises RequestNotFound."""
    sale_id = sale_id_of(request_id)
    if sale_id is None:
        raise RequestNotFound
    card = catalogue.find_sale_by_id(sale_id)
    (place,) = reading.places(redis.connect(), card.sku, [request_id])
    if place is None or place.record.buyer != buyer:
        raise RequestNotFound
    if place.record.state not in WAITING_STATES:
        return False
    return _decide_waiting(
        request_id, place.record, sku=card.sku, state=State.CANCELLED, actor=actor, reason=Reason.LEFT_THE_LINE
    )


def refuse(request_id: str, record: Record, *, sku: str, actor: str) -> None:
    """Decide a waiting request as refused, for good, because staff discarded it. One that is decided stays as it is.

    Raises Unavailable; LineNotTold when it is done and must be asked again.
    """
    if not _decide_waiting(
        request_id, record, sku=sku, state=State.REFUSED, actor=actor, reason=Reason.DISCARDED_BY_STAFF
    ):
        catch_up(Order.objects.select_related("sale__stock").get(request_id=request_id))


def _decide_waiting(request_id: str, record: Record, *, sku: str, state: State, actor: str, reason: Reason) -> bool:
    """Write the order of a waiting request and tell the line; False when it has an order already."""
    with transaction.atomic(), connection.cursor() as cursor:
        stock = ledger.lock_stock(cursor, sku=sku)
        order_rows.send_decided(cursor, [request_id])
        if order_rows.recv_decided(cursor):
            return False
        order_rows.send_terms(cursor, [record.sale_id])
        terms = order_rows.recv_terms(cursor)[record.sale_id].terms_for(record.terms_version, seq=record.seq)
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
        decision = Decision(Claim(request_id, record), state, reason)
        order_rows.insert_orders(cursor, [decision], terms={request_id: terms}, moment=now, actor=actor)
    gone = record._replace(state=state, restored=False)
    publish(Changes(sku, ledger.figures_of(stock), [Settled(request_id, gone)]))
    return True
