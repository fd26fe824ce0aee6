"""Deletes what was kept long enough: addresses, marks, mails, buyers of past sales, what providers said, acts of staff,
sessions. Once an hour, in steps of a thousand rows, each a transaction; of many, a step at each round.

Never deletes an order, a payment, a change or a movement, so books, ledger and audit stay right. docs/operations.md has
the table of what goes when. A process that dies leaves whole rows, and the next pass begins with the oldest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import structlog
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.db import connection
from django.db.models import Exists, Model, OuterRef, QuerySet
from django.db.models.functions import Now
from post_office.models import Email

from inventory.fault_injection import fault_point
from shop.models import Payment, PaymentNotice, Sale
from shop.orders import deliveries, marks
from shop.stripe.models import CheckoutSession

log = structlog.get_logger(__name__)

PASS_SECONDS = 3600.0
# A kind that failed is tried again by itself. Each error ends a round of the reconciler, so not at once.
RETRY_SECONDS = 30.0
MAX_DELETED = 1_000
# A provider is still asked about these, or has to give money back.
OPEN_PAYMENTS = (Payment.State.PENDING, Payment.State.REFUND_DUE)


class Step(NamedTuple):
    """rows: how many were deleted, or changed; is_last: nothing else is due now."""

    rows: int
    is_last: bool


class Retention:
    """The retention of one reconciler; any number may run. throttle: called after each step."""

    def __init__(self, *, throttle: Callable[[], None] = lambda: None) -> None:
        self._throttle = throttle
        self._due_at: dict[str, float] = {}
        self._buyers = PastBuyers()

    def work_once(self) -> int:
        """Make one step of each kind that is due; return how many rows that were. Raises DatabaseError.

        After an error the next call goes on with the other kinds, and half a minute later this one is tried again.
        """
        rows = 0
        for kind, forget in self._kinds.items():
            now = time.monotonic()
            if now < self._due_at.get(kind, now):
                continue
            self._due_at[kind] = now + RETRY_SECONDS  # unless it succeeds
            step = forget()
            self._due_at[kind] = now + PASS_SECONDS if step.is_last else now
            if step.rows:
                rows += step.rows
                log.info("kept long enough", action="retention", kind=kind, rows=step.rows)
                fault_point("in_retention")
            self._throttle()
        return rows

    @property
    def _kinds(self) -> dict[str, Callable[[], Step]]:
        return {
            "addresses": _addresses,
            "marks": _marks,
            "mails": lambda: _delete(Email, column="created", days=settings.KEEP_MAILS_DAYS),
            "buyers": self._buyers.forget_some,
            "notices": lambda: _delete(PaymentNotice, column="received_at", days=settings.KEEP_ORDERS_DAYS),
            "charges": _charges,
            "acts": _acts,
            "changes": lambda: _delete(LogEntry, column="action_time", days=settings.KEEP_ACTS_DAYS),  # the admin's own
            "sessions": lambda: _delete(Session, column="expire_date", days=0),
            "logins": _logins,
        }


class PastBuyers:
    """The buyers of sales that ended long ago, which are forgotten sale by sale in the order of their ids."""

    def __init__(self) -> None:
        self._sale_id, self._after = 0, ""
        self._failed: set[int] = set()

    def forget_some(self) -> Step:
        """Let an id that says nothing stand for up to MAX_DELETED buyers of one sale, in all their orders of it.

        The last step of a sale destroys its request key: with it anybody's pseudonym in the public log could be made.
        """
        oldest = Now() - timedelta(days=settings.KEEP_ORDERS_DAYS)
        due = Sale.objects.filter(retired_at__isnull=False, buyers_forgotten_at__isnull=True, closes_at__lt=oldest)
        sale_id = due.exclude(pk__in=self._failed).order_by("pk").values_list("pk", flat=True).first()
        if sale_id is None:
            is_last, self._failed = not self._failed, set()
            return Step(0, is_last=is_last)
        if sale_id != self._sale_id:
            self._sale_id, self._after = sale_id, ""
        with connection.cursor() as cursor:
            # A function of the tables' owner, as the acts' below: this process may write nothing of an order.
            self._failed.add(sale_id)  # unless it succeeds: it holds no later sale back
            values = [sale_id, settings.KEEP_ORDERS_DAYS, self._after, MAX_DELETED]
            cursor.execute("SELECT done, last FROM shop_forget_buyers(%s, %s, %s, %s)", values)
            done, last = cursor.fetchone()
        self._failed.remove(sale_id)
        self._after = last or ""
        return Step(done, is_last=False)


def _addresses() -> Step:
    sent, mailed = deliveries.delete_old()
    return Step(sent + mailed, is_last=max(sent, mailed) < deliveries.MAX_DELETED)


def _marks() -> Step:
    networks, cards = marks.delete_old()
    # A sale's marks may be few, and those of the next one many.
    return Step(networks + cards, is_last=not networks and cards < marks.MAX_DELETED)


def _charges() -> Step:
    """Delete what leads from old payments to their sessions at the provider."""
    oldest = Now() - timedelta(days=settings.KEEP_ORDERS_DAYS)
    paid = Payment.objects.filter(reference=OuterRef("reference"), created_at__lt=oldest)
    return _delete_some(CheckoutSession.objects.filter(Exists(paid.exclude(state__in=OPEN_PAYMENTS))))


def _acts() -> Step:
    with connection.cursor() as cursor:
        cursor.execute("SELECT shop_forget_acts(%s, %s)", [settings.KEEP_ACTS_DAYS, MAX_DELETED])
        (rows,) = cursor.fetchone()
    return Step(rows, is_last=rows < MAX_DELETED)


def _logins() -> Step:
    """Delete failed logins that count no more."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM shop_failed_logins WHERE cache_key IN "
            "(SELECT cache_key FROM shop_failed_logins WHERE expires < now() LIMIT %s)",
            [MAX_DELETED],
        )
        return Step(cursor.rowcount, is_last=cursor.rowcount < MAX_DELETED)


def _delete(model: type[Model], *, column: str, days: int) -> Step:
    return _delete_some(model._default_manager.filter(**{f"{column}__lt": Now() - timedelta(days=days)}))


def _delete_some(due: QuerySet[Model]) -> Step:
    """Delete the first MAX_DELETED rows that are due, with what belongs to them."""
    names = list(due.order_by("pk").values_list("pk", flat=True)[:MAX_DELETED])
    if names:
        due.model._default_manager.filter(pk__in=names).only("pk").delete()
    return Step(len(names), is_last=len(names) < MAX_DELETED)
