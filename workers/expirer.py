"""Ends holds that nobody paid within a second of their time, by sweeping the database.
Never ends one before its time by the database's clock, never one twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

import psycopg
import structlog
from structlog.contextvars import bind_contextvars, bound_contextvars

from inventory.exceptions import LineNotTold
from inventory.fault_injection import fault_point
from inventory.postgres import LastingConnection, is_away
from inventory.telemetry import traces
from inventory.telemetry.measures import RETRIES, note_store_errors
from shop.orders import holds

log = structlog.get_logger(__name__)

# Many together: one transaction and one fsync; not so many that payments wait long for the row.
BATCH = 500
MAX_A_ROUND = 5_000
# Most rounds look at what ended lately: before a vacuum the index keeps the entries of all holds that have ended. After
# a pause that was longer the next round looks at all of them.
RECENT_SECONDS = 60
WHOLE_SWEEP_SECONDS = 60.0
# After holds could not be ended, however long ago their time was.
AGAIN_SECONDS = 1.0


class Expirer:
    """One expirer: any number may run, each hold ends once. stopping: says whether to end after the present batch.

    report_alive: called before each batch, for a round may be over many SKUs; report_away: when the database is not
    reached.
    """

    def __init__(
        self,
        *,
        stopping: Callable[[], bool],
        report_alive: Callable[[], None] = lambda: None,
        report_away: Callable[[], None] = lambda: None,
    ) -> None:
        self._stopping = stopping
        self._report_alive = report_alive
        self._report_away = report_away
        self._database = LastingConnection()
        self._swept_whole_at = float("-inf")
        self._was_full = False
        self._failed: set[str] = set()
        self._next_batch = BATCH

    def work_once(self) -> int:
        """End what is due; return how many holds ended. Raises nothing: what fails now is due at the next round."""
        try:
            due = self._find_due()
        except psycopg.Error as error:
            self._put_off(error)
            return 0
        return sum(self._end_all(sku, names) for sku, names in due.items())

    def _end_all(self, sku: str, names: Sequence[str]) -> int:
        """End the holds of one SKU; its trouble never stops the others, and every line about it names its batch."""
        with bound_contextvars(sku=sku, requests=[]):
            try:
                return self._end(sku, names)
            except psycopg.Error as error:
                self._put_off(error, sku=sku)
            except Exception:
                log.exception("holds not ended", action="expire_failed", sku=sku)
                self.close()
        self._failed.add(sku)
        # The rounds that look at what ended lately would not see these: the next whole one comes soon.
        self._swept_whole_at = min(self._swept_whole_at, time.monotonic() + AGAIN_SECONDS - WHOLE_SWEEP_SECONDS)
        return 0

    def _put_off(self, error: psycopg.Error, *, sku: str = "") -> None:
        if not isinstance(error, psycopg.errors.LockNotAvailable):
            self._next_batch = 1  # the whole batch may be too much for a sick disk
            note_store_errors("postgresql")
        RETRIES.add("refused" if isinstance(error, psycopg.ProgrammingError) else "expire")
        log.warning("database away or busy", action="expire_retry", sku=sku, error=str(error))
        if is_away(error):
            self._report_away()
        self.close()

    def _find_due(self) -> dict[str, list[str]]:
        """Find the next holds. After a full round: of any age, but not of SKUs that failed since one was not full.

        So a SKU that fails delays the others by one round at most, and is tried again after a round that was not full.
        """
        if not self._was_full:
            self._failed.clear()
        whole = self._was_full or time.monotonic() - self._swept_whole_at >= WHOLE_SWEEP_SECONDS
        with self._database.get().cursor() as cursor:
            seconds = holds.EVER_SECONDS if whole else RECENT_SECONDS
            due = holds.find_due(cursor, limit=MAX_A_ROUND, ended_within_seconds=seconds, without=self._failed)
        self._was_full = sum(map(len, due.values())) >= MAX_A_ROUND
        if whole:
            self._swept_whole_at = time.monotonic()
        return due

    def _end(self, sku: str, names: Sequence[str]) -> int:
        ended, left = 0, iter(names)
        while batch := list(islice(left, self._next_batch)):
            if self._stopping():
                break
            self._report_alive()
            bind_contextvars(requests=batch)
            with traces.spans("expire", batch, store="postgresql", sku=sku):
                fault_point("before_expire")
                with self._database.get().transaction(), self._database.get().cursor() as cursor:
                    # The holder of this row will be done soon, or not for seconds: then the other SKUs come first.
                    cursor.execute("SET LOCAL lock_timeout = '250ms'")
                    changes = holds.expire_due(cursor, sku=sku, request_ids=batch)
                    fault_point("in_expire")
                fault_point("after_expire")
                with suppress(LineNotTold):  # the reconciler tells it: the stock row's version has changed
                    holds.publish(changes)
            self._next_batch = min(BATCH, max(self._next_batch, 2 * len(batch)))
            ended += len(changes.changed)
        return ended

    def close(self) -> None:
        """End the database connection."""
        self._database.drop()
