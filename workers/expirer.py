"""Ends holds that nobody paid within a second of their time: hints from Redis, and a sweep of the database.
Never ends one before its time by the database's clock, never one twice. Called by `manage.py run_worker expirer`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

import psycopg
import structlog

from inventory import line
from inventory.database import LastingConnection
from inventory.exceptions import LineNotTold, RedisUnavailable
from inventory.faults import fault_point
from inventory.redis import Client
from shop import holds

log = structlog.get_logger(__name__)

# Many together: one transaction and one fsync; not so many that payments wait long for the row.
BATCH = 500
MOST_A_ROUND = 5_000
# The sweep finds what Redis never knew or has lost; the hints are looked at in every round.
SWEEP_SECONDS = 1.0


class Expirer:
    """One expirer: any number may run, each hold ends once. stopping: says whether to end after the present batch."""

    def __init__(self, client: Client, *, stopping: Callable[[], bool]) -> None:
        self._client = client
        self._stopping = stopping
        self._database = LastingConnection()
        self._swept_at = float("-inf")

    def work_once(self) -> int:
        """End what is due; return how many holds ended. Raises nothing: what fails now is due at the next round."""
        try:
            due = self._find_due()
        except psycopg.Error as error:
            self._put_off(error)
            return 0
        return sum(self._end_all(sku, names) for sku, names in due.items())

    def _end_all(self, sku: str, names: Sequence[str]) -> int:
        """End the holds of one SKU; its trouble never stops the others."""
        try:
            return self._end(sku, names)
        except psycopg.Error as error:
            self._put_off(error, sku=sku)
        except Exception:
            log.exception("holds not ended", action="expire_failed", sku=sku)
            self.close()
        return 0

    def _put_off(self, error: psycopg.Error, *, sku: str = "") -> None:
        log.warning("database away or busy", action="expire_retry", sku=sku, error=str(error))
        self.close()

    def _find_due(self) -> dict[str, list[str]]:
        due = self._read_hints()
        if time.monotonic() - self._swept_at >= SWEEP_SECONDS:
            with self._database.get().cursor() as cursor:
                found = holds.find_due(cursor, most=MOST_A_ROUND)
            self._swept_at = time.monotonic()
            for sku, names in found.items():
                due[sku] = list(dict.fromkeys([*due.get(sku, ()), *names]))
        return due

    def _read_hints(self) -> dict[str, list[str]]:
        try:
            skus = line.known_skus(self._client)
            return line.due_holds(self._client, skus, now_ms=int(time.time() * 1000), most=MOST_A_ROUND)
        except RedisUnavailable as error:
            # The sweep goes on: a hold's end does not wait for Redis.
            log.warning("hints not read", action="expire_hints", error=repr(error.__cause__))
            return {}

    def _end(self, sku: str, names: Sequence[str]) -> int:
        ended, left = 0, iter(names)
        while batch := list(islice(left, BATCH)):
            if self._stopping():
                break
            fault_point("before_expire")
            with self._database.get().transaction(), self._database.get().cursor() as cursor:
                # Who works under this row will be done soon, or not for seconds: then the other SKUs come first.
                cursor.execute("SET LOCAL lock_timeout = '250ms'")
                changes = holds.expire_due(cursor, sku=sku, request_ids=batch)
                fault_point("in_expire")
            fault_point("after_expire")
            self._tell(changes, batch)
            ended += len(changes.changed)
        return ended

    def _tell(self, changes: holds.Changes, batch: Sequence[str]) -> None:
        """Tell Redis what ended; of hints that were wrong, what their orders are now."""
        told = {settled.request_id for settled in changes.changed}
        wrong = [name for name in batch if name not in told]
        if wrong:
            with self._database.get().cursor() as cursor:
                changes = changes._replace(changed=[*changes.changed, *holds.records_now(cursor, wrong)])
        with suppress(LineNotTold):  # its hints stay in the line, and the next round looks at them again
            holds.tell(changes)

    def close(self) -> None:
        """End the database connection."""
        self._database.drop()
