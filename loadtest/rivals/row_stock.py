"""Rivals whose stock is a number in a row of the database, each with another way to keep two buyers apart.
Each says what it promises and where it fails. Never used by the shop.
"""

from __future__ import annotations

from contextlib import suppress

from django.db import transaction
from django.db.models import F, QuerySet

from loadtest.rivals.models import RivalStock
from loadtest.rivals.rival import AlreadySold, Rival, RivalAnswer, SoldOut, redis_client, told_before, write_order

LIFE_SECONDS = 10.0
WAIT_SECONDS = 5.0
# The library's own is 100 ms; with that hardly anybody ever gets the lock.
POLL_SECONDS = 0.005


class ReadModifyWrite(Rival):
    """Reads the stock, and if there is some, writes one less: what the first draft of most shops does.

    Promises nothing under concurrency: two who read the same number write the same number, and both have an order.
    Neither the transaction nor the constraint that stock is not negative helps.
    """

    name = "read-modify-write"
    title = "read, modify, write"
    correct = False

    def buy(self, sale: str, *, buyer: str, key: str) -> RivalAnswer:
        return read_modify_write(RivalStock.objects.all(), sale, buyer=buyer, key=key)


def read_modify_write(rows: QuerySet[RivalStock], sale: str, *, buyer: str, key: str) -> RivalAnswer:
    """Read the stock from `rows`; if there is some, write one less and the order, and commit.

    Alone it guards nothing: it is as safe as `rows` is locked, or as its caller keeps others away.
    """
    with suppress(AlreadySold), transaction.atomic():
        row = rows.get(sale=sale)
        if row.available < 1:
            return told_before(sale, buyer=buyer, key=key)
        row.available -= 1
        row.save(update_fields=["available"])
        write_order(sale, buyer=buyer, key=key)
    return RivalAnswer.HELD


class RowLock(Rival):
    """SELECT … FOR UPDATE: locks the stock row, reads it, writes one less and the order, and commits.

    Promises that nothing is oversold or lost. Fails to be fast: all who buy stand behind one row, and each of them
    waits for four round trips and a flush to disk of everybody before.
    """

    name = "row-lock"
    title = "select_for_update"
    correct = True
    threads = 2

    def buy(self, sale: str, *, buyer: str, key: str) -> RivalAnswer:
        return read_modify_write(RivalStock.objects.select_for_update(), sale, buyer=buyer, key=key)


class ConditionalUpdate(Rival):
    """UPDATE … WHERE available > 0, last of all so that the row is locked briefly.

    Promises that nothing is oversold or lost: the condition and the write are one statement. Fails to be fast: the row
    stays locked until the disk has the commit, so purchases go one flush after the other.
    """

    name = "conditional-update"
    title = "conditional UPDATE"
    correct = True
    threads = 2

    def buy(self, sale: str, *, buyer: str, key: str) -> RivalAnswer:
        try:
            with suppress(AlreadySold), transaction.atomic():
                write_order(sale, buyer=buyer, key=key)
                if not RivalStock.objects.filter(sale=sale, available__gt=0).update(available=F("available") - 1):
                    raise SoldOut
        except SoldOut:
            return RivalAnswer.SOLD_OUT
        return RivalAnswer.HELD


class RedisLock(Rival):
    """Takes the lock of the redis package, then reads, modifies, writes and commits inside it.

    Promises that nothing is oversold while the lock outlives the purchase. Fails when it does not (a pause longer than
    its life lets two in: nothing in the database asks who holds it), and waits by polling.
    """

    name = "redis-lock"
    title = "redis-py Lock"
    correct = True

    def __init__(self, *, life_seconds: float = LIFE_SECONDS) -> None:
        self._life_seconds = life_seconds

    def buy(self, sale: str, *, buyer: str, key: str) -> RivalAnswer:
        lock = redis_client().lock(
            f"rival:{sale}:lock", timeout=self._life_seconds, sleep=POLL_SECONDS, blocking_timeout=WAIT_SECONDS
        )
        if not lock.acquire():
            return RivalAnswer.BUSY
        try:
            return read_modify_write(RivalStock.objects.all(), sale, buyer=buyer, key=key)
        finally:
            lock.release()  # after the commit: released before it, the next would read the old number
