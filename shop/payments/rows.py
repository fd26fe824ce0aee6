"""Locks a payment with its order, and changes either, in the caller's transaction. Decides nothing, never commits.
The caller must hold the lock of the stock row.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from django.db import connection

from inventory.exceptions import RequestNotFound, StaleWrite
from inventory.line.writing import Settled
from inventory.postgres import Cursor
from inventory.states import State
from shop.models import Payment, PaymentNotice
from shop.order_rows import record_of
from shop.payments.providers import Notice

ACTOR = "payment"
# Money may still come for a payment in one of these: a buyer whose card was declined takes another one.
OPEN_STATES = (Payment.State.PENDING, Payment.State.DECLINED)

# All that must be known before a lock is taken, in one round trip: a provider waits for the answer.
TARGET = """
SELECT t.sku, t.id, (SELECT n.result FROM shop_paymentnotice n
                     WHERE n.provider = %(provider)s AND n.event_id = %(event_id)s),
       o.id, o.request_id, o.seq, o.quantity, o.sale_id, o.buyer, o.terms_version, o.ordinal,
       extract(epoch FROM clock_timestamp() - o.changed_at)::float, p.state
FROM shop_payment p JOIN shop_order o ON o.id = p.order_id JOIN shop_sale s ON s.id = o.sale_id
JOIN inventory_stock t ON t.id = s.stock_id
WHERE p.reference = %(reference)s AND p.provider = %(provider)s
"""
LOCK_PAYMENT = """
SELECT p.state, p.amount, p.currency, o.id, o.request_id, o.sale_id, o.buyer, o.quantity, o.seq, o.state, o.buyer_limit,
       o.terms_version, o.ordinal
FROM shop_payment p JOIN shop_order o ON o.id = p.order_id WHERE p.reference = %(reference)s FOR UPDATE
"""
# Both rows or neither: when the order is not held, or the money is not what was due, the division ends the transaction.
CAPTURE = """
WITH open_one AS (
    SELECT id, order_id FROM shop_payment
    WHERE reference = %(reference)s AND provider = %(provider)s AND state IN ('pending', 'declined')
      AND amount = %(amount)s AND currency = %(currency)s
), sold AS (
    UPDATE shop_order o SET state = 'paid', actor = %(actor)s, reason = '', changed_at = clock_timestamp()
    FROM open_one WHERE o.id = open_one.order_id AND o.state = 'held' RETURNING o.id
), captured AS (
    UPDATE shop_payment p SET state = 'captured', reason = '', changed_at = clock_timestamp()
    FROM open_one JOIN sold ON sold.id = open_one.order_id WHERE p.id = open_one.id RETURNING p.id
)
SELECT 1 / count(*) FROM captured
"""
CHANGE_ORDER = """
UPDATE shop_order SET state = %(to)s, actor = %(actor)s, reason = %(reason)s, changed_at = clock_timestamp()
WHERE id = %(order_id)s AND sale_id = %(sale_id)s AND state = %(was)s RETURNING id
"""
CHANGE_PAYMENT = """
UPDATE shop_payment SET state = %(to)s, reason = %(reason)s, changed_at = clock_timestamp()
WHERE reference = %(reference)s
"""


class NoticeResult(StrEnum):
    """What came of a provider's notice. Stored with it and told to the provider: a value never changes."""

    PAID = "paid"
    DECLINED = "declined"
    REFUND_DUE = "refund_due"
    REFUNDED = "refunded"
    NOTHING = "nothing to change"
    CARD_DECLINED = "card declined"
    RISKY_CARD_DECLINED = "card declined, at high risk"


class Target(NamedTuple):
    """What a notice is about, as far as it never changes. result: of this notice when it was heard before.

    rested_seconds: how long the order had been as it was found. payment_state: when this was read; money may have come
    since.
    """

    sku: str
    stock_id: int
    result: NoticeResult | None
    order_id: int
    request_id: str
    seq: int
    quantity: int
    sale_id: int
    buyer: str
    terms_version: int | None
    ordinal: int | None
    rested_seconds: float
    payment_state: str


class Locked(NamedTuple):
    """A payment and its order, both locked for this transaction, the stock row before them."""

    payment_state: str
    amount: Decimal
    currency: str
    order_id: int
    request_id: str
    sale_id: int
    buyer: str
    quantity: int
    seq: int
    state: State
    buyer_limit: int
    terms_version: int | None
    ordinal: int | None


def find_target(notice: Notice, *, provider_name: str) -> Target:
    """Return what a notice is about. Raises RequestNotFound when no payment of ours is meant."""
    values = {"provider": provider_name, "event_id": notice.event_id, "reference": notice.reference}
    with connection.cursor() as cursor:
        cursor.execute(TARGET, values)
        row = cursor.fetchone()
    if row is None:
        raise RequestNotFound("there is no such payment")
    found = Target(*row)
    return found._replace(result=found.result and NoticeResult(found.result))


def keep_notices(notices: Iterable[tuple[Notice, str]], *, result: NoticeResult) -> None:
    """Keep notices (with the provider's name) in the transaction of what they did: without it, none is tried again."""
    kept = [
        PaymentNotice(
            provider=provider_name,
            event_id=notice.event_id,
            kind=notice.kind,
            reference=notice.reference,
            result=result,
        )
        for notice, provider_name in notices
    ]
    PaymentNotice.objects.bulk_create(kept, ignore_conflicts=True)


def send_capture(cursor: Cursor, notice: Notice, *, provider_name: str) -> None:
    """Send the statement that lets captured money pay a held order; anything else ends the transaction (DataError)."""
    values = {
        "reference": notice.reference,
        "provider": provider_name,
        "amount": notice.amount,
        "currency": notice.currency,
        "actor": ACTOR,
    }
    cursor.execute(CAPTURE, values)


def sku_of(reference: str) -> str:
    """Return the SKU that a payment is for, so that its stock can be locked first."""
    sku: str = Payment.objects.values_list("order__sale__stock__sku", flat=True).get(reference=reference)
    return sku


def lock(cursor: Cursor, reference: str) -> Locked:
    """Lock a payment and its order until the transaction ends."""
    cursor.execute(LOCK_PAYMENT, {"reference": reference})
    row = Locked(*cursor.fetchone())
    return row._replace(state=State(row.state))


def change_order(cursor: Cursor, found: Locked, state: State, *, actor: str, reason: str) -> None:
    """Bring the order into `state`, from the state it was found in. Raises StaleWrite when it is in another by now."""
    values = {
        "to": state.value,
        "was": found.state.value,
        "order_id": found.order_id,
        "sale_id": found.sale_id,
        "actor": actor,
        "reason": reason,
    }
    cursor.execute(CHANGE_ORDER, values)
    if cursor.fetchone() is None:
        raise StaleWrite("the request changed under this transaction; nothing was written")


def change_payment(cursor: Cursor, reference: str, state: Payment.State, *, reason: str = "") -> None:
    """Bring the payment into `state`."""
    cursor.execute(CHANGE_PAYMENT, {"to": state.value, "reason": reason, "reference": reference})


def settled(found: Locked | Target, state: State) -> Settled:
    """Return the request as the line is told of it."""
    record = record_of(state, found.seq, found.quantity, found.sale_id, found.buyer, found.terms_version, found.ordinal)
    return Settled(found.request_id, record)
