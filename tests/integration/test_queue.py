"""The task queue does what the articles ask: once an id, earliest due first, nothing taken is lost, nothing silent.
Every test has a queue of its own, and runs on every kind of Redis. Called by pytest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from inventory import keys, redis
from inventory import queue as queue_module
from inventory.exceptions import InvalidRequest, LockLost
from inventory.queue import MOST_HAND_OUTS, Dequeued, Queue
from inventory.queue_checks import check_queue, known_queues
from tests.road import held_lock, run
from tests.waiting import wait_until


@pytest.fixture
def queue(each_server: str, new_sku: Callable[[], str]) -> Queue:
    """Return an empty queue."""
    return Queue(redis.connect(), new_sku())


def ids(tasks: list[Any]) -> list[str]:
    return [task[0] for task in tasks]


def test_an_id_is_in_the_queue_once(queue: Queue) -> None:
    (first,) = queue.enqueue("a")
    again = queue.enqueue(["a", "b"], delay_ms=60_000)
    assert [each.code for each in again] == ["present", "new"]
    assert again[0].due_us == first.due_us


def test_one_gives_one_and_a_count_gives_a_list(queue: Queue) -> None:
    queue.enqueue({"a": "first", "b": "second", "c": ""})
    assert (queue.top() or ("",))[0] == "a"
    assert ids(queue.top(1)) == ["a"]
    assert [(task.task_id, task.payload) for task in queue.pop(2)] == [("a", "first"), ("b", "second")]
    assert (queue.pop() or ("",))[0] == "c"
    assert (queue.pop(), queue.top(), queue.pop(3)) == (None, None, [])


def test_a_delayed_task_waits_until_it_is_due(queue: Queue) -> None:
    queue.enqueue("late", delay_ms=3_600_000)
    queue.enqueue("soon", delay_ms=50)
    assert wait_until(lambda: queue.top(5))[0].task_id == "soon"
    lock = held_lock(queue.name)
    assert ids(queue.take(token=lock.token, call=1, batch=9).tasks) == ["soon"]
    lock.release()


def test_a_task_queued_anew_is_not_dequeued(queue: Queue) -> None:
    (old,) = queue.enqueue("a")
    queue.pop()
    (new,) = queue.enqueue("a")
    assert queue.dequeue("a", due_us=old.due_us) is Dequeued.ANEW
    assert queue.dequeue("a", due_us=new.due_us) is Dequeued.REMOVED
    assert queue.dequeue("a", due_us=new.due_us) is Dequeued.GONE


def test_a_full_queue_says_so(each_server: str, new_sku: Callable[[], str]) -> None:
    queue = Queue(redis.connect(), new_sku(), max_depth=2)
    assert [each.code for each in queue.enqueue(["a", "b", "c"])] == ["new", "new", "full"]


def test_settle_and_take_walks_through_the_queue(queue: Queue) -> None:
    queue.enqueue([f"id-{number}" for number in range(5)])
    lock = held_lock(queue.name)
    batch, seen, call = queue.take(token=lock.token, call=1, batch=2), [], 1
    while batch.tasks:
        seen.append(ids(batch.tasks))
        call += 1
        batch = queue.settle_and_take(seen[-1], token=lock.token, call=call, batch=2)
    assert seen == [["id-0", "id-1"], ["id-2", "id-3"], ["id-4"]]
    counters = queue.counters()
    assert (counters.enqueued, counters.taken, counters.settled, counters.dead) == (5, 5, 5, 0)
    lock.release()


def test_a_task_that_kills_its_holders_is_a_dead_letter_and_comes_back_when_asked(queue: Queue) -> None:
    queue.enqueue(["poison", "innocent"])
    for _ in range(MOST_HAND_OUTS):
        lock = held_lock(queue.name)
        assert ids(queue.take(token=lock.token, call=1, batch=1).tasks) == ["poison"]
        lock.release()
    lock = held_lock(queue.name)
    assert ids(queue.take(token=lock.token, call=1, batch=1).tasks) == ["innocent"]
    assert (queue.dead_ids(), queue.counters().dead, check_queue(redis.connect(), queue.name)) == (["poison"], 1, [])
    assert (queue.retry_dead("poison"), queue.retry_dead("poison")) == (True, False)
    assert queue.settle(["innocent"], token=lock.token) == 1
    assert ids(queue.take(token=lock.token, call=2, batch=1).tasks) == ["poison"]
    lock.release()


def test_without_the_lock_nothing_changes(queue: Queue) -> None:
    queue.enqueue("a")
    for call in (
        lambda: queue.take(token="nobody", call=1, batch=1),
        lambda: queue.settle(["a"], token="nobody"),
        lambda: queue.settle_and_take(["a"], token="nobody", call=1, batch=1),
        lambda: queue.give_back(token="nobody"),
    ):
        with pytest.raises(LockLost):
            call()
    assert ids(queue.top(5)) == ["a"]


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("name", lambda queue: Queue(redis.connect(), "")),
        ("max_depth", lambda queue: Queue(redis.connect(), "a", max_depth=0)),
        ("tasks", lambda queue: queue.enqueue([])),
        ("task_id", lambda queue: queue.enqueue("")),
        ("task_id", lambda queue: queue.enqueue(["a", "b c"])),
        ("delay_ms", lambda queue: queue.enqueue("a", delay_ms=-1)),
        ("count", lambda queue: queue.pop(0)),
        ("count", lambda queue: queue.top(1001)),
        ("batch", lambda queue: queue.take(token="t", call=1, batch=0)),
        ("task_ids", lambda queue: queue.settle("a", token="t")),
    ],
)
def test_a_bad_argument_is_named(queue: Queue, argument: str, call: Callable[[Queue], Any]) -> None:
    with pytest.raises(InvalidRequest, match=f"^{argument} must"):
        call(queue)


FAULTS: list[tuple[str, Callable[[str], tuple[str | int, ...]]]] = [
    ("an id is in exactly one place", lambda name: ("ZADD", keys.queue_in_flight(name), 1, "a")),
    ("every task has its record", lambda name: ("HDEL", keys.queue_records(name), "a")),
    ("an id is in exactly one place", lambda name: ("ZREM", keys.queue_waiting(name), "a")),
    ("the counters agree", lambda name: ("HINCRBY", keys.queue_state(name), "settled", 1)),
    ("due times are sane", lambda name: ("ZADD", keys.queue_waiting(name), -5, "a")),
]


@pytest.mark.parametrize(("rule", "fault"), FAULTS)
def test_every_fault_is_found(queue: Queue, rule: str, fault: Callable[[str], tuple[str | int, ...]]) -> None:
    queue.enqueue(["a", "b"])
    assert check_queue(redis.connect(), queue.name) == []
    run(fault(queue.name))
    assert rule in {finding.rule for finding in check_queue(redis.connect(), queue.name)}
    with pytest.raises(CommandError, match="broken"):
        call_command("check_queues", "--json", stdout=StringIO())
    run(("DEL", keys.queue_waiting(queue.name), keys.queue_in_flight(queue.name), keys.queue_records(queue.name)))
    run(("DEL", keys.queue_state(queue.name)), ("SREM", keys.queues(), queue.name))


@pytest.mark.parametrize(("register_seconds", "known"), [(0, True), (3600, False)])
def test_a_queue_whose_name_was_lost_is_known_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, register_seconds: float, known: bool
) -> None:
    """A failover may lose the name and not the queue. The control never writes it again."""
    monkeypatch.setattr(queue_module, "REGISTER_SECONDS", register_seconds)
    queue.enqueue("a")
    run(("SREM", keys.queues(), queue.name))
    queue.enqueue("b")
    assert (queue.name in known_queues(redis.connect())) is known


def test_the_command_tells_of_every_queue(queue: Queue) -> None:
    queue.enqueue("a")
    out = StringIO()
    with suppress(CommandError):  # lines that other tests broke on purpose are found as well
        call_command("check_queues", "--json", stdout=out)
    assert f"queue {queue.name}" in json.loads(out.getvalue())["checked"]
