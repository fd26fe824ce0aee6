"""Lets captured money pay the holds it is for. All captures of one SKU that wait in this process are one transaction.
Never decides what else the money can do: it raises DataError, and nothing was written.

Each transaction locks the row of the stock and waits for the disk. One by one, a crowd that pays at the same moment
waits for as many COMMITs as there are payments, and so does the settler.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event, Lock
from weakref import WeakValueDictionary

from django.db import DataError, connection, transaction

from inventory import ledger
from inventory.postgres import limit_transaction, pipeline_of
from inventory.states import State
from inventory.telemetry.measures import HOLD, Histogram
from shop.orders.holds import Changes, publish
from shop.payments.providers import Notice
from shop.payments.rows import NoticeResult, Target, keep_notices, send_capture, settled

HOLD_TO_PAID_SECONDS = Histogram(
    "fairdrop_hold_to_paid_seconds", "From the beginning of a hold to its payment", bounds=HOLD
)


@dataclass(frozen=True, kw_only=True)
class Capture:
    """A provider's notice of captured money, and the order that it is for. called: it is done, or has the turn."""

    notice: Notice
    target: Target
    provider_name: str
    done: Future[None] = field(default_factory=Future, repr=False)
    called: Event = field(default_factory=Event, repr=False)


class _Turn:
    """Who sells one SKU in this process: one thread at a time, for all captures that wait."""

    def __init__(self) -> None:
        self.is_taken = False
        self.waiting: list[Capture] = []


# A SKU is forgotten when no thread has a capture of it any more.
_turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
_guard = Lock()


def sell_held(capture: Capture) -> None:
    """Let money pay a hold, together with all that waits for the same SKU, and tell the line.

    Never within a transaction of the caller. Raises DataError when this is not what the money can do, and nothing was
    written; LineNotTold when it is in the books and must be sent again.
    """
    sku = capture.target.sku
    with _guard:
        turn = _turns.get(sku)
        if turn is None:
            _turns[sku] = turn = _Turn()
        turn.waiting.append(capture)
        has_turn, turn.is_taken = not turn.is_taken, True
    if not has_turn:
        capture.called.wait()
    if not capture.done.done():
        _take_turn(sku, turn)
    capture.done.result()


def _take_turn(sku: str, turn: _Turn) -> None:
    """Sell for all that wait; give the turn to the next one, and only then tell the line and those who waited."""
    with _guard:
        captures, turn.waiting = turn.waiting, []
    changes = _sell_or_fail(sku, captures)
    with _guard:
        turn.is_taken = bool(turn.waiting)
        if turn.waiting:
            turn.waiting[0].called.set()
    sold = [capture for capture in captures if not capture.done.done()]
    try:
        for capture in sold:
            HOLD_TO_PAID_SECONDS.observe(capture.target.rested_seconds)
        if changes:
            publish(changes)
    except BaseException as error:  # also what ends this thread: the others would wait for ever
        _fail(sold, error)
    else:
        for capture in sold:
            capture.done.set_result(None)
    finally:
        for capture in captures:
            capture.called.set()


def _sell_or_fail(sku: str, captures: Sequence[Capture]) -> Changes | None:
    """Sell all of `captures`, or each alone when one of them is not what its money can do; fail those that are not."""
    try:
        return _sell(sku, captures)
    except DataError as error:
        if len(captures) > 1:
            found = [_sell_or_fail(sku, [capture]) for capture in captures]
            sold = [changes for changes in found if changes]
            return Changes(sku, sold[-1].figures, [each for one in sold for each in one.changed]) if sold else None
        _fail(captures, error)
    except BaseException as error:  # as above
        _fail(captures, error)
    return None


def _fail(captures: Sequence[Capture], error: BaseException) -> None:
    for capture in captures:
        capture.done.set_exception(error)


def _sell(sku: str, captures: Sequence[Capture]) -> Changes:
    """Sell in one round trip: anyone who wants a unit of this SKU waits for the row.

    A thread that had to be woken in between would hold it for as long as others keep the interpreter busy.
    """
    stock_id = captures[0].target.stock_id
    with connection.cursor() as cursor, connection.cursor() as stock:
        # Durable: those who wait are told of a COMMIT, which an outer transaction could still take back.
        with pipeline_of(connection), transaction.atomic(durable=True):
            limit_transaction(cursor, only_this=True)
            # The stock first, as everywhere: anyone who ends holds meets us here, one after another.
            ledger.send_lock(cursor, sku=sku)
            for each in captures:
                send_capture(cursor, each.notice, provider_name=each.provider_name)
            ledger.send_sale(stock, stock_id=stock_id, units=sum(each.target.quantity for each in captures))
            keep_notices([(each.notice, each.provider_name) for each in captures], result=NoticeResult.PAID)
        figures = ledger.recv_sale(stock)
    return Changes(sku, figures, [settled(each.target, State.PAID) for each in captures])
