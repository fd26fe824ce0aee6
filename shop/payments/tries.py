"""Counts the cards that were declined, of a hold and of a buyer, and says when they were too many.
Counts what providers have said, each notice once, and what they may say of payments that are open; never asks a
provider, never changes an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from django.conf import settings
from django.db import connection
from django.db.models import Count, Q
from django.db.models.functions import Now
from django.db.models.query import QuerySet

from inventory.postgres import TwoKeyAdvisoryLock
from inventory.states import Reason, State
from shop.models import CHARGE_LIFE, HAS_UNITS, NOT_ENDED, OF_DECLINED_CARD, Order, Payment, PaymentNotice

# For the limit of a buyer; that of a hold has no end but the hold's.
DECLINES_COUNT_FOR = timedelta(days=1)


class Tries(NamedTuple):
    """How many cards were declined. A thief tries many cards on one hold; a buyer tries a few."""

    of_hold: int
    of_buyer: int

    @property
    def are_too_many_of_buyer(self) -> bool:
        return self.of_buyer >= int(settings.MAX_DECLINED_PER_BUYER)

    @property
    def are_too_many(self) -> bool:
        return self.of_hold >= int(settings.MAX_DECLINED_PER_HOLD) or self.are_too_many_of_buyer

    def with_open(self, payments: Sequence[Payment], *, order: Order) -> Tries:
        """Return the count as it will be if these payments of `order`'s buyer are declined, too."""
        of_hold = sum(payment.order_id == order.pk for payment in payments)
        return Tries(self.of_hold + of_hold, self.of_buyer + len(payments))


def take_turn(buyer: str) -> None:
    """Wait until no other transaction begins a payment of `buyer` or notes a declined card, and keep others waiting.

    Not the order's row: the limit of a buyer goes over all that they hold, and a buyer has no row of their own.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [TwoKeyAdvisoryLock.PAYMENT_TURN, buyer])


def count(order: Order) -> Tries:
    """Return how many cards were declined for `order`, and for all orders of its buyer since a day."""
    payments = Payment.objects.filter(order__in=_of_buyer(order))
    declined = PaymentNotice.objects.filter(OF_DECLINED_CARD, reference__in=payments.values("reference"))
    of_hold = Q(reference__in=Payment.objects.filter(order=order).values("reference"))
    found = declined.aggregate(
        of_hold=Count("pk", filter=of_hold),
        of_buyer=Count("pk", filter=Q(received_at__gt=Now() - DECLINES_COUNT_FOR)),
    )
    return Tries(**found)


def find_open(order: Order) -> list[Payment]:
    """Return the payments, of all orders of `order`'s buyer, of which a provider may still say that they are declined.

    Never for long: the payments worker takes out those of a hold that is over, and each is out after CHARGE_LIFE.
    """
    open_ones = Payment.objects.filter(NOT_ENDED, created_at__gt=Now() - CHARGE_LIFE)
    return list(open_ones.filter(order__in=_of_buyer(order)))


def close_open(order: Order, tries: Tries) -> QuerySet[Payment]:
    """Decline what is begun and not paid, of the hold or of all that its buyer holds; return what providers must end.

    Money that comes for one of these all the same is taken as ever. Again, it returns the same payments.
    """
    holds = _of_buyer(order).filter(state=State.HELD) if tries.are_too_many_of_buyer else [order]
    of_holds = Payment.objects.filter(order__in=holds)
    of_holds.filter(state=Payment.State.PENDING).update(
        state=Payment.State.DECLINED, reason=Reason.TOO_MANY_DECLINED, changed_at=Now()
    )
    return of_holds.filter(state=Payment.State.DECLINED, reason=Reason.TOO_MANY_DECLINED)


def _of_buyer(order: Order) -> QuerySet[Order]:
    return Order.objects.filter(HAS_UNITS, buyer=order.buyer)
