"""One script checks for a repeat, decrements in Redis and notes the wish; one writer inserts the orders in batches.
The strategy of TigerFans (renerocks.ai/projects/tigerfans, 2025), with a counter in Redis where it has TigerBeetle.
Promises that nothing is oversold, also when the writer dies: a wish is dropped only after its order is durable. Fails
when Redis forgets: what was counted down and not written yet is nobody's.
"""

from __future__ import annotations

from loadtest.rivals.counter import CountingRival, counter_key
from loadtest.rivals.models import RivalOrder
from loadtest.rivals.rival import RivalAnswer, redis_client

MAX_PER_INSERT = 500
TAKEN, SOLD_OUT = 1, -1
# KEYS: units left, wishes that were accepted, wishes without an order. ARGV: the wish. Returns 0 for a repeated wish.
TAKE = """
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 0 end
if tonumber(redis.call('GET', KEYS[1]) or '0') < 1 then return -1 end
redis.call('DECR', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
redis.call('RPUSH', KEYS[3], ARGV[1])
return 1
"""


class BatchingWriter(CountingRival):
    """Correct while Redis keeps its data."""

    name = "batching-writer"
    title = "Lua DECR, batching writer"
    correct = True
    workers = 1
    poll_seconds = 0.005

    def buy(self, sale: str, *, buyer: str, key: str) -> RivalAnswer:
        keys = [counter_key(sale), f"rival:{sale}:accepted", unwritten_key(sale)]
        taken = redis_client().register_script(TAKE)(keys=keys, args=[f"{buyer}:{key}"])
        if taken == TAKEN:
            return RivalAnswer.QUEUED
        return RivalAnswer.SOLD_OUT if taken == SOLD_OUT else self.look_up(sale, buyer=buyer, key=key)

    def waiting(self, sale: str) -> int:
        return int(redis_client().llen(unwritten_key(sale)))

    def work_once(self, sale: str) -> int:
        client, name = redis_client(), unwritten_key(sale)
        wishes = [wish.decode().partition(":") for wish in client.lrange(name, 0, MAX_PER_INSERT - 1)]
        if wishes:
            orders = [RivalOrder(sale=sale, buyer=buyer, key=key) for buyer, _, key in wishes]
            # After a crash between these two calls the same wishes are inserted again: the constraint refuses them.
            RivalOrder.objects.bulk_create(orders, ignore_conflicts=True)
            client.ltrim(name, len(wishes), -1)
        return len(wishes)


def unwritten_key(sale: str) -> str:
    """Return the key of the accepted wishes that have no order yet."""
    return f"rival:{sale}:unwritten"
