"""Refunds, cancels or voids many orders: what would happen to each, then one after the other, each in a transaction.
Never does an order twice, never stops at one that fails, never waits for a payment provider.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

import structlog
from django.db import DatabaseError, models
from django.utils.translation import gettext, gettext_lazy

from inventory.exceptions import FairdropError
from inventory.postgres import TwoKeyAdvisoryLock
from inventory.states import State
from shop.models import Order, Payment
from shop.names.sentences import in_words
from shop.orders.numbers import order_number
from shop.staff.lists.one_press import alone
from shop.staff.lists.order_acts import ORDER_ACTS, do_act

log = structlog.get_logger(__name__)

MAX_AT_ONCE = 500
# What is not reached by then is said, and done by pressing again: browsers and proxies do not wait for ever.
BUDGET_SECONDS = 15.0
BULK_ACTS = ("refund", "cancel", "void")
_DONE_STATES = {
    "refund": (State.REFUNDED,),
    "cancel": (State.CANCELLED,),
    "void": (State.REFUNDED, State.CANCELLED),
}
_MORE = {"refund": {"ask_now": False}, "cancel": {}, "void": {"ask_now": False}}


class BulkReason(models.TextChoices):
    """Why many orders are refunded or cancelled. Stored with each order: a value never changes."""

    BUYER_ASKED = "buyer_asked", gettext_lazy("The buyers asked for it")
    FAULTY = "faulty", gettext_lazy("The goods are faulty")
    NOT_DELIVERABLE = "not_deliverable", gettext_lazy("The goods cannot be delivered")
    SALE_CALLED_OFF = "sale_called_off", gettext_lazy("The sale is called off")
    SUSPECTED_FRAUD = "suspected_fraud", gettext_lazy("Suspected fraud")
    OUR_MISTAKE = "our_mistake", gettext_lazy("A mistake of ours")


class Obstacle(models.TextChoices):
    """Why an order cannot be refunded or cancelled, or was not."""

    DONE_ALREADY = "done_already", gettext_lazy("it is done already")
    NOT_PAID = "not_paid", gettext_lazy("it is not paid")
    NOT_HELD = "not_held", gettext_lazy("it is not held")
    NOT_VOIDABLE = "not_voidable", gettext_lazy("it is neither held nor paid")
    NO_PAYMENT = "no_payment", gettext_lazy("no payment of it can be given back")
    NOT_REACHED = "not_reached", gettext_lazy("the time of this press was over; press again")
    BUSY = "busy", gettext_lazy("the database was busy; press again")
    FAULT = "fault", gettext_lazy("a fault of the program, which is in its log")


_WRONG_STATE = {"refund": Obstacle.NOT_PAID, "cancel": Obstacle.NOT_HELD, "void": Obstacle.NOT_VOIDABLE}


class Planned(NamedTuple):
    """One order, and why nothing can be done with it, "" when it can. amount: its units times their price."""

    order: Order
    number: str
    amount: Decimal
    obstacle: str = ""


class BulkPlan(NamedTuple):
    """What a press would do."""

    able: list[Planned]
    unable: list[Planned]

    @property
    def units(self) -> int:
        return sum(each.order.quantity for each in self.able)

    @property
    def money(self) -> list[tuple[str, Decimal]]:
        """Return the amount of those that can be done, by currency."""
        return add_up(self.able)


def add_up(orders: Sequence[Planned]) -> list[tuple[str, Decimal]]:
    """Return the amount of `orders` by currency."""
    sums: dict[str, Decimal] = {}
    for each in orders:
        sums[each.order.currency] = sums.get(each.order.currency, Decimal(0)) + each.amount
    return sorted(sums.items())


def plan(name: str, order_ids: Sequence[int]) -> BulkPlan:
    """Return what act `name` (of BULK_ACTS) would do with each order; two queries, however many they are."""
    orders = list(Order.objects.select_related("sale").filter(pk__in=order_ids).order_by("pk"))
    payments = Payment.objects.filter(order__in=orders, state=Payment.State.CAPTURED)
    captured = set(payments.values_list("order_id", flat=True)) if name != "cancel" else set()
    planned = [_planned(name, order, is_captured=order.pk in captured) for order in orders]
    return BulkPlan([each for each in planned if not each.obstacle], [each for each in planned if each.obstacle])


def run(name: str, order_ids: Sequence[int], *, actor: str, reason: str) -> tuple[list[Planned], list[Planned]]:
    """Do act `name` with each order; return those that are done by this call, and the others, each with its obstacle.

    Safe to repeat: an order changes its state once. Raises InvalidRequest while another call is under way.
    """
    with alone(TwoKeyAdvisoryLock.BULK_ACT, 0, what=gettext("another bulk act")):
        give_up_at = time.monotonic() + BUDGET_SECONDS
        intended = plan(name, order_ids)
        done, failed = list[Planned](), intended.unable
        for each in intended.able:
            late = time.monotonic() >= give_up_at
            obstacle = Obstacle.NOT_REACHED.label if late else _do(name, each.order, actor=actor, reason=reason)
            (failed if obstacle else done).append(each._replace(obstacle=str(obstacle)))
    return done, failed


def _planned(name: str, order: Order, *, is_captured: bool) -> Planned:
    obstacle: Obstacle | None = None
    if order.state in _DONE_STATES[name]:
        obstacle = Obstacle.DONE_ALREADY
    elif order.state not in ORDER_ACTS[name].states:
        obstacle = _WRONG_STATE[name]
    elif order.state == State.PAID and not is_captured:
        obstacle = Obstacle.NO_PAYMENT
    amount = order.quantity * order.unit_price
    return Planned(order, order_number(order.pk), amount, str(obstacle.label) if obstacle else "")


def _do(name: str, order: Order, *, actor: str, reason: str) -> str:
    """Do one; return why not, "" when it is done."""
    try:
        do_act(order, name, actor=actor, reason=reason, **_MORE[name])
    except FairdropError as refused:
        return in_words(refused.detail) or gettext("refused")
    except DatabaseError as error:
        log.warning("database away or busy", action="bulk_retry", order=order.pk, error=repr(error))
        return str(Obstacle.BUSY.label)
    except Exception:
        log.exception("bulk act failed", action="bulk_failed", order=order.pk)
        return str(Obstacle.FAULT.label)
    return ""
