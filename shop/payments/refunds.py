"""Gives money back: for staff, for money that came in vain, and when the provider says that it did.
Never takes goods without their money having gone, never pays twice.
"""

from __future__ import annotations

from contextlib import suppress

import structlog
from django.db import connection, transaction
from django.db.models.functions import Now
from django.db.models.query import QuerySet
from structlog.contextvars import bound_contextvars

from inventory import ledger
from inventory.exceptions import FairdropError, LineNotTold, NotPayable
from inventory.postgres import Cursor
from inventory.states import Reason, State
from inventory.telemetry.measures import RETRIES
from shop.models import Payment
from shop.orders.holds import Changes, Note, publish
from shop.payments.providers import Notice, provider
from shop.payments.rows import OPEN_STATES, Locked, NoticeResult, change_order, change_payment, lock, settled, sku_of

log = structlog.get_logger(__name__)


def refund_order(request_id: str, *, actor: str, reason: str, ask_now: bool = True, note: Note = lambda: None) -> None:
    """Give a paid order's money back and make its units free again, for staff. Raises NotPayable.

    ask_now: ask the provider for the money before this returns; else the payments worker asks, as for every refund due.
    note: called in the transaction that makes the refund due.
    """
    payment = Payment.objects.filter(order__request_id=request_id, state=Payment.State.CAPTURED).first()
    if payment is None:
        raise NotPayable("no payment of this request can be given back")
    sku = sku_of(payment.reference)
    with transaction.atomic(), connection.cursor() as cursor:
        stock = ledger.lock_stock(cursor, sku=sku)
        found = lock(cursor, payment.reference)
        if found.state is not State.PAID or found.payment_state != Payment.State.CAPTURED:
            raise NotPayable("this request is no longer paid")
        change_payment(cursor, payment.reference, Payment.State.REFUND_DUE, reason=reason)
        changes = _take_goods_back(cursor, found, sku=sku, stock=stock, actor=actor, reason=reason)
        note()
    if ask_now:
        with bound_contextvars(request=request_id):
            refund_now(payment.reference)
    with suppress(LineNotTold):  # staff read the database; the buyer's page and calls tell the line first
        publish(changes)


def take_refund(notice: Notice, *, actor: str) -> tuple[NoticeResult, Changes | None]:
    """Note, in the caller's transaction, that money went back; return what came of it and what the line must hear.

    Of a payment not heard of as captured: whatever is said of it later buys nothing. Of one that paid an order: the
    provider took the money back by itself, and the units are free again.
    """
    sku = sku_of(notice.reference)
    with connection.cursor() as cursor:
        stock = ledger.lock_stock(cursor, sku=sku)
        found = lock(cursor, notice.reference)
        if found.payment_state == Payment.State.REFUNDED:
            return NoticeResult.NOTHING, None
        if (notice.amount, notice.currency) != (found.amount, found.currency):
            if found.payment_state != Payment.State.REFUND_DUE:  # money that is owed goes back whole, however much came
                log.error(
                    "part of a payment went back; the order stays paid", action="part_refund", payment=notice.reference
                )
            return NoticeResult.NOTHING, None
        change_payment(cursor, notice.reference, Payment.State.REFUNDED, reason=_refund_reason(notice.reference))
        if found.payment_state in (*OPEN_STATES, Payment.State.REFUND_DUE):
            return NoticeResult.REFUNDED, None
        return NoticeResult.REFUNDED, _take_goods_back(
            cursor, found, sku=sku, stock=stock, actor=actor, reason=Reason.REFUNDED_BY_PROVIDER
        )


def _refund_reason(reference: str) -> str:
    """Return why money goes back: as it was written when we asked for that, unless it failed."""
    asked = Payment.objects.filter(reference=reference, state=Payment.State.REFUND_DUE)
    reasons = asked.exclude(reason=Reason.REFUND_FAILED).values_list("reason", flat=True)
    return reasons.first() or Reason.REFUNDED_BY_PROVIDER


def is_outdated(notice: Notice, *, provider_name: str) -> bool:
    """Say whether a notice of a refund that failed, or of one after it, is contradicted by what its provider says now.

    Notices come in any order, and the last of them must not decide whether money is owed. The provider is asked about
    these only. Raises Unavailable.
    """
    failed = Payment.objects.filter(reference=notice.reference, reason=Reason.REFUND_FAILED)
    if notice.kind != "refund_failed" and not (notice.kind == "refunded" and failed.exists()):
        return False
    found = provider(provider_name).look_up(notice.reference)
    return (found is not None and found.kind == "refunded") != (notice.kind == "refunded")


def owe_again(notice: Notice) -> NoticeResult:
    """Note, in the caller's transaction, that money which went back came to us again; the order stays as it is.

    Its provider would fail at it once more, so nobody asks for it: a person must find another way.
    """
    asked = Payment.objects.filter(
        reference=notice.reference, state__in=(Payment.State.REFUND_DUE, Payment.State.REFUNDED)
    )
    changed = asked.update(state=Payment.State.REFUND_DUE, reason=Reason.REFUND_FAILED, changed_at=Now())
    return NoticeResult.REFUND_DUE if changed else NoticeResult.NOTHING


def has_failed(request_id: str) -> bool:
    """Say whether a refund of this request failed, and its money is owed."""
    return _failed(request_id).exists()


def note_sent(request_id: str, *, reason: str, note: Note) -> None:
    """Note that the buyer got the money of a failed refund by another way. Raises NotPayable when none has failed.

    note: called in the transaction that notes it.
    """
    sku = _failed(request_id).values_list("order__sale__stock__sku", flat=True).first()
    if sku is None:
        raise NotPayable("no refund of this request has failed")
    with transaction.atomic(), connection.cursor() as cursor:
        # The stock first, as everywhere: a provider's news, or a second press, waits here and finds what is owed then.
        ledger.lock_stock(cursor, sku=sku)
        # One at a time: money that nobody sent stays owed.
        first = Payment.objects.filter(pk__in=_failed(request_id).order_by("pk").values("pk")[:1])
        if not first.update(state=Payment.State.REFUNDED, reason=reason, changed_at=Now()):
            raise NotPayable("no refund of this request has failed")
        note()


def _failed(request_id: str) -> QuerySet[Payment]:
    due = Payment.objects.filter(state=Payment.State.REFUND_DUE, reason=Reason.REFUND_FAILED)
    return due.filter(order__request_id=request_id)


def _take_goods_back(
    cursor: Cursor, found: Locked, *, sku: str, stock: ledger.ClaimedStock, actor: str, reason: str
) -> Changes:
    change_order(cursor, found, State.REFUNDED, actor=actor, reason=reason)
    figures = ledger.return_units(
        cursor,
        stock_id=stock.stock_id,
        request_id=found.request_id,
        units=found.quantity,
        actor=actor,
        reason=reason,
    )
    return Changes(sku, figures, [settled(found, State.REFUNDED)])


def refund_now(reference: str) -> bool:
    """Ask the provider to give the money of a refund_due payment back; say whether it did.

    When it cannot, the payment stays refund_due and the payments worker asks again.
    """
    try:
        return ask_refund(reference)
    except FairdropError as error:
        RETRIES.add("refund_due")
        log.warning("refund put off", action="refund_retry", payment=reference, error=repr(error))
        return False


def ask_refund(reference: str) -> bool:
    """As refund_now, for a caller that must know why not. Raises Unavailable, and what else the provider raises."""
    payment = Payment.objects.get(reference=reference)
    if payment.state != Payment.State.REFUND_DUE or payment.reason == Reason.REFUND_FAILED:
        return payment.state == Payment.State.REFUNDED
    why_not = provider(payment.provider).refund(reference)
    # It may have failed already.
    due = Payment.objects.filter(reference=reference, state=Payment.State.REFUND_DUE)
    due.exclude(reason=Reason.REFUND_FAILED).update(
        state=Payment.State.REFUNDED, reason=why_not or payment.reason, changed_at=Now()
    )
    return True
