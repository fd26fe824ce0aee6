"""Makes sales that are over, and lets a reconciler retire what is due. Uses the real servers; starts no process."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

from django.utils import timezone

from inventory import redis
from inventory.locks.statistics import STATISTICS
from inventory.redis import keys
from shop.models import Sale
from shop.sales import catalogue, priming
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.shopkeeping import fill_line, make_sale, pay_all
from workers.reconciler.retirement import Retirement

PAST = timedelta(days=2)
QUIET_SECONDS = 120.0


def over(card: SaleCard) -> SaleCard:
    """Let a sale have ended two days ago; return it as it is now."""
    now = timezone.now()
    Sale.objects.filter(pk=card.sale_id).update(opens_at=now - PAST - timedelta(hours=1), closes_at=now - PAST)
    priming.prime_sale(card.slug)
    return catalogue.find_sale(card.slug)


def sold(sku: str, *, units: int = 3, buyers: int = 5) -> SaleCard:
    """Return a sale that is over: some paid, the others were told sold out."""
    card = make_sale(sku, units=units)
    fill_line(card, buyers=buyers)
    road.settle_line(card)
    pay_all(card)
    road.settle_line(card)
    let_statistics_rest()
    return over(card)


def let_statistics_rest() -> None:
    """Send what was counted about locks, and nothing more for a while: a key of theirs may follow what is forgotten."""
    STATISTICS.flush_at = time.monotonic() + QUIET_SECONDS
    STATISTICS.flush()
    for thread in threading.enumerate():
        if thread.name == "lock-statistics":
            thread.join()


def next_sale(card: SaleCard, *, opens_in: timedelta = timedelta(seconds=-5)) -> SaleCard:
    """Make another sale of the same SKU, and put it into Redis."""
    now = timezone.now()
    first = Sale.objects.get(pk=card.sale_id)
    sale = Sale.objects.create(
        slug=f"{card.slug}-again", product=first.product, stock=first.stock, title="Again", price=first.price,
        opens_at=now + opens_in, closes_at=now + opens_in + timedelta(hours=1),
    )  # fmt: skip
    priming.prime_sale(sale.slug)
    return catalogue.find_sale(sale.slug)


def keys_left(sku: str) -> list[str]:
    """Return every key that Redis has of a SKU, and the lists that name it."""
    client = redis.connect()
    found = list(client.scan_iter(match=f"fd:{{{sku}}}:*", count=10_000))
    return sorted(found) + [name for name in (keys.skus(), keys.lock_names()) if client.sismember(name, sku)]


def reconcile() -> None:
    """Let a reconciler retire and forget whatever is due; other tests have left sales as well."""
    retirement = Retirement(redis.connect(), throttle=lambda: None)
    for _ in range(100):
        retirement.work_once()


def of_retired(card: SaleCard) -> SaleCard:
    return catalogue.find_sale(card.slug)
