"""Takes the lock of the redis package, then reads, modifies, writes and commits inside it.
Promises that nothing is oversold while the lock outlives the purchase. Fails when it does not (a pause longer than its
life lets two in: nothing in the database asks who holds it), and waits by polling.
"""

from __future__ import annotations

from loadtest.rivals.models import RivalStock
from loadtest.rivals.read_modify_write import read_modify_write
from loadtest.rivals.rival import Answer, Rival
from loadtest.rivals.stores import redis_client

LIFE_SECONDS = 10.0
WAIT_SECONDS = 5.0
# The library's own is 100 ms; with that hardly anybody ever gets the lock.
POLL_SECONDS = 0.005


class RedisLock(Rival):
    """Correct in a run without long pauses."""

    name = "redis-lock"
    title = "redis-py Lock"
    correct = True

    def __init__(self, *, life_seconds: float = LIFE_SECONDS) -> None:
        self._life_seconds = life_seconds

    def buy(self, sale: str, *, buyer: str, key: str) -> Answer:
        lock = redis_client().lock(
            f"rival:{sale}:lock", timeout=self._life_seconds, sleep=POLL_SECONDS, blocking_timeout=WAIT_SECONDS
        )
        if not lock.acquire():
            return Answer.BUSY
        try:
            return read_modify_write(RivalStock.objects.all(), sale, buyer=buyer, key=key)
        finally:
            lock.release()  # after the commit: released before it, the next would read the old number
