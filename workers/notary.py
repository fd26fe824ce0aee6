"""Publishes each sale's log: admissions from the line, all else from the history of orders, in the order of its lock.

Any number of notaries may run: one works at a time. What it adds is one transaction with its checkpoint, so a notary
that dies leaves a log that the next one goes on with. Never changes what was published, and never goes on with a log
that is not what its last checkpoint says.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import structlog
from django.db import connection, transaction

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.fault_injection import fault_point
from inventory.line.admitted import Admitted, Since, admitted_each, all_admitted
from inventory.line.priming import microseconds
from inventory.postgres import AdvisoryLock, Cursor
from inventory.redis import keys
from inventory.states import State
from shop.models import Order, Sale
from shop.salelog import sales, store
from shop.salelog.changes import Change, Request, is_decision, read_changes
from shop.salelog.models import SaleLog
from shop.salelog.notes import Checkpoint, read_note
from shop.salelog.publisher import LogState, Publisher
from shop.tickets.keys import LogOff, log_keys

log = structlog.get_logger(__name__)

# So many changes a step: a step stays well below a second.
MAX_CHANGES = 3000
# An ordinal that nobody knows is looked for everywhere after the first time, and declared lost after the second.
GAP_LOOK_SECONDS, GAP_LOST_SECONDS = 1.0, 10.0
# After so many numbers the logs of sales in which nothing happens are noted as read so far: a notary that starts reads
# on from where the log of the quietest sale stands.
NOTED_EVERY = 10_000
QUIET = """
UPDATE salelog_salelog l SET cursor = %(read_to)s FROM shop_sale s
WHERE s.id = l.sale_id AND s.retired_at IS NULL AND l.is_kept AND l.cursor < %(read_to)s
  AND l.sale_id <> ALL(%(forked)s)
"""
NOW = """
SELECT clock_timestamp(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint
"""
READING = "SELECT read_to FROM salelog_reading WHERE id = 1 AND pg_try_advisory_xact_lock(%s)"
OLDEST = """
SELECT least(r.read_to, (SELECT min(l.cursor) FROM salelog_salelog l JOIN shop_sale s ON s.id = l.sale_id
                         WHERE l.is_kept AND s.retired_at IS NULL))
FROM salelog_reading r WHERE r.id = 1
"""


class Notary:
    """One notary. Between steps it remembers which checkpoints were published, and how far every SKU was read."""

    def __init__(self, client: redis.Client) -> None:
        self._client = client
        self._published: dict[int, Checkpoint] | None = None
        self._not_kept: dict[int, str] = {}
        self._forked: set[int] = set()
        self._gaps: dict[int, float] = {}
        self._read_to: int | None = None
        # (number, transaction id): once every older transaction has ended, all up to that number is visible.
        self._horizon: tuple[int, int] | None = None
        self._limit = MAX_CHANGES
        self._noted_to: int | None = None

    def work_once(self) -> int:
        """Publish what has happened; return how many leaves that were. Raises RedisUnavailable, DatabaseError."""
        try:
            log_keys()
        except LogOff:
            return 0
        if self._published is None:
            self._published = self._read_published()
        line = self._read_line()
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute(READING, [AdvisoryLock.NOTARY])
            row = cursor.fetchone()
            if row is None:
                return 0  # another notary works
            added = self._publish(cursor, line, read_to=int(row[0]))
            fault_point("before_checkpoint")
        fault_point("after_checkpoint")
        self._keep_checkpoints(added)
        return sum(size for _, size in added)

    def _read_published(self) -> dict[int, Checkpoint]:
        """Return the checkpoint of each log, and give Redis again those that it has lost, unless another notary did.

        So a log that does not grow any more is guarded again after Redis was emptied.
        """
        (found,) = redis.run_commands(self._client, [("HGETALL", keys.checkpoints())])
        notes, published = redis.as_dict(found), dict[int, Checkpoint]()
        logs = SaleLog.objects.filter(is_kept=True).exclude(checkpoint="").exclude(pk__in=self._forked)
        written = {str(sale_id): note for sale_id, note in logs.values_list("sale_id", "checkpoint")}
        lost = [("HSETNX", keys.checkpoints(), *pair) for pair in written.items() if pair[0] not in notes]
        if lost:
            redis.run_commands(self._client, lost)
        for sale_id, note in {**written, **notes}.items():
            try:
                published[int(sale_id)] = read_note(note)
            except ValueError as error:
                log.error(
                    "a kept checkpoint cannot be read", action="checkpoint_unread", sale=sale_id, error=str(error)
                )
                self._forked.add(int(sale_id))
        return published

    def _read_line(self) -> dict[int, Admitted]:
        """Return what the line knows of each sale whose log may grow. The line first: what has left it is committed.

        A sale is left out when its line cannot be read as far as it must be: then no place of it is declared lost.
        """
        logs = SaleLog.objects.filter(is_kept=True, sale__retired_at=None)
        found = logs.values_list("sale__stock__sku", "sale_id", "seq", "ordinal")
        asked = [Since(sku, sale_id, seq) for sku, sale_id, seq, _ in found]
        answers = admitted_each(self._client, asked)
        searched = {
            since.sale_id: self._search(since, answer, ordinal=ordinal)
            for since, answer, (*_, ordinal) in zip(asked, answers, found, strict=True)
            if answer
        }
        return {sale_id: answer for sale_id, answer in searched.items() if answer}

    def _search(self, since: Since, answer: Admitted, *, ordinal: int) -> Admitted | None:
        """Return `answer`, or all that the line knows when an ordinal is missing for longer than a moment.

        Also when the answer is only the beginning of the line, and either the ordinals went on above a jump, so that
        all below it is published now or declared lost, or nothing in it is new, so that the log would never go on.
        None when all of it cannot be read now: what is missing in a part of the line is not lost.
        """
        jumped = answer.base > ordinal or all(record.ordinal <= ordinal for _, record in answer.requests)
        age = time.monotonic() - self._gaps.get(since.sale_id, time.monotonic())
        if (answer.is_whole or not jumped) and age < GAP_LOOK_SECONDS:
            return answer
        try:
            return all_admitted(self._client, since._replace(seq=0))
        except RedisUnavailable:
            self._gaps.pop(since.sale_id, None)
            return None

    def _publish(self, cursor: Cursor, line: dict[int, Admitted], *, read_to: int) -> list[tuple[SaleLog, int]]:
        """Grow every log that has something to grow by; return those, with how many leaves each got."""
        if self._read_to is None:
            cursor.execute(OLDEST)
            read_to = int(cursor.fetchone()[0])
        begun = sales.begin_logs(cursor, read_to=read_to)
        cursor.execute(NOW)
        now, oldest = cursor.fetchone()
        changes, last, is_whole = read_changes(cursor, after=begun, limit=self._limit)
        added, failed = self._grow_all(cursor, line, changes, is_whole=is_whole, now=now)
        # A step that was full, and found nothing but what waits, must look further the next time.
        self._limit = MAX_CHANGES if is_whole else self._limit if any(size for _, size in added) else self._limit * 2
        self._go_on(cursor, read_to=begun, last=last, oldest=oldest, failed=failed)
        return added

    def _grow_all(
        self, cursor: Cursor, line: dict[int, Admitted], changes: Sequence[Change], *, is_whole: bool, now: datetime
    ) -> tuple[list[tuple[SaleLog, int]], list[int]]:
        """Grow each log alone; return (log, leaves added) and from which numbers on changes are to be read again."""
        added: list[tuple[SaleLog, int]] = []
        again: list[int] = []
        own_sales = {*line, *(each.sale_id for each in changes)}
        sales.count_elsewhere(changes, sale_ids=own_sales | self._forked)
        for each in sales.logs_to_grow(changes, sale_ids=own_sales):
            if each.sale_id in self._forked:
                continue
            own = [one for one in changes if one.stock_id == each.sale.stock_id and one.number > each.cursor]
            try:
                with transaction.atomic():
                    state = self._grow(cursor, each, own, line.get(each.sale_id), is_whole=is_whole, now=now)
            except store.LogForks as error:
                self._forked.add(each.sale_id)
                log.error("this log is published no further", action="log_forks", sale=each.origin, error=str(error))
                continue
            except (ValueError, KeyError):
                log.exception("log not published", action="log_failed", sale=each.origin)
                again += [one.number for one in own[:1]]
                continue
            added.append((each, len(state.leaves)))
            again += [one.number for one in own if one.number > state.cursor][:1]
        return added, again

    def _grow(
        self,
        cursor: Cursor,
        each: SaleLog,
        own: Sequence[Change],
        answer: Admitted | None,
        *,
        is_whole: bool,
        now: datetime,
    ) -> LogState:
        """Publish what is new of one sale; return what was added. is_whole: no later change is left to be read."""
        state = store.state_of(each)
        waiting = [_request(name, record) for name, record in answer.requests] if answer else []
        base = answer.base if answer else _base_of_retired(each.sale)
        if not (own or base > each.ordinal or any(one.ordinal > each.ordinal for one in waiting) or _is_due(each, now)):
            return state
        self._check(each)
        since = self._gaps.get(each.sale_id)
        age = time.monotonic() - since if since is not None else 0.0
        # A retired sale is decided, and no line will ever say more of it. Above a jump the log goes on once all below
        # it is published or declared lost, so decisions that this step has not read count as well.
        is_late = each.sale.retired_at is not None and any(is_decision(one, sale_id=each.sale_id) for one in own)
        if is_late or age >= GAP_LOOK_SECONDS or base > each.ordinal:
            waiting += _decided_after(each)
        publisher = Publisher(
            state,
            sales.facts_of(each.sale, now=now),
            waiting=waiting,
            base=base,
            gap_is_lost=is_late or (answer is not None and age >= GAP_LOST_SECONDS),
            is_whole=is_whole,
        )
        publisher.publish(own)
        self._note_gap(each.sale_id, is_gap=publisher.has_gap and (answer is None or answer.is_whole))
        if state.leaves or state != store.state_of(each):
            store.append(cursor, each, state, at_us=microseconds(now))
        return state

    def _note_gap(self, sale_id: int, *, is_gap: bool) -> None:
        if is_gap:
            self._gaps.setdefault(sale_id, time.monotonic())
        else:
            self._gaps.pop(sale_id, None)

    def _check(self, each: SaleLog) -> None:
        """Raise LogForks unless the log is what was last published of it, or has grown from that."""
        known = (self._published or {}).get(each.sale_id)
        if known is None:
            return
        if each.size != known.size or read_note(each.checkpoint) != known:
            store.check_grows_from(each, known)

    def _go_on(self, cursor: Cursor, *, read_to: int, last: int, oldest: int, failed: list[int]) -> None:
        """Note up to which number nothing is missing of any SKU, so that the next step begins there."""
        if self._horizon is not None and oldest >= self._horizon[1]:
            # No further than this step has read: the one that set the horizon may have read more and published nothing.
            read_to, self._horizon = max(read_to, min(self._horizon[0], last)), None
        if self._horizon is None and last > read_to:
            cursor.execute("SELECT pg_current_xact_id()::text::bigint")
            self._horizon = (last, int(cursor.fetchone()[0]))
        self._read_to = read_to = min([read_to, *(number - 1 for number in failed)])
        self._noted_to = read_to if self._noted_to is None else self._noted_to
        if read_to >= self._noted_to + NOTED_EVERY:
            cursor.execute(QUIET, {"read_to": read_to, "forked": [*self._forked]})
            self._noted_to = read_to
        cursor.execute("UPDATE salelog_reading SET read_to = %s WHERE id = 1 AND read_to <> %s", [read_to, read_to])

    def _keep_checkpoints(self, added: Sequence[tuple[SaleLog, int]]) -> None:
        """Keep the checkpoints where a restore of the database does not reach them.

        They are one key, so on one shard of a Cluster: while that is away, the logs of the others' sales grow all the
        same, and what was not kept is kept with the next step.
        """
        published = self._published = self._published or {}
        for each, leaves in added:
            if leaves:
                published[each.sale_id] = read_note(each.checkpoint)
                self._not_kept[each.sale_id] = each.checkpoint
        if not self._not_kept:
            return
        notes = [part for pair in self._not_kept.items() for part in pair]
        keep, count = ("HSET", keys.checkpoints(), *notes), ("HLEN", keys.checkpoints())
        try:
            _, kept = redis.run_commands(self._client, [keep, count])
        except RedisUnavailable as error:
            if redis.shards_of(self._client) is None:
                raise
            log.warning("checkpoints not kept in Redis", action="redis_retry", error=repr(error.__cause__))
        else:
            self._not_kept.clear()
            if kept < len(published):  # it was emptied: what this notary knows counts all the same
                again = self._read_published()
                self._published = again | {sale_id: known for sale_id, known in published.items() if sale_id in again}


def _is_due(each: SaleLog, now: datetime) -> bool:
    """Say whether the sale of a log has begun, or ended, and the log does not say so yet."""
    if not each.is_open:
        return each.sale.opens_at <= now
    return not each.is_closed and each.sale.state_at(now) == "closed"


def _base_of_retired(sale: Sale) -> int:
    """Return the ordinal above which a retired sale went on, which Redis has forgotten; 0 for any other."""
    return (sale.ordinal_base or 0) if sale.retired_at is not None else 0


def _request(name: str, record: Any) -> Request:
    on_standby = record.state is State.STANDBY
    numbers = (record.seq, record.ordinal, record.terms_version)
    return Request(name, record.buyer, record.quantity, *numbers, record.restored, on_standby)


def _decided_after(each: SaleLog) -> list[Request]:
    """Return the orders of a sale whose admission is not published yet."""
    fields = ("request_id", "buyer", "quantity", "seq", "ordinal", "terms_version", "restored", "standby")
    found = Order.objects.filter(sale_id=each.sale_id, ordinal__gt=each.ordinal, terms_version__isnull=False)
    return [Request(*row) for row in found.values_list(*fields)]
