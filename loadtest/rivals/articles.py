"""The articles' own flash sale: a locked enqueue into a sorted set, and one worker that polls, pops and decrements.
Promises that nothing is oversold, because one process alone counts down. Fails to be fast (eight round trips and a
100 ms sleep for anyone who meets the lock), and loses what a worker had popped when it dies.
"""

from __future__ import annotations

from django.db import transaction

from loadtest.rivals.article_queue import ArticleQueue
from loadtest.rivals.models import RivalOrder, RivalStock
from loadtest.rivals.rival import Answer, Rival

# The articles show both one task and many; many is the kinder reading.
MAX_AT_ONCE = 100


class Articles(Rival):
    """Correct in a run without crashes."""

    name = "articles"
    title = "the articles' lock and queue"
    correct = True
    workers = 1
    threads = 8

    def __init__(self) -> None:
        self._queue = ArticleQueue()

    def buy(self, sale: str, *, buyer: str, key: str) -> Answer:
        return Answer.QUEUED if self._queue.enqueue(sale, f"{buyer}:{key}") else Answer.BUSY

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
