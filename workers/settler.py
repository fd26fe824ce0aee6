"""Takes a SKU's line batch by batch under its lock, settles each batch and answers it; goes round the SKUs.
Never answers before COMMIT, never holds one SKU while others wait for long.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NoReturn

import psycopg
import structlog
from structlog.contextvars import bind_contextvars, bound_contextvars

from inventory.exceptions import BatchDeferred, FenceRefused, LockLost, RedisUnavailable, StaleWrite
from inventory.fault_injection import fault_point
from inventory.line import reading, writing
from inventory.line.writing import Handed
from inventory.locks.lock import Lock
from inventory.postgres import STOPPED_TOO_LONG, LastingConnection, is_away
from inventory.redis import Client, clocks, shards_of
from inventory.states import State
from inventory.telemetry import traces
from inventory.telemetry.measures import ANSWER, RETRIES, ROUND_TRIP, Histogram, Tally, note_store_errors
from workers.settlement import Settlement, seen_fence, settle_batch

log = structlog.get_logger(__name__)

# How long one SKU may be worked while others wait: long enough that taking the lock costs nothing.
TURN_SECONDS = 0.25
# Where so many have work, a turn ends with a batch that was not full: what comes meanwhile is a larger one in the next
# round. With fewer, a look at every SKU before each batch would cost more.
MANY_SKUS = 10
# A turn is over long before this many lives of its lock; a settler that hangs must not keep the SKU (pitfall L6).
LIVES_HELD = 4
# A line that must wait is probed this often all the same: a message that was lost must not leave it asleep.
PROBE_SECONDS = 10.0
MAX_PROBES_A_ROUND = 10
# A head that Redis thought could be decided, and the database did not, is not taken again for so long.
UNDECIDED_SECONDS = 0.25
# A stock row that is busy is waited for so long, and then left alone for as long: other SKUs come first. Not shorter:
# it goes to those who wait in turn, and who gives up while a crowd pays begins again behind all its payments.
BUSY_SECONDS = 1.0
# So many requests of a batch are named in each line that is logged while it is worked: all of one of the usual size, in
# a line that Docker keeps in one piece (16 KiB).
MAX_NAMED = 500
# While the shard of a Cluster is away that keeps the list of SKUs, the database is asked for it this often.
LIST_SECONDS = 1.0
LIVE_SKUS = """
SELECT DISTINCT s.sku FROM inventory_stock s JOIN shop_sale a ON a.stock_id = s.id WHERE a.retired_at IS NULL
"""
DECISIONS = Tally(
    "fairdrop_decisions", "Requests that were decided, by outcome", label="outcome",
    known=(State.HELD, State.SOLD_OUT, State.REFUSED),
)  # fmt: skip
DECISION_SECONDS = Histogram(
    "fairdrop_decision_seconds", "From a place in line to its decision, of those that only waited their turn",
    bounds=ANSWER,
)  # fmt: skip
TRANSACTION_SECONDS = Histogram("fairdrop_transaction_seconds", "Transactions that decided a batch", bounds=ROUND_TRIP)
LOSSES = Tally(
    "fairdrop_turns_lost", "Turns of a settler that ended early, by reason", label="reason",
    known=("lock_lost", "stale_write", "broken_off"),
)  # fmt: skip
DEAD_LETTERS = Tally(
    "fairdrop_dead_letters", "Requests refused after too many hand-outs", label="kind", known=("dead",)
)
# How long to wait before asking the database again when it is away.
DATABASE_RETRY_SECONDS = 0.25


class Settler:
    """One settler: a Redis client, a database connection of its own, and the SKUs it goes round.

    polling: the client that looks for work, so that a shard of a Cluster that is away is met by it first; by default
    the same. batch: most requests a transaction; lock_ttl_ms: life of a SKU's lock without renewal; report_alive:
    called before each turn, for a round over many SKUs may take long; report_away: when the database is not reached.
    """

    def __init__(
        self,
        client: Client,
        *,
        batch: int,
        lock_ttl_ms: int,
        stopping: Callable[[], bool],
        polling: Client | None = None,
        report_alive: Callable[[], None] = lambda: None,
        report_away: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._polling = polling or client
        self._batch = self._next_batch = batch
        self._lock_ttl_ms = lock_ttl_ms
        self._stopping = stopping
        self._report_alive = report_alive
        self._report_away = report_away
        self._database = LastingConnection(lock_seconds=BUSY_SECONDS)
        self._last_sku = ""
        self._database_failed = False
        self._listed: list[str] = []
        self._listed_at = float("-inf")
        self._probe_at: dict[str, float] = {}
        self._rests_until: dict[str, float] = {}
        self._unanswered: dict[str, Lock] = {}

    def work_once(self) -> int:
        """Give every SKU with work one turn; return how many requests were settled. Raises RedisUnavailable."""
        if self._database_failed:
            time.sleep(DATABASE_RETRY_SECONDS)
            self._database_failed = False
        skus, probes = self._find_work()
        # Begin after the SKU that had the last turn, so that each gets its own.
        order = [sku for sku in skus if sku > self._last_sku] + [sku for sku in skus if sku <= self._last_sku]
        done = 0
        for sku in order:
            if self._stopping():
                break
            self._report_alive()
            done += self._take_turn_safely(sku, skus=len(order), probe=sku in probes)
        return done

    def _take_turn_safely(self, sku: str, *, skus: int, probe: bool) -> int:
        """Give one SKU a turn. Of a Cluster the servers of the others may be well; what is one server is away for all.

        Raises RedisUnavailable.
        """
        try:
            return self._take_turn(sku, skus=skus, probe=probe)
        except RedisUnavailable as error:
            if shards_of(self._client) is None:
                raise
            log.warning("the shard of a SKU is away", action="redis_retry", sku=sku, error=repr(error.__cause__))
            return 0

    def _skus(self) -> list[str] | None:
        """Return the SKUs to look at, None for those that Redis lists; while that cannot be read, the database's.

        Raises RedisUnavailable when neither gives any.
        """
        if shards_of(self._polling) is None:
            return None
        try:
            self._listed = reading.known_skus(self._polling)
        except RedisUnavailable:
            if time.monotonic() - self._listed_at >= LIST_SECONDS:
                self._list_live()
            if not self._listed:
                raise
        return self._listed

    def _list_live(self) -> None:
        """Add what the database has on sale to what Redis listed last."""
        self._listed_at = time.monotonic()
        try:
            with self._database.get().cursor() as cursor:
                cursor.execute(LIVE_SKUS)
                self._listed = sorted({*self._listed, *(sku for (sku,) in cursor.fetchall())})
        except psycopg.Error as error:
            note_store_errors("postgresql")
            log.warning("SKUs not listed: Redis and the database are away", action="redis_retry", error=str(error))
            self._database.drop()
            self._database_failed = True

    def _find_work(self) -> tuple[list[str], set[str]]:
        """Return the SKUs that want a turn, by name, and which of them are only probed."""
        now, work = time.monotonic(), reading.look_for_work(self._polling, self._skus())
        waiting = [sku for sku, state in work.items() if state is reading.Work.WAITS]
        self._probe_at = {sku: self._probe_at.get(sku, now + PROBE_SECONDS) for sku in waiting}
        due = sorted((sku for sku in waiting if self._probe_at[sku] <= now), key=self._probe_at.__getitem__)
        probes = set(due[:MAX_PROBES_A_ROUND])
        self._probe_at |= dict.fromkeys(probes, now + PROBE_SECONDS)
        self._rests_until = {sku: until for sku, until in self._rests_until.items() if until > now}
        ready = {sku for sku, state in work.items() if state is reading.Work.READY and sku not in self._rests_until}
        return sorted(ready | probes), probes

    def _take_turn(self, sku: str, *, skus: int, probe: bool) -> int:
        life_ms = self._lock_ttl_ms
        new = Lock(self._client, sku, ttl_ms=life_ms, max_hold_ms=LIVES_HELD * life_ms)
        lock = self._unanswered.pop(sku, new)
        try:
            if not lock.acquire():
                return 0
        except RedisUnavailable:
            self._unanswered[sku] = lock  # Redis may have given it all the same: then only its own token gets in
            raise
        self._last_sku = sku
        with bound_contextvars(sku=sku, requests=[]):
            return self._work_turn(sku, lock, skus=skus, probe=probe)

    def _work_turn(self, sku: str, lock: Lock, *, skus: int, probe: bool) -> int:
        """Work one SKU under its lock, and let go of it. Every line that is logged meanwhile names the batch."""
        try:
            return self._drain(sku, lock, skus=skus, probe=probe)
        except LockLost as error:
            LOSSES.add("lock_lost")
            log.warning("lock lost; another settler goes on", action="lock_lost", sku=sku, detail=error.detail)
            return 0
        except StaleWrite as error:
            LOSSES.add("stale_write")
            log.warning("batch rolled back; it is handed out again", action="stale_write", sku=sku, detail=error.detail)
            return 0
        except BatchDeferred:
            return 0  # _settle has logged why
        except RedisUnavailable:
            raise
        except Exception:
            # One SKU's trouble never stops the others. Its batch stays in flight and is handed out again one by one,
            # so a request that cannot be settled ends in the dead letters and those around it are decided (Q12).
            LOSSES.add("broken_off")
            log.exception("settler turn aborted", action="turn_broken_off", sku=sku)
            self._database.drop()
            return 0
        finally:
            self._release(lock)

    def _release(self, lock: Lock) -> None:
        if lock.hold is None:
            return  # together with the answer to the last batch
        try:
            fault_point("before_release")
            lock.release()
        except RedisUnavailable:
            log.warning("lock left to its TTL", action="release_failed", sku=lock.name)
        except Exception:
            # As above: one SKU's trouble never stops the others. Nobody may go on renewing what nobody works under.
            log.exception("lock left to its TTL", action="release_failed", sku=lock.name)
            lock.end_hold()

    def _drain(self, sku: str, lock: Lock, *, skus: int, probe: bool) -> int:
        """Settle batch after batch until nothing can be decided, this turn of `skus` is over, or we must stop."""
        turn_ends = time.monotonic() + TURN_SECONDS * (4 if skus == 1 else 1)
        call, done, size = 1, 0, self._next_batch
        fault_point("before_take")
        handed = writing.take(self._client, sku, token=lock.token, call=call, batch=size, probe=probe)
        while handed.requests:
            names = [name for name, _ in handed.requests]
            bind_contextvars(requests=names[:MAX_NAMED])
            with traces.spans("settle", names, sku=sku) as spans:
                fault_point("after_take")
                lock.check()
                settlement = self._settle(sku, lock, handed)
                spans.note_outcomes((name, record.state.value) for name, record in settlement.settled)
                done += len(settlement.settled)
                if not settlement.settled:
                    self._rests_until[sku] = time.monotonic() + UNDECIDED_SECONDS
                was_all = skus >= MANY_SKUS and handed.kind == "fresh" and len(names) < size
                if was_all or self._stopping() or not settlement.settled or time.monotonic() >= turn_ends:
                    self._settle_and_release(sku, lock, settlement, call=call)
                    count_decisions(handed, settlement)
                    break
                call, decided, size = call + 1, handed, self._next_batch
                handed = writing.settle_and_take(
                    self._client, sku, token=lock.token, **settlement._asdict(), call=call, batch=size
                )
                fault_point("after_settle")
                count_decisions(decided, settlement)  # buyers are told first
        return done

    def _settle_and_release(self, sku: str, lock: Lock, settlement: Settlement, *, call: int) -> None:
        """Answer a batch (after its COMMIT) and end the turn in one round trip. Raises LockLost, RedisUnavailable."""
        answer = writing.settle_call(sku, token=lock.token, call=call, **settlement._asdict())
        if lock.release_after(answer) == -1:
            raise LockLost

    def _settle(self, sku: str, lock: Lock, handed: Handed) -> Settlement:
        """Settle one batch; when the database is away or busy, give it back and end the turn: other SKUs may be well.

        Raises BatchDeferred then, and when settlement is broken; LockLost when the lock or its fence is out of date.
        A COMMIT whose answer was lost is safe to repeat: the orders are found by request id.
        """
        dead = handed.kind == "dead"
        names = [name for name, _ in handed.requests]
        if dead:
            log.error("request refused after too many hand-outs", action="dead_letter", sku=sku, requests=names)
        lock.check()
        try:
            began, connection = time.monotonic(), self._database.get()
            with traces.spans("transaction", names, store="postgresql"):
                settlement = settle_batch(connection, sku=sku, fence=lock.fence, requests=handed.requests, dead=dead)
            TRANSACTION_SECONDS.observe(time.monotonic() - began)
            self._next_batch = min(self._batch, max(self._next_batch, 2 * len(names)))
            DEAD_LETTERS.add("dead", len(handed.requests) if dead else 0)
            return settlement
        except (psycopg.IntegrityError, psycopg.DataError):
            raise  # the batch itself is at fault: it must be counted
        except STOPPED_TOO_LONG as error:
            self._defer(sku, lock, error)
        except (psycopg.ProgrammingError, psycopg.InternalError):
            RETRIES.add("refused")
            log.exception("settlement is broken", action="settlement_broken", sku=sku)
            self._give_back(sku, lock)
            raise BatchDeferred("the batch stays in flight until this is mended") from None
        except FenceRefused:
            self._raise_fence(sku, lock)
            raise
        except psycopg.Error as error:
            self._defer(sku, lock, error)

    def _defer(self, sku: str, lock: Lock, error: psycopg.Error) -> NoReturn:
        """Give the batch back, and say why; begin again with one request. Raises BatchDeferred."""
        RETRIES.add("settle")
        log.warning("database away or busy", action="settle_retry", sku=sku, error=str(error))
        if is_away(error):
            self._report_away()
        if isinstance(error, psycopg.errors.LockNotAvailable):
            self._rests_until[sku] = time.monotonic() + BUSY_SECONDS  # the database is well: on with the next SKU
            writing.give_back(self._client, sku, token=lock.token)
        else:
            note_store_errors("postgresql")
            self._next_batch = 1  # handed out uncounted, what is too much for a sick disk would be tried for ever
            self._give_back(sku, lock)
        raise BatchDeferred("the batch stays in flight until the database answers") from error

    def _give_back(self, sku: str, lock: Lock) -> None:
        """Leave the batch in flight uncounted, and rest before the next round: the fault is not the batch's."""
        self._database.drop()
        self._database_failed = True
        writing.give_back(self._client, sku, token=lock.token)

    def _raise_fence(self, sku: str, lock: Lock) -> None:
        """Let the next holder's fence be above the stock row's: Redis had lost it, or its clock is behind (L15, L20).

        Only the holder of a live lock may; one that was overtaken gets LockLost and changes nothing.
        """
        try:
            fence = seen_fence(self._database.get(), sku=sku)
        except psycopg.Error:
            fence = 0
        if fence <= lock.fence:  # there is no such row, or nobody to ask: raising the fence would not help
            log.error("stale fence rejected", action="fence_refused", sku=sku, fence=lock.fence)
            self._give_back(sku, lock)
            return
        writing.give_back(self._client, sku, token=lock.token, seen_fence=fence)
        log.error("fence was behind the stock row's", action="fence_raised", sku=sku, fence=lock.fence, seen=fence)

    def close(self) -> None:
        """End the database connection."""
        self._database.drop()


def count_decisions(handed: Handed, settlement: Settlement) -> None:
    """Count a batch that was committed. What waited for a unit to come back is no measure of how fast we decide."""
    turns = {name: each.seq for name, each in handed.requests if each.state is State.QUEUED and not each.restored}
    for outcome, count in Counter(record.state.value for _, record in settlement.settled).items():
        DECISIONS.add(outcome, count)
    asked = [turns[name] / 1e6 for name, _ in settlement.settled if name in turns]
    DECISION_SECONDS.observe_since(asked, now=clocks.seconds())
