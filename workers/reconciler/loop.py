"""Compares Redis, orders and ledger of every SKU again and again; mends what is safe, alarms on the rest.
Never changes a count, an order or a payment; mending twice changes nothing. However many records there are, a round
over them takes ten minutes at most, and little of a core; a SKU that fails keeps no other from being compared.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import structlog
from django.db import Error as DatabaseError
from django.db import connection

from inventory.exceptions import RedisUnavailable
from inventory.fault_injection import FaultRaised, fault_point
from inventory.line import repair as line_repair
from inventory.line.priming import is_primed
from inventory.line.repair import Standing
from inventory.redis import Client, shards_of
from workers.process_loop import Stopped
from workers.reconciler.books import SkuOnSale, check_books, skus_on_sale
from workers.reconciler.pace import ROUND_SECONDS, Comparison, Step, seconds_between_rounds
from workers.reconciler.report import ALARM, FOUND, REPAIRED, Drift, log_drifts
from workers.reconciler.requests import PLACED_UNKNOWN, settle_suspects, suspects
from workers.reconciler.retention import Retention
from workers.reconciler.retirement import Retirement
from workers.reconciler.stock import look_at_stock, mend_stock, wrong_with_stock
from workers.reconciler.units import LiveTally, look_at_units, mend_units, queued_units

log = structlog.get_logger(__name__)

# What is only on its way (committed, and told a moment later) is no drift: a second look follows after this pause.
LOOK_AGAIN_SECONDS = 0.5
# A SKU in which something moves is compared this often; one that rests, and was clean, so much more rarely.
BUSY_SECONDS = 3.0
REST_SECONDS = 60.0
# After the books of a SKU were added up, with all that was ever sold of it, they rest so many times as long as it took.
BOOKS_REST = 20
# An alarm that stays is told again after so long.
ALARM_AGAIN_SECONDS = 300.0
# So long after it was told an alarm is open: one that stays is found once a round, and told again then.
ALARM_OPEN_SECONDS = ALARM_AGAIN_SECONDS + ROUND_SECONDS


class Reconciler:
    """One reconciler; any number may run. stopping: asked after each page; when it says so, the work ends by Stopped.

    repair: mend what is safe, or only say what is wrong. gentle: rest after each page for as long as it took.
    report_alive: called between two pages, for a comparison may take long.
    """

    def __init__(
        self,
        client: Client,
        *,
        stopping: Callable[[], bool],
        repair: bool = True,
        gentle: bool = False,
        report_alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._stopping = stopping
        self._report_alive = report_alive
        self._repair = repair
        self._gentle = gentle
        self._throttled_at = time.monotonic()
        self._comparisons: dict[str, Comparison] = {}
        self._books_due: dict[str, float] = {}
        self._alarmed: dict[tuple[str, str, str], float] = {}
        self._last_sku = ""
        self._retirement = Retirement(client, throttle=self._throttle)
        self._retention = Retention(throttle=self._throttle)

    def work_once(self, *, between_skus: Callable[[], object] = lambda: None) -> int:
        """Compare every SKU whose time has come; return how many differences were found.

        A store that fails at a SKU ends the round, and the next round begins after that SKU; but a shard of a Cluster
        that is away keeps only its own SKUs from being compared.
        between_skus: called before each SKU, for a round over many takes long, and others may wait for an answer.
        Raises RedisUnavailable, DatabaseError, Stopped.
        """
        self._throttled_at = time.monotonic()
        if self._repair:
            self._retention.work_once()
            self._retire_safely()
        on_sale_now = skus_on_sale()
        self._comparisons = {sku: last for sku, last in self._comparisons.items() if sku in on_sale_now}
        self._books_due = {sku: due for sku, due in self._books_due.items() if sku in on_sale_now}
        # By name, those after the last one first: every SKU gets its turn.
        found = 0
        for sku in sorted(on_sale_now, key=lambda sku: (sku <= self._last_sku, sku)):
            self._throttle()
            between_skus()
            self._last_sku = sku
            found += len(self._compare_safely(sku, on_sale_now[sku]))
        return found

    def _retire_safely(self) -> None:
        try:
            self._retirement.work_once()
        except RedisUnavailable as error:
            self._pass_over(error, sku="")

    def _pass_over(self, error: RedisUnavailable, *, sku: str) -> None:
        """Go on with the other SKUs when those may be on shards that are well, else raise the error again."""
        if shards_of(self._client) is None:
            raise error
        log.warning("the shard of a SKU is away", action="redis_retry", sku=sku, error=repr(error.__cause__))

    def _compare_safely(self, sku: str, on_sale: SkuOnSale) -> list[Drift]:
        """Compare one SKU if its time has come; what is wrong with it never keeps the others from being compared."""
        try:
            return self._compare_if_due(sku, on_sale)
        except (DatabaseError, Stopped, FaultRaised):
            raise
        except RedisUnavailable as error:
            self._pass_over(error, sku=sku)
            return []
        except Exception:
            log.exception("not compared", action="reconcile_failed", sku=sku)
            return []

    def _compare_if_due(self, sku: str, on_sale: SkuOnSale) -> list[Drift]:
        # The row's version tells of a COMMIT that the line was never told of.
        now = (line_repair.standing(self._client, sku), on_sale.version)
        last, drifts = self._comparisons.get(sku), []
        if last is None or last.sale_ids != on_sale.sale_ids or self._is_due(last, now):
            if last is None or last.over or last.sale_ids != on_sale.sale_ids:
                last = self._comparisons[sku] = Comparison(
                    self.steps(sku, sale_ids=on_sale.sale_ids),
                    sale_ids=on_sale.sale_ids,
                    standing=now,
                    extent=line_repair.extent(self._client, sku),
                )
            else:  # the stock need not wait for the end of a long comparison
                last.looked_at = time.monotonic()
                drifts = self._compare_stock(sku, on_sale.sale_ids)
        drifts += last.go_on(throttle=self._throttle)
        log_drifts(self._news(drifts))
        return drifts

    def _is_due(self, last: Comparison, now: tuple[Standing, int]) -> bool:
        extent = sum(each.extent for each in self._comparisons.values())
        rest_seconds = seconds_between_rounds(extent, min_seconds=REST_SECONDS)
        return last.is_due(now, busy_seconds=BUSY_SECONDS, rest_seconds=rest_seconds)

    @property
    def open_alarms(self) -> int:
        """How many differences that somebody must look at were found lately."""
        oldest = time.monotonic() - ALARM_OPEN_SECONDS
        return sum(told > oldest for told in self._alarmed.values())

    def _news(self, drifts: Sequence[Drift]) -> list[Drift]:
        """Return `drifts` without the alarms that were told a short while ago."""
        now = time.monotonic()
        news = [
            each for each in drifts
            if each.done != ALARM or now - self._alarmed.get(each[:3], float("-inf")) >= ALARM_AGAIN_SECONDS
        ]  # fmt: skip
        kept = {key: told for key, told in self._alarmed.items() if now - told < ALARM_OPEN_SECONDS}
        self._alarmed = kept | {each[:3]: now for each in news if each.done == ALARM}
        return news

    def compare(
        self, sku: str, *, sale_ids: Sequence[int], between_pages: Callable[[], object] = lambda: None
    ) -> list[Drift]:
        """Compare one SKU with its sales; return every difference and what was done. Raises RedisUnavailable, Error."""
        drifts: list[Drift] = []
        self._books_due.pop(sku, None)  # asked for, they are always added up
        for _, found in self.steps(sku, sale_ids=sale_ids):
            drifts += found
            self._throttle()
            between_pages()
        return drifts

    def steps(self, sku: str, *, sale_ids: Sequence[int]) -> Iterator[Step]:
        """Compare one SKU with its sales, a page at a time. Raises RedisUnavailable, Error."""
        fault_point("before_reconcile")
        yield 0, self._check_books(sku)
        if not sale_ids:
            return  # every sale of it is retired: Redis knows nothing of it, and must not
        yield 0, self._compare_stock(sku, sale_ids)
        if is_primed(self._client, sku):
            yield from self._compare_records(sku, sale_ids)
        fault_point("after_reconcile")

    def _check_books(self, sku: str) -> list[Drift]:
        began = time.monotonic()
        if began < self._books_due.get(sku, began):
            return []
        found = list[Drift]()
        try:
            found = check_books(sku)
        finally:  # also where the time was not enough: then the rest of the SKU is compared the next time
            now = time.monotonic()
            # What is wrong stays in sight of every round.
            self._books_due[sku] = now if found else now + min(ROUND_SECONDS, BOOKS_REST * (now - began))
        return found

    def _compare_stock(self, sku: str, sale_ids: Sequence[int]) -> list[Drift]:
        with connection.cursor() as cursor:
            first = look_at_stock(self._client, cursor, sku, sale_ids=sale_ids)
            if not wrong_with_stock(first, first):
                return []
            time.sleep(LOOK_AGAIN_SECONDS)
            now = look_at_stock(self._client, cursor, sku, sale_ids=sale_ids)
        return mend_stock(self._client, sku, now, wrong_with_stock(first, now), repair=self._repair)

    def _compare_records(self, sku: str, sale_ids: Sequence[int]) -> Iterator[Step]:
        before, tally, found = line_repair.standing(self._client, sku), LiveTally(), list[Drift]()
        for size, drifts in self._compare_requests(sku, sale_ids, tally):
            found += drifts
            yield size, drifts
        if _spoil_counts(found):
            return
        for size in tally.subtract_counted(self._client, sku):
            yield size, []
        still = before == line_repair.standing(self._client, sku)
        mended = any(drift.done == REPAIRED for drift in found)
        yield 0, self._compare_units(sku, live_differs=mended or (still and tally.differs))

    def _compare_requests(self, sku: str, sale_ids: Sequence[int], tally: LiveTally) -> Iterator[Step]:
        """Compare each record with its order; what seems wrong is looked at again, and mended, a moment later."""
        waiting: deque[tuple[float, dict[str, str]]] = deque()
        for size, suspicious in suspects(self._client, sku, sale_ids=sale_ids, tally=tally):
            if suspicious:
                waiting.append((time.monotonic() + LOOK_AGAIN_SECONDS, suspicious))
            drifts = self._settle(sku, waiting.popleft()[1]) if waiting and waiting[0][0] <= time.monotonic() else []
            yield size, drifts
        if waiting:
            time.sleep(LOOK_AGAIN_SECONDS)
        for _, suspicious in waiting:
            yield 0, self._settle(sku, suspicious)

    def _settle(self, sku: str, suspicious: dict[str, str]) -> list[Drift]:
        fault_point("before_repair")
        return settle_suspects(self._client, sku, suspicious, repair=self._repair)

    def _compare_units(self, sku: str, *, live_differs: bool) -> list[Drift]:
        """Find whose units are counted wrong, if somebody's are or the units in line do not add up."""
        before = line_repair.standing(self._client, sku)
        counted, must = queued_units(self._client, sku, throttle=self._throttle)
        queued_differs = counted != must and before == line_repair.standing(self._client, sku)
        if not live_differs and not queued_differs:
            return []
        first = look_at_units(self._client, sku, throttle=self._throttle)
        if not first.differs or not first.still:
            return []
        time.sleep(LOOK_AGAIN_SECONDS)
        second = look_at_units(self._client, sku, throttle=self._throttle)
        return mend_units(self._client, sku, first, second, repair=self._repair)

    def _throttle(self) -> None:
        """Rest as long as the last page took: a long comparison must not keep Redis and PostgreSQL from the buyers."""
        if self._stopping():
            raise Stopped
        self._report_alive()
        if self._gentle:
            time.sleep(min(time.monotonic() - self._throttled_at, 0.1))
        self._throttled_at = time.monotonic()


def _spoil_counts(requests: Sequence[Drift]) -> bool:
    """Say whether counts are wrong only because requests are: not mended yet, or in line and unknown."""
    return any(drift.done == FOUND or drift.kind == PLACED_UNKNOWN for drift in requests)
