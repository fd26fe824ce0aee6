"""One script checks for a repeat and decrements in Redis; a job of rq, a popular task queue, writes the order later.
Promises that nothing is oversold, and gives a unit back when the job could not be queued. Fails when a process dies
between the two, or Redis forgets: then a unit is nobody's, and a buyer waits for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from loadtest.rivals.counter import CountingRival, counter_key
from loadtest.rivals.rival import AlreadySold, RivalAnswer, redis_client, write_order

QUEUE = "rivals"
TRIES = 3
TAKEN, REPEATED, SOLD_OUT = 1, 0, -1
# KEYS: units left, wishes that were accepted. ARGV: the wish.
TAKE = """
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 0 end
if tonumber(redis.call('GET', KEYS[1]) or '0') < 1 then return -1 end
redis.call('DECR', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
return 1
"""
GIVE_BACK = """
if redis.call('SREM', KEYS[2], ARGV[1]) == 1 then return redis.call('INCR', KEYS[1]) end
return 0
"""


class CounterThenQueue(CountingRival):
    """Correct in a run without crashes."""

    name = "counter-then-queue"
    title = "Lua DECR, then rq"
    correct = True
    workers = 2

    def buy(self, sale: str, *, buyer: str, key: str) -> RivalAnswer:
        client, keys, wish = redis_client(), [counter_key(sale), f"rival:{sale}:accepted"], f"{buyer}:{key}"
        taken = client.register_script(TAKE)(keys=keys, args=[wish])
        if taken == SOLD_OUT:
            return RivalAnswer.SOLD_OUT
        if taken == REPEATED:
            return self.look_up(sale, buyer=buyer, key=key)
        try:
            self._queue().enqueue(write_once, sale, buyer, key, result_ttl=0, retry=_rq().Retry(max=TRIES))
        except Exception:
            client.register_script(GIVE_BACK)(keys=keys, args=[wish])
            raise
        return RivalAnswer.QUEUED

    def waiting(self, sale: str) -> int:
        return int(self._queue().count)

    def work(self, sales: Sequence[str]) -> None:
        # The worker of rq that does not fork for each job: by far its fastest.
        _rq().SimpleWorker([self._queue()], connection=redis_client()).work(logging_level="WARNING")

    def _queue(self) -> Any:
        return _rq().Queue(QUEUE, connection=redis_client())


def write_once(sale: str, buyer: str, key: str) -> None:
    """Write the order of an accepted wish: what a worker of rq does. A job that runs again changes nothing."""
    with suppress(AlreadySold):
        write_order(sale, buyer=buyer, key=key)


def _rq() -> Any:
    # Only the comparison has it installed.
    return import_module("rq")
