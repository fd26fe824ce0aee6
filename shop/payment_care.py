"""Brings to an end what payments left open: refunds that are due, notices that were lost. Never decides anything anew.
Called by the reconciler, again and again; each call is bounded and may be repeated by anyone at any time.
"""

from __future__ import annotations

from datetime import timedelta

import structlog
from django.db.models.functions import Now
from django.db.models.query import QuerySet

from inventory.exceptions import FairdropError, Unavailable
from shop import payments
from shop.models import NEXT_QUESTION, STILL_ASKED_ABOUT, InUtc, Payment
from shop.payment_providers import provider
from shop.refunds import refund_now

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 100
# A notice that has not come by then may be lost; after each vain question we wait as long again as the payment is old.
FIRST_QUESTION = timedelta(seconds=10)


def retry_refunds(*, most: int = MOST_AT_ONCE) -> int:
    """Ask again for refunds that are due, at most `most`; return how many were given back now.

    They come in any order: a few that no provider gives back must not keep all others waiting for ever.
    """
    return sum(refund_now(payment.reference) for payment in _owed()[:most])


def _owed() -> QuerySet[Payment]:
    return Payment.objects.filter(state=Payment.State.REFUND_DUE).order_by("?")


def collect_lost_notices(*, most: int = MOST_AT_ONCE, first_question: timedelta = FIRST_QUESTION) -> int:
    """Ask the providers about payments of which nothing was heard, at most `most`; return how many brought news.

    A provider that does not answer is asked no more in this call: each question may take as long as its timeout.
    first_question: how old a payment must be at its first one.
    """
    away: set[str] = set()
    return sum(_ask(each, away=away) for each in _silent(first_question)[:most] if each.provider not in away)


def _silent(first_question: timedelta) -> QuerySet[Payment]:
    """Return the payments whose next question is due, however old: changed_at is when we last asked, or when it began.

    The index payment_asked_about has this condition and this order, so what is not due is not read.
    """
    return (
        Payment.objects.filter(STILL_ASKED_ABOUT, changed_at__lte=Now() - first_question)
        .alias(next_question=NEXT_QUESTION)
        .filter(next_question__lte=InUtc(Now()))
        .order_by("next_question")
    )


def _ask(payment: Payment, *, away: set[str]) -> bool:
    try:
        notice = provider(payment.provider).look_up(payment.reference)
        if notice is not None:
            payments.take_notice(notice, provider_name=payment.provider)
    except Unavailable as error:
        away.add(payment.provider)
        log.warning("provider not asked", action="look_up_retry", payment=payment.reference, error=repr(error))
    except FairdropError as error:
        log.error("provider has no answer", action="look_up_failed", payment=payment.reference, error=repr(error))
    # When nothing changed, this is the moment from which the next question is counted.
    same = Payment.objects.filter(pk=payment.pk, state=payment.state).update(changed_at=Now())
    return not same
