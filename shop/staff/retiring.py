"""Retires sales that are over and settled: from then on the database alone answers for them, and Redis forgets them.
Never retires a sale that is open, or that owes anybody an answer, a unit or money; never brings one back.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext

from inventory import redis
from inventory.exceptions import InvalidRequest, Unavailable
from inventory.line import forgetting
from shop.models import CHARGE_LIFE, CodeUse, ListedEmail, Order, Payment, Sale, StaffAct
from shop.staff.sale_control import check_act, locked

log = structlog.get_logger(__name__)


def retire(slug: str, *, actor: str, reason: str = "") -> str:
    """Retire a sale now; say what came of it.

    Raises SaleNotFound, InvalidRequest when it is not over or not settled, RedisUnavailable.
    """
    sku = mark_retired(slug, actor=actor, reason=reason)
    try:
        forgotten = forget_retired(sku)
    except Unavailable as error:
        # It is retired all the same: the reconciler lets Redis forget it once it answers.
        log.warning("retired, but Redis has not forgotten it", action="forget_failed", sale=slug, error=repr(error))
        forgotten = False
    return gettext("retired") if forgotten else gettext("retired; the reconciler lets Redis forget it")


def due(*, limit: int, after_id: int) -> list[tuple[int, str]]:
    """Return up to `limit` sales (id, slug) with an id above `after_id` that ended long enough ago to be retired."""
    ended = Sale.objects.filter(
        retired_at__isnull=True, closes_at__lte=Now() - timedelta(seconds=settings.RETIRE_AFTER_SECONDS)
    )
    return list(ended.filter(pk__gt=after_id).order_by("pk").values_list("pk", "slug")[:limit])


def mark_retired(slug: str, *, actor: str, reason: str = "") -> str:
    """Write down that a sale is retired, and who did it; return its SKU. Redis forgets it only after that.

    Raises as retire.
    """
    check_act(actor=actor, reason=reason)
    with transaction.atomic():
        sale = locked(slug)
        if sale.retired_at is not None:
            raise InvalidRequest(gettext("%(name)s is retired already") % {"name": slug})
        now = timezone.now()
        if sale.state_at(now) != "closed":
            text = gettext("%(name)s is %(state)s; only a sale that is over can be retired")
            raise InvalidRequest(text % {"name": slug, "state": gettext(sale.state_at(now))})
        why = unsettled(sale)
        if why:
            raise InvalidRequest(gettext("%(name)s is not settled: %(why)s") % {"name": slug, "why": why})
        sale.retired_at, sale.revoked_networks = now, ""
        sale.save(update_fields=["retired_at", "revoked_networks"])
        # Nobody enters any more, and all of these lead to people.
        ListedEmail.objects.filter(sale=sale).delete()
        CodeUse.objects.filter(code__sale=sale).delete()
        StaffAct.objects.create(sale=sale, act="retire", actor=actor, reason=reason)
    return sale.stock.sku


def unsettled(sale: Sale) -> str:
    """Return what a sale that is over still owes to anybody, '' when nothing. Raises RedisUnavailable."""
    # The line first: what has left it is committed, so what it has become is seen by the queries after it.
    if forgetting.has_waiting(redis.connect(), sale.stock.sku, sale_id=sale.pk):
        return gettext("somebody waits in line, in flight, or as an undecided dead letter")
    if Order.objects.filter(sale=sale, state="held").exists():
        return gettext("an order is held")
    payments = Payment.objects.filter(order__sale=sale)
    if payments.filter(state=Payment.State.REFUND_DUE).exists():
        return gettext("a refund is due")
    # The provider is asked about older ones as well, and what it says is heeded after the sale is retired, too.
    if payments.filter(state=Payment.State.PENDING, created_at__gt=Now() - CHARGE_LIFE).exists():
        return gettext("a payment is under way")
    return ""


def forget_retired(sku: str, *, throttle: Callable[[], None] = lambda: None) -> bool:
    """Let Redis forget the retired sales of `sku`, and all of it when no other is left; say whether it has.

    Safe to repeat and to break off. throttle: called after each step. Raises RedisUnavailable.
    """
    client = redis.connect()
    known = forgetting.sales_known(client, sku)  # before the database is asked: a new sale is in the database first
    sales = Sale.objects.filter(stock__sku=sku)
    retired = set(sales.filter(retired_at__isnull=False).values_list("pk", flat=True))
    if not retired:
        return False
    if not sales.filter(retired_at__isnull=True).exists():
        return forgetting.forget_sku(client, sku, sale_ids=known, lock_ttl_ms=settings.LOCK_TTL_MS, throttle=throttle)
    if left := known & retired:
        forgetting.forget_sales(client, sku, sale_ids=left, throttle=throttle)
    return not left or not forgetting.sales_known(client, sku) & left
