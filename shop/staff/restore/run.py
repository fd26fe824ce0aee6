"""What `manage.py after_restore` does, step by step. Every step may be broken off and done again."""

from __future__ import annotations

from datetime import datetime

from inventory import redis
from inventory.line import reading
from inventory.models import Stock
from inventory.redis import Client
from shop.models import Sale
from shop.payments.losses import Loss, find_losses, take_newer_charges
from shop.staff.restore.charges import find_unknown, settle_charges
from shop.staff.restore.orders import bring_back, publish_line
from shop.staff.restore.pausing import pause_sales
from shop.staff.restore.traces import find_traces


def after_restore(*, charges_since: datetime, brings_back: bool) -> tuple[list[str], list[Loss]]:
    """Pause every sale, bring back what is safe if asked to; return which sales are paused and what is left.

    charges_since: of providers. Raises RedisUnavailable.
    """
    paused = pause_sales()
    reasons = _bring_all_back(charges_since) if brings_back else {}
    losses = [reasons.get(loss.name, loss) for loss in find_losses()]
    return paused, [*losses, *find_unknown(charges_since), *find_traces()]


def _bring_all_back(charges_since: datetime) -> dict[str, Loss]:
    """Bring back what is safe; return why a request could not be, by its id."""
    client = redis.connect(timeout_seconds=2)
    live = Sale.objects.filter(retired_at__isnull=True).order_by("stock__sku")
    skus = list(live.values_list("stock__sku", flat=True).distinct())
    for sku in skus:
        bring_back(client, sku)
    settle_charges(charges_since)
    take_newer_charges()
    reasons: dict[str, Loss] = {}
    for sku in skus:
        # Again: money that was given back may have made room.
        left = bring_back(client, sku)
        reasons |= {loss.name: loss for loss in left}
        if not left and _has_all_units(client, sku):
            publish_line(client, sku)
    return reasons


def _has_all_units(client: Client, sku: str) -> bool:
    """Say whether the stock has as many units in all as Redis was told; no row of it may hide that some are missing."""
    told = reading.figures(client, sku)
    return told is not None and told.available + told.held + told.sold == Stock.objects.get(sku=sku).total
