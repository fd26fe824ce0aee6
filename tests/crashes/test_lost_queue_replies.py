"""Proves that a queue's calls survive lost replies, resets and silence: no task twice, none lost, none forgotten.
Each test asks the proxy whether it really lost the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.conf import settings

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.locks.lock import Lock
from inventory.queues.checks import check_queue
from inventory.queues.queue import Counters, Dequeued, Queue
from inventory.redis import keys
from tests.support.crashes.lossy_road import Road
from tests.support.road import LOCK_TTL_MS
from tests.support.servers.proxy import Rule
from tests.support.waiting import assert_waits_at_most, seconds_of

TASKS = tuple(f"task-{number}" for number in range(10))
# Two connections may be tried in turn.
TOLD_SECONDS = 2 * settings.REDIS_TIMEOUT_SECONDS + 1.5


@pytest.fixture
def queue(road: Road, new_sku: Callable[[], str]) -> Iterator[Queue]:
    """Return an empty queue that is spoken to through the proxy; afterwards its invariants must hold."""
    queue = Queue(road.client, new_sku())
    yield queue
    assert check_queue(road.client, queue.name) == []


def lose_next(road: Road, queue: Queue) -> Rule:
    """Lose the reply to the next call about the queue, whatever script it runs."""
    return road.proxy.drop_replies(keys.queue_state(queue.name).encode())


def counted(queue: Queue, **wanted: int) -> bool:
    """Say whether the queue's counters are `wanted`, and 0 where nothing is said."""
    return queue.counters() == Counters(**{**dict.fromkeys(Counters._fields, 0), **wanted})


def lies(queue: Queue) -> tuple[int, int]:
    """Return how many tasks wait, and how many are in flight."""
    waiting, in_flight = (("ZCARD", key(queue.name)) for key in (keys.queue_waiting, keys.queue_in_flight))
    return tuple(redis.run_commands(redis.connect(), [waiting, in_flight]))  # type: ignore[return-value]


def pop_in_vain(queue: Queue) -> None:
    """Fail unless the caller is told that Redis is away."""
    with pytest.raises(RedisUnavailable):
        queue.pop()


def test_a_plain_pop_loses_a_task(road: Road) -> None:
    """The control: ZPOPMIN sent again takes the next task, and the first is gone with its reply (Q1)."""
    key = f"{keys.stock(road.card.sku)}:plain"
    road.client.zadd(key, {"first": 1, "second": 2})
    rule = road.proxy.drop_replies(b"ZPOPMIN")
    assert [name for name, _ in road.client.zpopmin(key)] == ["second"]
    assert (rule.dropped, road.client.zcard(key)) == (1, 0)


def test_enqueue(road: Road, queue: Queue) -> None:
    queue.enqueue("first")
    rule = lose_next(road, queue)
    answers = queue.enqueue(TASKS)
    assert rule.dropped == 1
    assert {answer.code for answer in answers} <= {"new", "present"}
    assert [(task.task_id, task.due_us) for task in queue.top(20)][1:] == [
        (answer.task_id, answer.due_us) for answer in answers
    ]
    assert counted(queue, enqueued=11)


def test_an_enqueue_sent_again_queues_nothing_that_was_worked_meanwhile(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the library sends it again, with the same name of its reply; the control: another call queues it again."""
    with monkeypatch.context() as patched:
        patched.setattr("inventory.queues.queue.token_hex", lambda _bytes: "the same")
        first = queue.enqueue("task")
        assert [task.task_id for task in queue.pop(1, call="mine")] == ["task"]
        assert queue.enqueue("task") == first
        assert lies(queue) == (0, 0)
    assert [answer.code for answer in queue.enqueue("task")] == ["new"]


def test_enqueue_with_back_pressure(road: Road) -> None:
    """What fitted the first time fits the second time: the queue's own tasks do not crowd themselves out."""
    queue = Queue(road.client, road.card.sku, max_depth=len(TASKS))
    rule = lose_next(road, queue)
    assert "full" not in {answer.code for answer in queue.enqueue(TASKS)}
    assert rule.dropped == 1
    assert lies(queue) == (10, 0)


def test_dequeue(road: Road, queue: Queue) -> None:
    first, again = queue.enqueue(["first", "again"])
    rule = lose_next(road, queue)
    with pytest.raises(RedisUnavailable):  # and not told that it was gone before
        queue.dequeue("first", due_us=first.due_us)
    assert rule.dropped == 1
    assert queue.dequeue("first", due_us=first.due_us) is Dequeued.GONE
    assert [task.task_id for task in queue.top(5)] == [again.task_id]
    assert counted(queue, enqueued=2, dequeued=1)


def test_pop(road: Road, queue: Queue) -> None:
    queue.enqueue(TASKS)
    rule = lose_next(road, queue)
    popped = queue.pop(4)
    assert rule.dropped == 1
    assert [task.task_id for task in popped] == list(TASKS[:4])
    assert (lies(queue), counted(queue, enqueued=10, popped=4)) == ((6, 0), True)


def test_take_settle_and_both(road: Road, queue: Queue) -> None:
    queue.enqueue(TASKS)
    with Lock(road.client, queue.name, ttl_ms=LOCK_TTL_MS) as lock:
        rules = [lose_next(road, queue)]
        batch = queue.take(token=lock.token, call=1, batch=4)
        assert (batch.kind, [name for name, _ in batch.tasks]) == ("fresh", list(TASKS[:4]))
        rules.append(lose_next(road, queue))
        batch = queue.settle_and_take(TASKS[:4], token=lock.token, call=2, batch=4)
        assert (batch.kind, [name for name, _ in batch.tasks]) == ("fresh", list(TASKS[4:8]))
        assert lies(queue) == (2, 4)
        rules.append(lose_next(road, queue))
        queue.settle(TASKS[4:8], token=lock.token)
        assert [rule.dropped for rule in rules] == [1, 1, 1]
    assert lies(queue) == (2, 0)
    assert counted(queue, enqueued=10, taken=8, settled=8)


def test_give_back(road: Road, queue: Queue) -> None:
    queue.enqueue(TASKS)
    for _ in range(7):  # more often than a task may be handed out: none of these hand-outs counts
        with Lock(road.client, queue.name, ttl_ms=LOCK_TTL_MS) as lock:
            batch = queue.take(token=lock.token, call=1, batch=4)
            assert [name for name, _ in batch.tasks] == list(TASKS[:4])
            rule = lose_next(road, queue)
            queue.give_back(token=lock.token)
            assert rule.dropped == 1
    assert queue.dead_ids() == []


def test_retry_and_discard_of_the_dead(road: Road, queue: Queue) -> None:
    queue.enqueue(TASKS[:2])
    while len(queue.dead_ids()) < 2:
        with Lock(road.client, queue.name, ttl_ms=LOCK_TTL_MS) as lock:
            queue.take(token=lock.token, call=1, batch=4)
    rules = [lose_next(road, queue)]
    with pytest.raises(RedisUnavailable):  # and not told that there was no such letter
        queue.retry_dead(TASKS[0])
    rules.append(lose_next(road, queue))
    with pytest.raises(RedisUnavailable):
        queue.discard_dead(TASKS[1])
    assert [rule.dropped for rule in rules] == [1, 1]
    assert not queue.discard_dead(TASKS[1])
    assert (queue.dead_ids(), [task.task_id for task in queue.top(5)]) == ([], [TASKS[0]])
    counters = queue.counters()
    assert (counters.dead, counters.retried, counters.discarded) == (2, 1, 1)


def test_delays_resets_and_silence(road: Road, queue: Queue) -> None:
    road.proxy.delay_seconds = 0.03
    queue.enqueue(TASKS)
    road.proxy.reset_all()
    with Lock(road.client, queue.name, ttl_ms=LOCK_TTL_MS) as lock:
        road.proxy.reset_all()
        batch = queue.take(token=lock.token, call=1, batch=10)
        road.proxy.reset_all()
        assert queue.settle([name for name, _ in batch.tasks], token=lock.token) in (0, 10)
        road.proxy.delay_seconds = 0
        road.proxy.black_hole = True
        assert_waits_at_most(TOLD_SECONDS, lambda: seconds_of(lambda: pop_in_vain(queue)))
        road.proxy.black_hole = False
    assert counted(queue, enqueued=10, taken=10, settled=10)
