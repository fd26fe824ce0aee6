"""Pauses every sale that could sell, once the database was restored. Never resumes one: that is a person's act.
Never primes a Redis that is empty: that nothing is left there must be seen first.
"""

from __future__ import annotations

from django.db.models import F
from django.utils import timezone

from inventory import redis
from inventory.fault_injection import fault_point
from inventory.line import reading
from inventory.redis import Client
from inventory.states import AFTER_RESTORE, PauseReason
from shop.models import Sale
from shop.sales import priming
from shop.staff import sale_control


def pause_sales() -> list[str]:
    """Pause every sale that is not over; return those that wait for `manage.py sale resume` because of a restore.

    One that staff had paused keeps their reason. Raises RedisUnavailable.
    """
    client = redis.connect(timeout_seconds=2)
    for sale in Sale.objects.filter(retired_at__isnull=True).select_related("stock").order_by("slug"):
        if sale.state_at(timezone.now()) == "closed":
            continue
        if sale.operator_state == Sale.OperatorState.ON:
            sale_control.pause(sale.slug, actor=AFTER_RESTORE, reason=PauseReason.AFTER_RESTORE, publishes=False)
        _publish(client, sale)
        fault_point("after_pause")
    return paused_sales()


def paused_sales() -> list[str]:
    """Return the slugs of the sales that are paused because of a restore."""
    found = Sale.objects.filter(operator_state=Sale.OperatorState.PAUSED, pause_reason=PauseReason.AFTER_RESTORE)
    return list(found.order_by("slug").values_list("slug", flat=True))


def _publish(client: Client, sale: Sale) -> None:
    """Let the line know the sale as it is now, though it may have seen later revisions of it than were restored."""
    told = reading.figures(client, sale.stock.sku, sale_id=sale.pk)
    if told is None:
        return
    sale.refresh_from_db(fields=["revision"])
    # A trigger adds one with each statement, whatever is asked for.
    while sale.revision <= told.revision:
        Sale.objects.filter(pk=sale.pk).update(pause_reason=F("pause_reason"))
        sale.refresh_from_db(fields=["revision"])
    priming.prime_sale(sale.slug)
