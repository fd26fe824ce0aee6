"""The task queue does what the articles ask: once an id, earliest due first, nothing taken is lost, nothing silent.
Every test has a queue of its own, and runs on every kind of Redis.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from inventory import redis
from inventory.exceptions import InvalidRequest, LockLost
from inventory.queues import queue as queue_module
from inventory.queues.checks import check_queue, known_queues
from inventory.queues.queue import MAX_HAND_OUTS, Dequeued, Queue
from inventory.redis import keys
from shop.models import Sale
from tests.support.road import held_lock, run
from tests.support.servers.server_matrix import ON_ONE_KIND
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until
from workers.management.commands import check_queues


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
    assert queue.dequeue("a", due_us=old.due_us) is Dequeued.REQUEUED
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
    for _ in range(MAX_HAND_OUTS):
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


def taken(queue: Queue, **arguments: Any) -> Any:
    return queue.take(**{"token": "t", "call": 1, "batch": 1, **arguments})


NAN, HUGE = float("nan"), 10**400
BAD_ARGUMENTS: dict[str, tuple[Callable[[Queue, Any], Any], tuple[Any, ...]]] = {
    "client": (lambda queue, bad: Queue(bad, "a"), (None, "redis://", object(), {1})),
    "name": (lambda queue, bad: Queue(redis.connect(), bad), ("", None, 5, b"a", "a b", "a}", "a" * 201)),
    "max_depth": (lambda queue, bad: Queue(redis.connect(), "a", max_depth=bad), (0, "5", 1.5, None, True, NAN, HUGE)),
    "tasks": (lambda queue, bad: queue.enqueue(bad), ([], {}, None, b"ab", 1.5, True, [str(n) for n in range(1001)])),
    "task_id": (
        lambda queue, bad: queue.enqueue(bad),
        ("", ["a", "b c"], [None], [1.5], [b"a"], ["\ud800"], [["a"]], HUGE),
    ),
    "payload": (lambda queue, bad: queue.enqueue({"a": bad}), (None, 5, b"a", "\ud800", "x" * 1_000_001)),
    "delay_ms": (lambda queue, bad: queue.enqueue("a", delay_ms=bad), (-1, "5", None, 0.5, NAN, HUGE)),
    "count": (lambda queue, bad: queue.pop(bad), (0, 1001, "3", 1.5, NAN, True, HUGE)),
    "due_us": (lambda queue, bad: queue.dequeue("a", due_us=bad), (None, "abc", "5", -1, 1.5, NAN, HUGE)),
    "batch": (lambda queue, bad: taken(queue, batch=bad), (0, 1001, None, "3", 1.5, HUGE)),
    "call": (lambda queue, bad: taken(queue, call=bad), (None, "1", -1, 1.5, HUGE)),
    "token": (lambda queue, bad: taken(queue, token=bad), ("", None, 5, b"t", "\ud800", "t" * 501)),
    "task_ids": (lambda queue, bad: queue.settle(bad, token="t"), ("a", None, 5, {"a": ""}, ["a"] * 1001)),
}
ALSO_BAD: list[tuple[str, Callable[[Queue], Any]]] = [
    ("count", lambda queue: queue.top("3")),  # type: ignore[call-overload]
    ("count", lambda queue: queue.dead_ids(count=0)),
    ("call", lambda queue: queue.pop(call=None)),  # type: ignore[call-overload]
    ("task_id", lambda queue: queue.dequeue(None, due_us=1)),  # type: ignore[arg-type]
    ("task_id", lambda queue: queue.retry_dead(None)),  # type: ignore[arg-type]
    ("task_id", lambda queue: queue.discard_dead("")),
    ("task_id", lambda queue: queue.settle([None], token="t")),  # type: ignore[list-item]
    ("token", lambda queue: queue.settle([], token=None)),  # type: ignore[arg-type]
    ("token", lambda queue: queue.give_back(token=None)),  # type: ignore[arg-type]
    ("token", lambda queue: queue.settle_and_take([], token=None, call=1, batch=1)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        *((name, partial(call, bad=bad)) for name, (call, values) in BAD_ARGUMENTS.items() for bad in values),
        *ALSO_BAD,
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@ON_ONE_KIND  # no server is asked
def test_a_bad_argument_is_named(
    queue: Queue, argument: str, call: Callable[[Queue], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The error names the argument and its bound, and is logged (S16, S17). The control: a good one is no error."""

    def refused() -> list[Any]:
        return [record.msg for record in caplog.records if record.name == "inventory.locks.arguments"]

    queue.enqueue("control")
    assert refused() == []
    with pytest.raises(InvalidRequest, match=rf"^{argument} must"):
        call(queue)
    logged = refused()
    assert [(line["action"], line["argument"]) for line in logged] == [("argument_refused", argument)]
    assert logged[0]["reason"].startswith(f"{argument} must")
    assert ids(queue.top(9)) == ["control"]


def test_the_names_and_ids_of_the_articles_are_accepted(each_server: str, new_sku: Callable[[], str]) -> None:
    """A number is an id as its text is: the articles queue the ids of rows."""
    queue = Queue(redis.connect(), f"Queue:orders_{new_sku()}")
    assert [each.task_id for each in queue.enqueue([666666, 5, "5"])] == ["666666", "5"]
    (again,) = queue.enqueue(5, delay_ms=1000)
    assert (again.task_id, again.code) == ("5", "present")
    assert queue.dequeue(5, due_us=again.due_us) is Dequeued.REMOVED
    lock = held_lock(queue.name)
    assert ids(queue.take(token=lock.token, call=1, batch=9).tasks) == ["666666"]
    assert queue.settle([666666], token=lock.token) == 1
    assert lock.release()
    assert check_queue(redis.connect(), queue.name) == []
    run(("DEL", keys.queue_state(queue.name)), ("SREM", keys.queues(), queue.name))


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


@pytest.mark.usefixtures("shop_database")
def test_a_redis_that_knows_nothing_is_not_called_sound(
    monkeypatch: pytest.MonkeyPatch, new_sku: Callable[[], str]
) -> None:
    """As after it was emptied, or by the address of another one. A shop without sales has nothing to lose."""
    for known in ("known_skus", "known_queues"):
        monkeypatch.setattr(check_queues, known, lambda client: [])
    with monkeypatch.context() as patched:
        patched.setattr(check_queues, "Sale", SimpleNamespace(objects=Sale.objects.none()))
        call_command("check_queues", stdout=StringIO())
    make_sale(new_sku(), units=1)
    with pytest.raises(CommandError, match="nothing was checked"):
        call_command("check_queues", stdout=StringIO())
