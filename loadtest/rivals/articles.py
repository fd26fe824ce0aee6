"""The articles' own flash sale: a locked enqueue into a sorted set, and one worker that polls, pops and decrements.
Promises that nothing is oversold, because one process alone counts down. Fails to be fast (eight round trips and a
100 ms sleep for anyone who meets the lock), and loses what a worker had popped when it dies. Lock and queue keep their
flaws on purpose. Never used by the shop.
"""

from __future__ import annotations

import time

from django.db import transaction

from loadtest.rivals.models import RivalOrder, RivalStock
from loadtest.rivals.rival import Rival, RivalAnswer, redis_client

EXPIRE_SECONDS = 15
TRY_AGAIN_SECONDS = 0.1
LOCK_SECONDS = 5.0
MAX_AT_ONCE = 100


class ArticleLock:
    """One caller's locks, step by step as the articles have them; it remembers what it wrote.

    SETNX, then EXPIRE, which is given a moment instead of seconds; GET, then DEL; another try each 100 ms. A lock
    without an end is taken over without a check, and its value is not unique.
    """

    def __init__(self) -> None:
        self._mine: dict[str, int] = {}

    def lock(self, name: str, *, timeout_seconds: float = 0, expire_seconds: int = EXPIRE_SECONDS) -> bool:
        """Take the lock `name`, trying for `timeout_seconds`; say whether it is ours (S1)."""
        now = time.time()
        give_up_at, expires_at = now + timeout_seconds, int(now) + expire_seconds
        key, client = _key(name), redis_client()
        while True:
            if client.setnx(key, expires_at):
                client.expire(key, expires_at)
                self._mine[name] = expires_at
                return True
            if client.ttl(key) < 0:  # somebody died between the two steps, or is just between them (S2)
                client.set(key, expires_at)
                self._mine[name] = expires_at
                return True
            if timeout_seconds <= 0 or give_up_at < time.time():
                return False
            time.sleep(TRY_AGAIN_SECONDS)

    def is_locking(self, name: str) -> bool:
        """Say whether Redis has what we wrote (S6)."""
        value = redis_client().get(_key(name))
        return value is not None and self._mine.get(name) == int(value)

    def unlock(self, name: str) -> bool:
        """Give the lock back if it is ours (S3)."""
        if not self.is_locking(name):
            return False
        redis_client().delete(_key(name))
        del self._mine[name]
        return True


def _key(name: str) -> str:
    return f"rival:Lock:{name}"


class ArticleQueue:
    """One queue for each name: a sorted set by the time a task is due, with a lock round every change.

    Check and add are two steps, and what is popped is lost if the worker dies.
    """

    def enqueue(self, name: str, task: str) -> bool:
        """Put `task` in, unless it waits already (S12); say whether the lock was got in time."""
        lock, client, key = ArticleLock(), redis_client(), queue_key(name)
        if not lock.lock(f"Queue:{name}", timeout_seconds=LOCK_SECONDS):
            return False
        try:
            if client.zscore(key, task) is None:
                client.zadd(key, {task: time.time()})
        finally:
            lock.unlock(f"Queue:{name}")
        return True

    def pop(self, name: str, *, count: int) -> list[str]:
        """Take out up to `count` tasks that are due, the earliest first (S14)."""
        lock, client, key = ArticleLock(), redis_client(), queue_key(name)
        if not lock.lock(f"Queue:{name}", timeout_seconds=LOCK_SECONDS):
            return []
        try:
            due = client.zrange(key, "-inf", time.time(), byscore=True, offset=0, num=count)
            if due:
                client.zrem(key, *due)
        finally:
            lock.unlock(f"Queue:{name}")
        return [task.decode() for task in due]

    def length(self, name: str) -> int:
        """Return how many tasks wait."""
        return int(redis_client().zcard(queue_key(name)))


def queue_key(name: str) -> str:
    """Return the key of the sorted set."""
    return f"rival:Queue:{name}"


class Articles(Rival):
    """Correct in a run without crashes."""

    name = "articles"
    title = "the articles' lock and queue"
    correct = True
    workers = 1
    threads = 8

    def __init__(self) -> None:
        self._queue = ArticleQueue()

    def buy(self, sale: str, *, buyer: str, key: str) -> RivalAnswer:
        return RivalAnswer.QUEUED if self._queue.enqueue(sale, f"{buyer}:{key}") else RivalAnswer.BUSY

    def waiting(self, sale: str) -> int:
        return self._queue.length(sale)

    def work_once(self, sale: str) -> int:
        tasks = self._queue.pop(sale, count=MAX_AT_ONCE)
        for task in tasks:
            buyer, _, key = task.partition(":")
            decide(sale, buyer=buyer, key=key)
        return len(tasks)


def decide(sale: str, *, buyer: str, key: str) -> None:
    """Give a wish its unit, or tell it that none is left; a wish that was decided before stays as it is (S7)."""
    with transaction.atomic():
        if RivalOrder.objects.filter(sale=sale, buyer=buyer, key=key).exists():
            return
        row = RivalStock.objects.get(sale=sale)
        if row.available < 1:
            RivalOrder.objects.create(sale=sale, buyer=buyer, key=key, state=RivalOrder.SOLD_OUT)
            return
        row.available -= 1
        row.save(update_fields=["available"])
        RivalOrder.objects.create(sale=sale, buyer=buyer, key=key)
