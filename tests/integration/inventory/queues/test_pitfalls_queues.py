"""Pitfalls of queues that no other test shows us immune to, each with its control; numbers as in docs/failure-cases.md.
Real Redis; every test has a queue of its own.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator
from threading import Barrier, Thread
from typing import Any

import pytest

from inventory import redis
from inventory.exceptions import InvalidRequest, LockLost
from inventory.locks.lock import Lock
from inventory.locks.token import new_token
from inventory.locks.watchdog import WATCHDOG
from inventory.queues.queue import MAX_PER_CALL, Queue, queue_keys
from inventory.redis import keys
from tests.support.road import held_lock, run
from tests.support.waiting import assert_waits_at_most, wait_until

FORK = multiprocessing.get_context("fork")
# The longer lives are for a machine that stands still meanwhile.
LIVES_MS = (1500, 12_000, 60_000)
RECOVERERS = 8
TASKS = 40
DEEP = 100_000
ROUNDS = 5
# What must cost the same may, on a busy machine, cost so many times as much; what depth makes slower costs more.
TIMES_AS_LONG = 5


@pytest.fixture
def queue(each_server: str, new_sku: Callable[[], str]) -> Iterator[Queue]:
    """Return an empty queue on each kind of Redis; it is gone after the test."""
    queue = Queue(redis.connect(), new_sku())
    yield queue
    left = list(redis.connect().scan_iter(match=f"fd:{{{queue.name}}}*", count=1000))
    run(("SREM", keys.queues(), queue.name), *(("DEL", key) for key in left))


def ids(count: int) -> list[str]:
    return [f"id-{number}" for number in range(count)]


@pytest.mark.parametrize("renewed", [False, True])
def test_live_work_longer_than_the_life_of_a_lock_is_not_handed_out_again(queue: Queue, renewed: bool) -> None:
    """Q2. The control is a lock that nobody renews: then somebody else is given the batch."""
    lives_ms = LIVES_MS if renewed else LIVES_MS[:1]
    assert all(is_handed_out_again(queue, life_ms=life_ms, renewed=renewed) for life_ms in lives_ms) is not renewed


def is_handed_out_again(queue: Queue, *, life_ms: int, renewed: bool) -> bool:
    """Work for longer than a lock lives; say whether somebody else is given the batch meanwhile."""
    queue.enqueue(["long-work"])
    worker = Lock(redis.connect(), queue.name, ttl_ms=life_ms if renewed else 60_000)
    other = Lock(redis.connect(), queue.name, ttl_ms=60_000)
    try:
        assert worker.acquire()
        assert queue.take(token=worker.token, call=1, batch=9).tasks
    except (AssertionError, LockLost):
        if life_ms == LIVES_MS[-1] or not renewed:
            raise
        return True  # the machine stood still for the whole of a shorter life
    if not renewed:
        assert worker.hold
        WATCHDOG.remove(worker.hold)
        run(("PEXPIRE", keys.lock(queue.name), life_ms))  # short only now: the batch had to be taken within it
    over_at = time.monotonic() + life_ms * 5 / 4000
    wait_until(lambda: time.monotonic() > over_at)
    if not other.acquire():
        assert queue.settle(["long-work"], token=worker.token) == 1
        worker.release()
        return False
    assert queue.take(token=other.token, call=1, batch=9) == ("again", [("long-work", "")])
    assert queue.settle(["long-work"], token=other.token) == 1
    other.release()
    return True


def leave_behind(queue: Queue) -> None:
    """Let a holder take every task and die."""
    queue.enqueue(ids(TASKS))
    dead = held_lock(queue.name)
    assert len(queue.take(token=dead.token, call=1, batch=TASKS).tasks) == TASKS
    dead.release()


def test_many_who_recover_the_same_batch_work_it_once(queue: Queue) -> None:
    """Q5: anyone who has the lock is given what lies there, and nobody else is."""
    leave_behind(queue)
    worked: list[str] = []
    begin = Barrier(RECOVERERS)

    def recover() -> None:
        begin.wait(timeout=120)
        with_lock = Lock(redis.connect(), queue.name, ttl_ms=60_000)
        assert with_lock.acquire(timeout_seconds=60)
        batch, call = queue.take(token=with_lock.token, call=1, batch=5), 1
        while batch.tasks:
            names = [name for name, _ in batch.tasks]
            worked.extend(names)
            call += 1
            batch = queue.settle_and_take(names, token=with_lock.token, call=call, batch=5)
        with_lock.release()

    threads = [Thread(target=recover) for _ in range(RECOVERERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert sorted(worked) == sorted(ids(TASKS))
    assert queue.counters().settled == TASKS


def test_two_who_read_and_then_put_back_queue_a_task_twice(queue: Queue) -> None:
    """Q5, the control: recovery in two steps, each right by itself, works every task twice."""
    leave_behind(queue)
    worked: list[str] = []
    seen_by_both = [run(("ZRANGE", keys.queue_in_flight(queue.name), 0, -1))[0] for _ in range(2)]
    for seen in seen_by_both:
        run(("ZREM", keys.queue_in_flight(queue.name), *seen))
        worked += seen
    assert len(worked) == 2 * TASKS


def seconds_of(call: Callable[[], object], *, times: int = 15) -> float:
    """Return how long `call` takes when nothing disturbs it: the shortest of several."""
    shortest = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        call()
        shortest = min(shortest, time.perf_counter() - began)
    return shortest


def seconds_at_best(call: Callable[[], object]) -> float:
    """Return the same of several rounds with rests between, so that no busy while of the machine meets them all."""
    shortest = float("inf")
    for _ in range(ROUNDS):
        shortest = min(shortest, seconds_of(call, times=5))
        time.sleep(0.2)
    return shortest


def test_a_claim_costs_the_same_at_any_depth(queue: Queue) -> None:
    """Q11. The control is a claim that reads the whole queue, and shows what depth would cost."""
    calls = iter(range(1, 1000))
    token = new_token()
    run(("SET", keys.lock(queue.name), token, "PX", 300_000))

    def claim() -> None:
        tasks = queue.take(token=token, call=next(calls), batch=10).tasks
        assert queue.settle([name for name, _ in tasks], token=token) == 10

    def careless_claim() -> None:
        assert run(("ZRANGE", keys.queue_waiting(queue.name), 0, -1))[0]

    queue.enqueue(ids(1000))
    shallow, shallow_careless = seconds_at_best(claim), seconds_at_best(careless_claim)
    for first in range(1000, DEEP, MAX_PER_CALL):
        queue.enqueue([f"id-{number}" for number in range(first, first + MAX_PER_CALL)])
    assert_waits_at_most(TIMES_AS_LONG * shallow, lambda: seconds_of(claim))
    assert seconds_of(careless_claim, times=5) > TIMES_AS_LONG * shallow_careless


def test_a_deep_queue_costs_the_others_nothing(queue: Queue, new_sku: Callable[[], str]) -> None:
    """S23. The control is a claim that looks through every queue for work, as the articles' groups do."""
    other = Queue(redis.connect(), new_sku())
    other.enqueue(ids(1000))

    def claim() -> None:
        assert len(other.pop(10)) == 10

    def claim_by_looking_through_all() -> None:
        assert [run(("ZRANGE", keys.queue_waiting(each.name), 0, -1)) for each in (queue, other)]

    def claim_alongside() -> float:
        other.enqueue(ids(1000))  # again what was taken before
        return seconds_of(claim)

    alone, alone_looking = seconds_at_best(claim), seconds_at_best(claim_by_looking_through_all)
    for first in range(0, DEEP, MAX_PER_CALL):
        queue.enqueue([f"id-{number}" for number in range(first, first + MAX_PER_CALL)])
    assert_waits_at_most(TIMES_AS_LONG * alone, claim_alongside)
    assert seconds_of(claim_by_looking_through_all, times=5) > TIMES_AS_LONG * alone_looking
    run(("SREM", keys.queues(), other.name), *(("DEL", key) for key in queue_keys(other.name)))


def enqueue_from_a_process(name: str, first: int) -> None:
    """Put a hundred tasks in, of which the next process names half again."""
    Queue(redis.connect(), name).enqueue([f"id-{number}" for number in range(first, first + 100)])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_counters_add_up_over_processes(queue: Queue) -> None:
    """S20: an id that two processes name counts once."""
    firsts = range(0, 200, 50)
    processes = [FORK.Process(target=enqueue_from_a_process, args=(queue.name, first)) for first in firsts]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0] * len(processes)
    assert queue.counters().enqueued == 250


def test_every_failure_is_logged_with_queue_and_id_and_reason(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    """S17. The control is a call that succeeds: it logs nothing."""
    caplog.set_level(logging.INFO, logger="inventory.queues.queue")
    (old,) = queue.enqueue("a")
    assert lines_of(caplog) == []
    queue.pop()
    queue.enqueue("a")
    queue.dequeue("a", due_us=old.due_us)
    with pytest.raises(InvalidRequest):
        queue.enqueue("b c")
    with pytest.raises(LockLost):
        queue.settle(["a"], token="nobody")
    Queue(redis.connect(), queue.name, max_depth=1).enqueue("d")
    seen = lines_of(caplog)
    assert [line["action"] for line in seen] == ["queue_kept", "argument_refused", "lock_lost", "queue_full"]
    assert {line["queue"] for line in seen} == {queue.name}
    assert all(line["reason"] for line in seen)
    assert [line.get("task") for line in seen] == ["a", None, None, "d"]
    assert "b c" in seen[1]["reason"]


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return what the queue has logged."""
    return [
        record.msg
        for record in caplog.records
        if record.name in ("inventory.queues.queue", "inventory.locks.arguments") and isinstance(record.msg, dict)
    ]


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_wrong_clock_of_a_caller_moves_no_task(queue: Queue, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """Q13. The control is a score made of the caller's clock: by it a task lies hours away."""
    seconds, micros = redis.connect().time()
    server_us = seconds * 1_000_000 + micros
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
    monkeypatch.setattr(time, "time_ns", lambda: int((real() + hours * 3600) * 1e9))
    (queued,) = queue.enqueue("a")
    (later,) = queue.enqueue("b", delay_ms=3_600_000)
    assert abs(queued.due_us - server_us) < 60e6
    assert abs(later.due_us - queued.due_us - 3600e6) < 60e6
    assert [task.task_id for task in queue.top(9)] == ["a"]
    assert abs(time.time() * 1e6 - server_us) > 4 * 3600e6


def test_a_thousand_tasks_fit_into_every_call(queue: Queue) -> None:
    """Q15. The control is a script that unpacks without a bound: Lua refuses it."""
    names = ids(MAX_PER_CALL)
    assert {each.code for each in queue.enqueue(names)} == {"new"}
    assert [task.task_id for task in queue.top(MAX_PER_CALL)] == names
    assert [task.task_id for task in queue.pop(MAX_PER_CALL)] == names
    queue.enqueue(names)
    lock = held_lock(queue.name)
    assert [name for name, _ in queue.take(token=lock.token, call=1, batch=MAX_PER_CALL).tasks] == names
    assert queue.settle(names, token=lock.token) == MAX_PER_CALL
    lock.release()
    unbounded = "local many = {} for i = 1, 10000 do many[i] = i end return redis.call('ZADD', KEYS[1], unpack(many))"
    with pytest.raises(Exception, match="too many results to unpack"):
        redis.connect().eval(unbounded, 1, keys.queue_waiting(queue.name))


def test_worked_tasks_leave_nothing_but_counters(queue: Queue) -> None:
    """Q16. The control is one task that is not settled: it and its record are still there."""
    queue.enqueue(dict.fromkeys(ids(300), "payload"))
    lock = held_lock(queue.name)
    names = [name for name, _ in queue.take(token=lock.token, call=1, batch=300).tasks]
    queue.settle(names[1:], token=lock.token)
    assert sizes(queue) == (0, 1, 1, 0)
    queue.settle(names[:1], token=lock.token)
    assert sizes(queue) == (0, 0, 0, 0)
    lock.release()


def sizes(queue: Queue) -> tuple[int, ...]:
    """Return how many wait, are in flight, have a record, have hand-outs."""
    name = queue.name
    return tuple(
        run(
            ("ZCARD", keys.queue_waiting(name)),
            ("ZCARD", keys.queue_in_flight(name)),
            ("HLEN", keys.queue_records(name)),
            ("HLEN", keys.queue_hand_outs(name)),
        )
    )
