"""Brings to an end what payments left open: notices that were lost, refunds that are due. Never decides what is paid.
Each round is bounded and may be repeated by anyone at any time; a payment is asked about until its provider answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial

import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.db.models import Q
from django.db.models.functions import Now
from django.db.models.query import QuerySet
from structlog.contextvars import bound_contextvars

from inventory.audit.run import ANSWER_GRACE_SECONDS
from inventory.exceptions import LineNotTold, RedisUnavailable, Unavailable
from inventory.states import Reason, State
from inventory.telemetry.measures import RETRIES
from shop.models import LAST_CAPTURE, NEXT_QUESTION, NOT_ENDED, STILL_ASKED_ABOUT, InUtc, Payment
from shop.payments import notices
from shop.payments.providers import provider
from shop.payments.refunds import ask_refund

log = structlog.get_logger(__name__)

MAX_AT_ONCE = 100
# A notice that has not come by then may be lost; after each vain question we wait as long again as the payment is old.
FIRST_QUESTION = timedelta(seconds=10)
# The question after LAST_CAPTURE comes before twice that age. What is open a day later has a provider that does not
# answer, or nobody asks (I24).
MAX_OPEN = timedelta(seconds=ANSWER_GRACE_SECONDS)


def bring_on(
    *,
    before_each: Callable[[], object] = lambda: None,
    max_at_once: int = MAX_AT_ONCE,
    first_question: timedelta = FIRST_QUESTION,
) -> Counter[str]:
    """Ask every provider about its open payments; return how many came to an end, as lost_notice and refund_due.

    A provider's first Unavailable ends its round: each question may take as long as its timeout.
    before_each: called before each question; what it raises ends the round. max_at_once: questions of each kind to a
    provider. first_question: how old a payment must be at its first one.
    """
    found: Counter[str] = Counter()
    for name in settings.PAYMENT_PROVIDERS:
        # Refunds last and in any order: one that its provider never gives back must not keep the others waiting.
        over, silent, owed = due(name, max_at_once=max_at_once, first_question=first_question)
        questions = [("lost_notice", each, partial(_look_up, each)) for each in dict.fromkeys((*over, *silent))]
        questions += [("refund_due", each, partial(ask_refund, each.reference)) for each in owed]
        for kind, payment, question in questions:
            before_each()
            with bound_contextvars(payment=payment.reference, request=payment.order.request_id):
                try:
                    found[kind] += _ask(question)
                except Unavailable as error:
                    RETRIES.add(kind)
                    log.warning("provider not asked", action="look_up_retry", provider=name, error=repr(error))
                    break
    return found


def due(
    provider_name: str, *, max_at_once: int = MAX_AT_ONCE, first_question: timedelta = FIRST_QUESTION
) -> list[QuerySet[Payment]]:
    """Return what a provider is to be asked about now, see bring_on: holds that are over, silence, refunds owed."""
    kinds = (_over(), _silent(first_question), _owed())
    return [payments.filter(provider=provider_name)[:max_at_once] for payments in kinds]


def find_left_open() -> list[tuple[str, str, str]]:
    """Return payments that have been open for longer than MAX_OPEN, and failed refunds, MAX_AT_ONCE at most.

    Of each the reference, the request id and the reason.
    """
    pending = Q(state=Payment.State.PENDING, created_at__lt=Now() - MAX_OPEN)
    is_due = Q(changed_at__lt=Now() - MAX_OPEN) | Q(reason=Reason.REFUND_FAILED)
    owed = Q(is_due, state=Payment.State.REFUND_DUE)
    found = Payment.objects.filter(pending | owed)
    return list(found.values_list("reference", "order__request_id", "reason")[:MAX_AT_ONCE])


def _over() -> QuerySet[Payment]:
    """Return the payments whose hold is over and whose provider was not told: nobody should begin to pay them now.

    The index payment_not_ended has this condition, so what is looked at is the size of what is being paid.
    """
    open_ones = Payment.objects.select_related("order").filter(NOT_ENDED)
    return open_ones.exclude(order__state=State.HELD).order_by("?")


def _silent(first_question: timedelta) -> QuerySet[Payment]:
    """Return the payments whose next question is due, however old: changed_at is when we last asked, or when it began.

    The index payment_asked_about has this condition and this order, so what is not due is not read.
    """
    return (
        Payment.objects.select_related("order")
        .filter(STILL_ASKED_ABOUT, changed_at__lte=Now() - first_question)
        .alias(next_question=NEXT_QUESTION)
        .filter(next_question__lte=InUtc(Now()))
        .order_by("next_question")
    )


def _owed() -> QuerySet[Payment]:
    owed = Payment.objects.select_related("order").filter(state=Payment.State.REFUND_DUE)
    return owed.exclude(reason=Reason.REFUND_FAILED).order_by("?")


def _ask(question: Callable[[], bool]) -> bool:
    """Ask one thing; say whether it came to an end. Raises Unavailable; what else a provider raises is its own."""
    try:
        return question()
    except (Unavailable, DatabaseError):
        raise
    except Exception:
        log.exception("provider has no answer", action="look_up_failed", question=repr(question))
        return False


def _look_up(payment: Payment) -> bool:
    """Ask what became of a payment; say whether it changed. Raises Unavailable when its provider does not answer.

    Once its hold is over, or too many cards were declined, the provider is also told to end it.
    """
    same = Payment.objects.filter(pk=payment.pk, state=payment.state)
    is_over = payment.state == Payment.State.PENDING and payment.order.state != State.HELD
    # Counted from here whatever comes of it: one that fails must not be the first again.
    same.update(changed_at=Now(), reason=Reason.HOLD_IS_OVER if is_over else payment.reason)
    asked = provider(payment.provider)
    must_end = is_over or payment.reason == Reason.TOO_MANY_DECLINED
    notice = asked.end(payment.reference) if must_end else asked.look_up(payment.reference)
    if notice is not None:
        # It is in the books, and the reconciler tells the line: Redis being away is not the provider's silence.
        with suppress(LineNotTold, RedisUnavailable):
            notices.take_notice(notice, provider_name=payment.provider)
    elif payment.state == Payment.State.PENDING:
        over = same.filter(created_at__lt=Now() - LAST_CAPTURE)
        over.update(state=Payment.State.DECLINED, reason=Reason.NEVER_COLLECTED, changed_at=Now())
    return not same.exists()
