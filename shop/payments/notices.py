"""Begins payments, and brings what providers say into orders: exactly one of paid, expired, cancelled wins a hold.
Never trusts an amount but the order's own; never keeps money without goods.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from uuid import uuid4

import structlog
from django.db import DataError, connection, transaction
from django.db.models.functions import Now
from structlog.contextvars import bound_contextvars

from inventory import ledger
from inventory.exceptions import InvalidRequest, NotPayable, PaymentOpen, PaymentsLimited, RequestNotFound
from inventory.line.writing import Settled
from inventory.postgres import Cursor
from inventory.records import StockFigures
from inventory.states import Reason, State
from inventory.telemetry import traces
from shop.models import Order, Payment
from shop.orders.holds import Changes, catch_up, publish
from shop.orders.personal_data import FORGOTTEN
from shop.payments import tries
from shop.payments.captures import Capture, sell_held
from shop.payments.providers import Notice, provider
from shop.payments.refunds import is_outdated, owe_again, refund_now, take_refund
from shop.payments.rows import (
    ACTOR,
    OPEN_STATES,
    Locked,
    NoticeResult,
    Target,
    change_order,
    change_payment,
    find_target,
    keep_notices,
    lock,
    settled,
)

log = structlog.get_logger(__name__)

# A card was declined, alone or with its whole charge.
DECLINES = (NoticeResult.DECLINED, NoticeResult.CARD_DECLINED, NoticeResult.RISKY_CARD_DECLINED)
LIVE_UNITS_OF_BUYER = """
SELECT coalesce(sum(quantity), 0) FROM shop_order
WHERE sale_id = %(sale_id)s AND buyer = %(buyer)s AND state IN ('held', 'paid')
"""


def find_payable(request_id: str, *, buyer: str) -> Order:
    """Return `buyer`'s order. Raises RequestNotFound (also for another's), NotPayable when nothing can be paid."""
    order = Order.objects.select_related("sale__stock").filter(request_id=request_id, buyer=buyer).first()
    if order is None:
        raise RequestNotFound
    if order.state not in (State.HELD, State.PAID):
        catch_up(order)
        raise NotPayable(f"this request is {order.state.replace('_', ' ')}; it cannot be paid", state=order.state)
    return order


def begin(order: Order, *, provider_name: str) -> Payment:
    """Return the open payment of a held order, making it when there is none: the amount is the order's own (I12).

    Raises NotPayable when the order is not held any more, PaymentsLimited after too many cards that were declined,
    PaymentOpen when other payments of the buyer that are open may be the last ones.
    """
    with transaction.atomic():
        # Two clicks make one payment, and each counts what the other one began.
        tries.take_turn(order.buyer)
        order = Order.objects.get(pk=order.pk)
        if order.state != State.HELD:
            raise NotPayable(f"this request is {order.state}; it cannot be paid")
        open_ones = tries.find_open(order)
        found = next((one for one in open_ones if (one.order_id, one.provider) == (order.pk, provider_name)), None)
        _refuse_card_testing(order, others=[one for one in open_ones if one != found])
        return found or Payment.objects.create(
            order=order,
            provider=provider_name,
            reference=uuid4().hex,
            amount=order.unit_price * order.quantity,
            currency=order.currency,
        )


def _refuse_card_testing(order: Order, *, others: list[Payment]) -> None:
    """Raise PaymentsLimited after too many declined cards of this hold, or of this buyer since a day.

    Raise PaymentOpen while they may become too many by what is open besides: each of `others` may be declined, too.
    """
    declined = tries.count(order)
    until = order.hold_expires_at.isoformat() if order.hold_expires_at else None
    if declined.are_too_many:
        log.warning("payment refused", action="payments_limited", request=order.request_id, **declined._asdict())
        raise PaymentsLimited(hold_expires_at=until)
    if declined.with_open(others, order=order).are_too_many:
        raise PaymentOpen(hold_expires_at=until)


def read_and_take(headers: Mapping[str, str], body: bytes, *, provider_name: str) -> NoticeResult:
    """Bring what a provider sent into the books; return what came of it.

    Raises InvalidRequest when it is not signed as it must be, and what take_notice raises.
    """
    notice = provider(provider_name).read_notice(headers, body)
    return NoticeResult.NOTHING if notice is None else take_notice(notice, provider_name=provider_name)


def take_notice(notice: Notice, *, provider_name: str) -> NoticeResult:
    """Bring a provider's notice into the books; return what came of it. The same notice again changes nothing.

    Notices may come twice, late, or in any order: what counts is the state they meet. Raises RequestNotFound when no
    payment of ours is meant; LineNotTold when it is in the books and must be sent again; Unavailable when this was one
    declined card too many and the provider does not answer to end its page: sent again, it is asked again.
    """
    target = find_target(notice, provider_name=provider_name)
    # One that comes again must not undo what was forgotten meanwhile.
    if notice.card and not target.result and not target.buyer.startswith(FORGOTTEN):
        Payment.objects.filter(reference=notice.reference, card="").update(card=notice.card)
    name = target.request_id
    with bound_contextvars(payment=notice.reference, request=name), traces.spans("pay", [name]) as spans:
        result = _take(notice, target, provider_name=provider_name)
        if result in DECLINES:
            _end_card_testing(target)
        spans.note_outcomes([(name, result)])
        return result


def _take(notice: Notice, target: Target, *, provider_name: str) -> NoticeResult:
    if target.result:
        catch_up(Order.objects.select_related("sale__stock").get(pk=target.order_id))
        return target.result
    if notice.kind == "captured":
        return _capture(notice, target, provider_name=provider_name)
    changes = None
    outdated = is_outdated(notice, provider_name=provider_name)
    with transaction.atomic():
        if outdated:
            result = NoticeResult.NOTHING
        elif notice.kind == "refunded":
            result, changes = take_refund(notice, actor=ACTOR)
        elif notice.kind == "refund_failed":
            result = owe_again(notice)
        else:
            # Who begins a payment at this moment counts this one, or is counted when too many end what is open.
            tries.take_turn(target.buyer)
            result = _note_decline(notice)
        keep_notices([(notice, provider_name)], result=result)
    if changes is not None:
        publish(changes)
    return result


def _note_decline(notice: Notice) -> NoticeResult:
    """Note a declined card, or a whole charge; money that was captured is not forgotten for a late one."""
    if notice.kind == "card_declined":
        log.warning("a card was declined", action="card_declined", is_risky=notice.is_risky)
        return NoticeResult.RISKY_CARD_DECLINED if notice.is_risky else NoticeResult.CARD_DECLINED
    open_one = Payment.objects.filter(reference=notice.reference, state=Payment.State.PENDING)
    changed = open_one.update(state=Payment.State.DECLINED, reason="", changed_at=Now())
    return NoticeResult.DECLINED if changed else NoticeResult.NOTHING


def _end_card_testing(target: Target) -> None:
    """Let no provider take one more card for a hold after too many that were declined; it stays held.

    After the transaction of the notice: of two that come at once, one counts both. What is captured at that moment is
    taken: nobody loses a payment.
    """
    order = Order.objects.get(pk=target.order_id)
    if order.state != State.HELD or not (declined := tries.count(order)).are_too_many:
        return
    for payment in tries.close_open(order, declined):
        log.warning("no more cards", action="payments_limited", payment=payment.reference, **declined._asdict())
        news = None
        with suppress(InvalidRequest):  # one page that cannot be ended keeps no other; the payments worker asks again
            news = provider(payment.provider).end(payment.reference)
        if news is not None and news.kind == "captured":
            take_notice(news, provider_name=payment.provider)


def _capture(notice: Notice, target: Target, *, provider_name: str) -> NoticeResult:
    """Let captured money buy what it was for; what it cannot buy any more is given back at once (I10, I12).

    Returns PAID, REFUND_DUE, or NOTHING when this payment was brought in before.
    """
    # One that was brought in before, as by the first of Stripe's two events of a payment, would end the transaction of
    # all captures that wait with it.
    if target.payment_state in OPEN_STATES:
        with suppress(DataError):  # not held any more, not the amount that was due, or brought in meanwhile
            sell_held(Capture(notice=notice, target=target, provider_name=provider_name))
            return NoticeResult.PAID
    return _look_and_capture(notice, sku=target.sku, provider_name=provider_name)


def _look_and_capture(notice: Notice, *, sku: str, provider_name: str) -> NoticeResult:
    with transaction.atomic(), connection.cursor() as cursor:
        # The stock first, as everywhere: anyone who ends holds meets us here, one after another.
        stock = ledger.lock_stock(cursor, sku=sku)
        found = lock(cursor, notice.reference)
        if found.payment_state not in OPEN_STATES:
            keep_notices([(notice, provider_name)], result=NoticeResult.NOTHING)
            return NoticeResult.NOTHING
        rejection_reason = _rejection_reason(cursor, found, notice, stock=stock)
        if rejection_reason:
            figures, changed = _refuse(cursor, found, notice.reference, reason=rejection_reason, stock=stock)
        else:
            figures, changed = _sell(cursor, found, notice.reference, stock=stock)
        result = NoticeResult.REFUND_DUE if rejection_reason else NoticeResult.PAID
        keep_notices([(notice, provider_name)], result=result)
    if rejection_reason:
        log.warning(
            "payment captured for an unavailable hold; refunding",
            action="refund_due",
            request=found.request_id,
            reason=rejection_reason,
        )
        refund_now(notice.reference)
    publish(Changes(sku, figures, changed))
    return result


def _rejection_reason(cursor: Cursor, found: Locked, notice: Notice, *, stock: ledger.ClaimedStock) -> str:
    """Return why this money cannot buy the order, '' when it can."""
    if (notice.amount, notice.currency) != (found.amount, found.currency):
        return f"{notice.amount} {notice.currency} were captured, {found.amount} {found.currency} were due"
    if found.state is State.HELD:
        return ""
    if found.state is not State.EXPIRED:
        return f"the request was {found.state} already"
    if stock.available < found.quantity:
        return Reason.TOO_LATE_UNITS_GONE
    cursor.execute(LIVE_UNITS_OF_BUYER, {"sale_id": found.sale_id, "buyer": found.buyer})
    if cursor.fetchone()[0] + found.quantity > found.buyer_limit:
        return Reason.TOO_LATE_LIMIT_REACHED
    return ""


def _sell(
    cursor: Cursor, found: Locked, reference: str, *, stock: ledger.ClaimedStock
) -> tuple[StockFigures, list[Settled]]:
    late = found.state is State.EXPIRED
    reason = Reason.PAID_LATE if late else ""
    _change(cursor, found, reference, order=State.PAID, payment=Payment.State.CAPTURED, reason=reason)
    if late:
        figures = ledger.retake_units(
            cursor, stock_id=stock.stock_id, request_id=found.request_id, units=found.quantity, actor=ACTOR
        )
    else:
        figures = ledger.sell_units(cursor, stock_id=stock.stock_id, units=found.quantity)
    return figures, [settled(found, State.PAID)]


def _refuse(
    cursor: Cursor, found: Locked, reference: str, *, reason: str, stock: ledger.ClaimedStock
) -> tuple[StockFigures, list[Settled]]:
    """Owe the money back; an order that had ended for good shows it, one that is held or paid by another stays."""
    ended = found.state.may_become(State.REFUNDED) and found.state is not State.PAID
    order = State.REFUNDED if ended else found.state
    _change(cursor, found, reference, order=order, payment=Payment.State.REFUND_DUE, reason=reason)
    return ledger.figures_of(stock), [settled(found, order)] if ended else []


def _change(
    cursor: Cursor, found: Locked, reference: str, *, order: State, payment: Payment.State, reason: str
) -> None:
    if order is not found.state:
        change_order(cursor, found, order, actor=ACTOR, reason=reason)
    change_payment(cursor, reference, payment, reason=reason)
