"""Compares Redis, orders and ledger of every SKU again and again; mends what is safe, alarms on the rest.
Never changes a count, an order or a payment's truth; mending twice changes nothing. Called by `manage.py run_worker
reconciler` and `manage.py reconcile`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog
from django.db import Error as DatabaseError
from django.db import close_old_connections, connection

from inventory import reconciling
from inventory.database import Cursor
from inventory.exceptions import FairdropError
from inventory.faults import FaultRaised, fault_point
from inventory.priming import is_primed
from inventory.reconciling import Standing
from inventory.redis import Client
from workers.reconcile_books import SkuOnSale, check_books, skus_on_sale
from workers.reconcile_payments import care_for_payments
from workers.reconcile_report import ALARM, FOUND, Drift, tell_of
from workers.reconcile_requests import PLACED_UNKNOWN, settle_suspects, suspects
from workers.reconcile_retired import Retirement
from workers.reconcile_stock import look_at_stock, mend_stock, wrong_with_stock
from workers.reconcile_units import look_at_units, mend_units

log = structlog.get_logger(__name__)

# What is only on its way (committed, and told a moment later) is no drift: a second look follows after this pause.
LOOK_AGAIN_SECONDS = 0.5
# A SKU in which something moves is compared this often; one that rests, and was clean, so much more rarely.
BUSY_SECONDS = 3.0
REST_SECONDS = 60.0
PAYMENTS_SECONDS = 2.0
# An alarm that stays is told again after so long.
ALARM_AGAIN_SECONDS = 300.0


class _Stopped(Exception):
    """We were asked to stop in the middle of a comparison."""


class Reconciler:
    """One reconciler; any number may run. stopping: says whether to end after the present page.

    repair: mend what is safe, or only say what is wrong. gentle: rest after each page for as long as it took.
    tell_alive: called between two pages, for a comparison may take long.
    """

    def __init__(
        self,
        client: Client,
        *,
        stopping: Callable[[], bool],
        repair: bool = True,
        gentle: bool = False,
        tell_alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._stopping = stopping
        self._tell_alive = tell_alive
        self._repair = repair
        self._gentle = gentle
        self._breathed_at = time.monotonic()
        self._compared: dict[str, tuple[float, tuple[Standing, int] | None]] = {}
        self._alarmed: dict[tuple[str, str, str], float] = {}
        self._payments_at = float("-inf")
        self._retirement = Retirement(client, breathe=self._breathe)

    def work_once(self, *, between_skus: Callable[[], object] = lambda: None) -> int:
        """Compare every SKU whose time has come; return how many differences were found. Raises RedisUnavailable.

        between_skus: called before each SKU, for a round over many takes long, and others may wait for an answer.
        """
        close_old_connections()
        try:
            drifts = self._care_for_payments()
            if self._repair:
                self._retirement.work_once()
            for sku, on_sale in skus_on_sale().items():
                if self._stopping():
                    break
                between_skus()
                drifts += self._compare_safely(sku, on_sale)
        except DatabaseError as error:
            log.warning("database away or busy", action="reconcile_retry", error=str(error))
            connection.close()
            return 0
        except _Stopped:
            return 0
        return len(drifts)

    def _compare_safely(self, sku: str, on_sale: SkuOnSale) -> list[Drift]:
        """Compare one SKU if its time has come; what is wrong with it never keeps the others from being compared."""
        try:
            return self._compare_if_due(sku, on_sale)
        except (DatabaseError, FairdropError, _Stopped, FaultRaised):
            raise
        except Exception:
            log.exception("not compared", action="reconcile_failed", sku=sku)
            return []

    def _care_for_payments(self) -> list[Drift]:
        if time.monotonic() - self._payments_at < PAYMENTS_SECONDS:
            return []
        self._payments_at = time.monotonic()
        return care_for_payments() if self._repair else []

    def _compare_if_due(self, sku: str, on_sale: SkuOnSale) -> list[Drift]:
        compared_at, before = self._compared.get(sku, (float("-inf"), None))
        age = time.monotonic() - compared_at
        # The row's version tells of a COMMIT that the line was never told of.
        now = (reconciling.standing(self._client, sku), on_sale.version)
        if age < BUSY_SECONDS or (age < REST_SECONDS and now == before):
            return []
        drifts = self.compare(sku, sale_ids=on_sale.sale_ids)
        # One that was not clean is looked at again soon.
        self._compared[sku] = (time.monotonic(), None if drifts else now)
        tell_of(self._news(drifts))
        return drifts

    def _news(self, drifts: Sequence[Drift]) -> list[Drift]:
        """Return `drifts` without the alarms that were told a short while ago."""
        now = time.monotonic()
        news = [
            each for each in drifts
            if each.done != ALARM or now - self._alarmed.get(each[:3], float("-inf")) >= ALARM_AGAIN_SECONDS
        ]  # fmt: skip
        kept = {key: told for key, told in self._alarmed.items() if now - told < ALARM_AGAIN_SECONDS}
        self._alarmed = kept | {each[:3]: now for each in news if each.done == ALARM}
        return news

    def compare(self, sku: str, *, sale_ids: Sequence[int]) -> list[Drift]:
        """Compare one SKU with its sales; return every difference and what was done. Raises RedisUnavailable, Error."""
        fault_point("before_reconcile")
        with connection.cursor() as cursor:
            drifts = check_books(cursor, sku)
            if not sale_ids:
                return drifts  # every sale of it is retired: Redis knows nothing of it, and must not
            drifts += self._compare_stock(cursor, sku, sale_ids)
            if is_primed(self._client, sku):
                requests = self._compare_requests(cursor, sku, sale_ids)
                drifts += requests
                if not _spoil_counts(requests):
                    drifts += self._compare_units(sku)
        fault_point("after_reconcile")
        return drifts

    def _compare_stock(self, cursor: Cursor, sku: str, sale_ids: Sequence[int]) -> list[Drift]:
        first = look_at_stock(self._client, cursor, sku, sale_ids=sale_ids)
        if not wrong_with_stock(first, first):
            return []
        time.sleep(LOOK_AGAIN_SECONDS)
        now = look_at_stock(self._client, cursor, sku, sale_ids=sale_ids)
        return mend_stock(self._client, sku, now, wrong_with_stock(first, now), repair=self._repair)

    def _compare_requests(self, cursor: Cursor, sku: str, sale_ids: Sequence[int]) -> list[Drift]:
        suspicious = suspects(self._client, cursor, sku, sale_ids=sale_ids, breathe=self._breathe)
        if not suspicious:
            return []
        time.sleep(LOOK_AGAIN_SECONDS)
        fault_point("before_repair")
        return settle_suspects(self._client, cursor, sku, suspicious, repair=self._repair)

    def _compare_units(self, sku: str) -> list[Drift]:
        first = look_at_units(self._client, sku, breathe=self._breathe)
        if not first.differs or not first.still:
            return []
        time.sleep(LOOK_AGAIN_SECONDS)
        second = look_at_units(self._client, sku, breathe=self._breathe)
        return mend_units(self._client, sku, first, second, repair=self._repair)

    def _breathe(self) -> None:
        """Rest as long as the last page took: a long comparison must not keep Redis and PostgreSQL from the buyers."""
        if self._stopping():
            raise _Stopped  # between two pages nothing is half done
        self._tell_alive()
        if self._gentle:
            time.sleep(min(time.monotonic() - self._breathed_at, 0.1))
        self._breathed_at = time.monotonic()


def _spoil_counts(requests: Sequence[Drift]) -> bool:
    """Say whether counts are wrong only because requests are: not mended yet, or in line and unknown."""
    return any(drift.done == FOUND or drift.kind == PLACED_UNKNOWN for drift in requests)
