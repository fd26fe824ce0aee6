"""The queue of the articles: a sorted set by the time a task is due, with a lock round every change.
Keeps their flaws on purpose: check and add are two steps, and what is popped is lost if the worker dies.
Never used by the shop.
"""

from __future__ import annotations

import time

from loadtest.rivals.article_lock import ArticleLock
from loadtest.rivals.stores import redis_client

LOCK_SECONDS = 5.0


class ArticleQueue:
    """One queue for each name."""

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
