"""Records how every sale stands that runs or has just ended, every two seconds, whether or not somebody looks.
Never keeps a comparison waiting for Redis: what it does not tell is left out. Of several reconcilers one records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import timedelta

from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from inventory.exceptions import RedisUnavailable
from inventory.line import snapshot
from inventory.postgres import TwoKeyAdvisoryLock
from inventory.redis import Client
from shop.models import Sale
from shop.sales.decision_rates import Sample, measure
from shop.staff.room import history, speed

EVERY_SECONDS = 2.0
# From a little before a sale opens until so long after its end, and until its line is decided and its holds have ended.
BEFORE, AFTER = timedelta(minutes=1), timedelta(minutes=15)
# So many at most, those that opened last: a look must take a small part of the time between two.
MAX_SALES = 200


class Recorder:
    """The records of one reconciler; any number may run. noted: is given each look, whichever reconciler records it."""

    def __init__(
        self, client: Client, *, noted: Callable[[list[Sale], dict[str, snapshot.StockLook]], None] = lambda *_: None
    ) -> None:
        self._client = client
        self._noted = noted
        self._next_at = float("-inf")
        self._samples: dict[int, Sample] = {}
        # Sales whose line had somebody undecided when it was last seen; None until this process has seen any line.
        self._undecided: set[int] | None = None

    def work_once(self) -> int:
        """Record each sale if its time has come; return how many. Raises DatabaseError."""
        if time.monotonic() < self._next_at:
            return 0
        self._next_at = time.monotonic() + EVERY_SECONDS
        if self._undecided is None:
            self._note_undecided(newest_sales())  # one that ended long before this process began may wait for a settler
        sales = sales_to_record(self._undecided or ())
        looks = self._note_undecided(sales)
        self._noted(sales, looks)
        figures = {sale.pk: self._figures(sale, looks) for sale in sales}
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s, 0), clock_timestamp()", [TwoKeyAdvisoryLock.RECORDER])
            is_ours, now = cursor.fetchone()
            if not is_ours:
                return 0
            last = history.last_samples(list(figures))
            for sale_id, each in figures.items():
                history.record(sale_id, each, at=now, last=last.get(sale_id))
        return len(figures)

    def _note_undecided(self, sales: list[Sale]) -> dict[str, snapshot.StockLook]:
        """Note whose line has somebody undecided; return the looks. Of a line that was not seen nothing changes."""
        looks = self._look(sales)
        waits = {sku: look.line.undecided > 0 for sku, look in looks.items()}
        before = {sale.pk for sale in sales} if self._undecided is None else self._undecided
        if looks:
            self._undecided = {sale.pk for sale in sales if waits.get(sale.stock.sku, sale.pk in before)}
        return looks

    def _look(self, sales: list[Sale]) -> dict[str, snapshot.StockLook]:
        try:
            return snapshot.look_at(self._client, sorted({sale.stock.sku for sale in sales}))
        except RedisUnavailable:
            return {}

    def _figures(self, sale: Sale, looks: dict[str, snapshot.StockLook]) -> history.Figures:
        """Read how long decisions took only of a sale in which some were made."""
        stock, look = sale.stock, looks.get(sale.stock.sku)
        counts = (stock.available, stock.held, stock.sold)
        if look is None:
            self._samples.pop(sale.pk, None)
            return history.Figures(*counts, None, None, None, None)
        before = self._samples.get(sale.pk)
        sample = measure(before, decided=look.line.decided, at=time.monotonic(), min_seconds=0.0)
        self._samples[sale.pk] = sample
        rate = None if sample.rate is None else round(sample.rate, 1)
        if not rate:
            return history.Figures(*counts, look.line.undecided, rate, None, None)
        took = self._read_speed(sale)
        times = (None if ms is None else round(ms, 1) for ms in (took.p50_ms, took.p99_ms))
        return history.Figures(*counts, look.line.undecided, rate, *times)

    def _read_speed(self, sale: Sale) -> speed.Speed:
        try:
            waitlisted_to = speed.read_waitlisted_to(self._client, sale.stock.sku)
        except RedisUnavailable:
            return speed.Speed(0, None, None)
        return speed.read_speed(sale_id=sale.pk, stock_id=sale.stock_id, waitlisted_to=waitlisted_to)


def sales_to_record(undecided: Collection[int] = ()) -> list[Sale]:
    """Return the sales that run, open soon, have just ended, or are among `undecided`; MAX_SALES at most."""
    return newest_sales(Q(closes_at__gte=timezone.now() - AFTER) | Q(stock__held__gt=0) | Q(pk__in=undecided))


def newest_sales(*conditions: Q) -> list[Sale]:
    """Return those that opened last of the sales that are open, open soon or ended, with their stock; none retired."""
    sales = Sale.objects.filter(*conditions, retired_at__isnull=True, opens_at__lte=timezone.now() + BEFORE)
    return list(sales.select_related("stock").order_by("-opens_at", "-pk")[:MAX_SALES])
