"""A failover under Sentinel: what the replica had is kept, what it never had is lost, and the fence refuses the loser.
Replication is asynchronous, so an answer promises no more than the primary's disk; the tests say what that costs.
Each test kills the primary of a pair of its own, but the last, in which an address without Sentinel is moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test.utils import override_settings

from inventory import redis
from inventory.audit import line
from inventory.exceptions import FenceRefused, LockLost, RedisUnavailable
from inventory.line import writing
from inventory.locks.lock import Lock
from inventory.locks.watchdog import WATCHDOG
from inventory.queues.checks import check_queue
from inventory.queues.queue import Queue
from shop.models import Order
from tests.support.road import answer_batch, own_connection, queue, settler, take
from tests.support.servers.proxy import proxy_to
from tests.support.servers.server_matrix import SERVER, Watched, node, watched_pair
from tests.support.shopkeeping import assert_books_balance, close_sale, make_sale
from tests.support.waiting import wait_until
from workers.embedded.server import free_port
from workers.settlement import settle_batch
from workers.settler import Settler

BUYERS = tuple(f"buyer-{number}" for number in range(30))
# Longer than any failover here: a lock must not end by its TTL while the test looks whether it was kept.
TTL_MS = 120_000


@pytest.fixture
def pair(shop_database: None, tmp_path: Path) -> Iterator[Watched]:
    """Work on a primary that may be killed."""
    with watched_pair(tmp_path) as pair, override_settings(REDIS_URL=pair.url):
        yield pair


def fail_over(pair: Watched) -> None:
    """Kill the primary; return when this process's client writes to the new one."""
    pair.kill_primary()
    wait_until(answers, what="the new primary takes writes")


def answers() -> bool:
    """Say whether this process's client reaches a primary."""
    try:
        return redis.connect().set("fd:answers", 1, px=1000) is not None
    except redis.FAILURES:
        return False


def a_lock(name: str) -> Lock:
    return Lock(redis.connect(), name, ttl_ms=TTL_MS)


def test_a_lock_that_the_replica_had_is_kept(pair: Watched, new_sku: Callable[[], str]) -> None:
    holder = a_lock(new_sku())
    rival = a_lock(holder.name)
    assert holder.acquire()
    pair.wait_until_replica_has_all()
    fail_over(pair)
    assert not rival.acquire()
    assert holder.is_locking(remote=True)
    assert holder.extend(TTL_MS)
    assert holder.release()
    assert rival.acquire()
    assert rival.fence > holder.fence
    rival.release()


def test_of_two_holders_after_a_failover_only_the_later_may_write(pair: Watched, new_sku: Callable[[], str]) -> None:
    """The lock was acknowledged and never reached the replica: two believe to hold it, one fence is valid."""
    card = make_sale(new_sku(), units=20)
    queue(card, *BUYERS)
    close_sale(card)
    pair.wait_until_replica_has_all()
    pair.cut_replica_off()
    early, heir = a_lock(card.sku), a_lock(card.sku)
    assert early.acquire()
    early_batch = take(early)
    fail_over(pair)
    assert heir.acquire()
    early.check()  # it cannot know yet: by its own clock its lease goes on
    assert heir.fence > early.fence
    heir_batch = take(heir)
    assert heir_batch == early_batch
    with own_connection() as connection:
        done = settle_batch(connection, sku=card.sku, fence=heir.fence, requests=heir_batch.requests)
        with pytest.raises(FenceRefused):
            settle_batch(connection, sku=card.sku, fence=early.fence, requests=early_batch.requests)
        # The control: it was the fence that refused; under the valid one the same batch finds its own outcomes.
        again = settle_batch(connection, sku=card.sku, fence=heir.fence, requests=early_batch.requests)
    assert [each.record.state for each in again.settled] == [each.record.state for each in done.settled]
    answer_batch(redis.connect(), card.sku, token=heir.token, call=1, figures=done.figures, settled=done.settled)
    with pytest.raises(LockLost):
        answer_batch(redis.connect(), card.sku, token=early.token, call=1, figures=done.figures, settled=done.settled)
    assert early.hold
    WATCHDOG.renew([early.hold])
    assert early.lost.is_set()
    counts = assert_books_balance(card)
    assert (counts["orders_held"], counts["orders_sold_out"]) == (20, 10)
    heir.release()


def test_a_queue_that_the_replica_had_goes_on_where_it_was(pair: Watched, new_sku: Callable[[], str]) -> None:
    tasks = Queue(redis.connect(), new_sku())
    tasks.enqueue({f"id-{number}": f"payload {number}" for number in range(8)})
    lock = a_lock(tasks.name)
    assert lock.acquire()
    batch = tasks.take(token=lock.token, call=1, batch=3)
    assert tasks.settle([batch.tasks[0][0]], token=lock.token) == 1
    before = tasks.counters()
    pair.wait_until_replica_has_all()
    fail_over(pair)
    assert tasks.counters() == before
    assert check_queue(redis.connect(), tasks.name) == []
    assert tasks.take(token=lock.token, call=2, batch=9) == ("again", batch.tasks[1:])
    assert [task.task_id for task in tasks.top(9)] == [f"id-{number}" for number in range(3, 8)]
    assert {each.code for each in tasks.enqueue([f"id-{number}" for number in range(1, 8)])} == {"present"}
    out = StringIO()
    call_command("check_queues", stdout=out)
    assert f"✓ queue {tasks.name}" in out.getvalue()
    lock.release()


def test_what_the_replica_never_had_is_undone_as_a_whole(pair: Watched, new_sku: Callable[[], str]) -> None:
    """An acknowledged enqueue may be lost, and acknowledged work be handed out again: the price of one replica.

    The check finds nothing: the new primary is a sound earlier state. So who enqueues must be able to ask again, and
    who works must know by the id what was done. The line's requests do: their outcome is in PostgreSQL.
    """
    tasks = Queue(redis.connect(), new_sku())
    tasks.enqueue(["kept", "worked"])
    lock = a_lock(tasks.name)
    assert lock.acquire()
    pair.wait_until_replica_has_all()
    pair.cut_replica_off()
    assert [each.code for each in tasks.enqueue("lost")] == ["new"]
    assert [name for name, _ in tasks.take(token=lock.token, call=1, batch=2).tasks] == ["kept", "worked"]
    assert tasks.settle(["worked"], token=lock.token) == 1
    fail_over(pair)
    assert [task.task_id for task in tasks.top(9)] == ["kept", "worked"]
    assert check_queue(redis.connect(), tasks.name) == []
    assert [each.code for each in tasks.enqueue(["lost", "worked"])] == ["new", "present"]
    lock.release()


def test_a_primary_that_must_have_a_replica_refuses_instead(pair: Watched, new_sku: Callable[[], str]) -> None:
    """min-replicas-to-write: an operator's way to lose less. Nothing is acknowledged that nobody else could get."""
    tasks = Queue(redis.connect(), new_sku())
    pair.primary.run("CONFIG", "SET", "min-replicas-to-write", 1)
    tasks.enqueue("kept")
    pair.wait_until_replica_has_all()
    pair.cut_replica_off()
    with pytest.raises(RedisUnavailable):
        tasks.enqueue("refused")
    fail_over(pair)
    assert [task.task_id for task in tasks.top(9)] == ["kept"]
    assert check_queue(redis.connect(), tasks.name) == []


def test_a_failover_in_the_middle_of_a_drain_costs_no_unit(pair: Watched, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=20)
    queue(card, *BUYERS)
    close_sale(card)
    pair.wait_until_replica_has_all()
    rounds = iter(range(2))
    with settler(batch=5, stopping=lambda: next(rounds, None) is None) as worker:
        assert worker.work_once() > 0
    assert 0 < Order.objects.filter(sale_id=card.sale_id).count() < len(BUYERS)
    pair.kill_primary()
    with settler(batch=5, lock_ttl_ms=5000) as worker:
        wait_until(lambda: worked(worker, card.sku), what="everything is decided")
    counts = assert_books_balance(card)
    assert (counts["orders_held"], counts["orders_sold_out"]) == (20, 10)


def worked(worker: Settler, sku: str) -> bool:
    """Let a settler work; say whether its Redis answers and the line is empty."""
    try:
        worker.work_once()
        seen = line.look(redis.connect(), sku)
    except RedisUnavailable:
        return False
    return seen.waiting == seen.in_flight == 0


def test_an_address_that_leads_to_another_primary_is_followed(tmp_path: Path) -> None:
    """As a name or a load balancer moves it. The old primary stays, as a replica that takes no writes."""
    with ExitStack() as running:
        old, new = (running.enter_context(node(tmp_path / name, SERVER)) for name in ("old", "new"))
        proxy = running.enter_context(proxy_to(old.port))
        running.enter_context(override_settings(REDIS_URL=f"redis://127.0.0.1:{proxy.port}/0"))
        client, loop = redis.connect(), running.enter_context(asyncio.Runner())
        async_client = redis.connect_async()
        running.callback(lambda: loop.run(redis.close_async(async_client)))
        command = ("SET", "fd:moved", 1)
        writes: list[Callable[[], object]] = [
            lambda: redis.run_script_each(client, "take", [(writing.take_keys("moved"), ("", 0, 1, 0, 0, 0))]),
            lambda: redis.run_commands(client, [command]),
            lambda: a_lock("moved").acquire(),
            lambda: loop.run(redis.run_commands_async(async_client, [command])),
        ]
        # The control. The first two again, for the lock took their connection: then each write has an open one.
        assert all(map(written, (*writes, *writes[:2])))
        old.run("REPLICAOF", "127.0.0.1", free_port())
        proxy.target_port = new.port
        assert all(written(write) or written(write) for write in writes)


def written(write: Callable[[], object]) -> bool:
    """Say whether Redis took a write: an error may be raised, or stand in the place of a reply."""
    try:
        replies = write()
    except RedisUnavailable:
        return False
    return not any(isinstance(reply, Exception) for reply in (replies if isinstance(replies, list) else ()))
