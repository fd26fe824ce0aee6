"""A queue of tasks in a sorted set: the earliest due first, each id once, a dead holder's batch inherited.
Never loses a task that was taken and never decides what it means.

The line of a SKU (line/writing.py) is its special case with admission: both hand out by shared/hand_out.lua, and run
give_back.lua. A queue's lock is the lock of its name: one named as a SKU is worked under that SKU's lock (S18).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from secrets import token_hex
from typing import Any, Literal, NamedTuple, overload

import structlog

from inventory.exceptions import LockLost
from inventory.locks.arguments import (
    HIGHEST_WHOLE,
    check_texts,
    checked_client,
    checked_id,
    checked_ids,
    checked_name,
    checked_text,
    checked_whole,
    refused,
)
from inventory.redis import Argument, Client, keys, run_commands, run_script, run_scripts, sending_once

log = structlog.get_logger(__name__)

MAX_PER_CALL = 1000  # one script call stays short (Q15)
MAX_HAND_OUTS = 5  # then a task lies in the dead letters (Q12)
MAX_DELAY_MS = 366 * 24 * 3600 * 1000
REGISTER_SECONDS = 60  # a queue whose name was lost in a failover is found by check_queues again after this
MAX_NAME_LENGTH = 500  # of a call or a token
POP_REPLY_MS = 60_000  # a pop that is re-sent within this time is given the same tasks
ENQUEUE_REPLY_MS = 10_000  # the library sends again within a second or two
TaskId = str | int


class Enqueued(NamedTuple):
    """What became of one id: 'new', 'present' (left where it is) or 'full'; due_us: server time in µs, 0 when full."""

    task_id: str
    code: Literal["new", "present", "full"]
    due_us: int


class Task(NamedTuple):
    """A task that is due, as pop and top show it. due_us: server time in µs."""

    task_id: str
    due_us: int
    payload: str


class Batch(NamedTuple):
    """Tasks handed out under the lock: kind is 'fresh', or 'again' (what a dead holder left); (id, payload) pairs."""

    kind: str
    tasks: list[tuple[str, str]]


class Dequeued(IntEnum):
    """What became of a dequeue: GONE = it does not wait (any more), REQUEUED = it was queued again and stays."""

    REMOVED = 1
    GONE = 0
    REQUEUED = -1


class Counters(NamedTuple):
    """How many tasks met each fate since the queue began, counted over all machines (S20)."""

    enqueued: int
    taken: int
    settled: int
    popped: int
    dequeued: int
    dead: int
    retried: int
    discarded: int


class Queue:
    """One queue. client: from connect() or connect_once(). name: a SKU, or a name such as `Queue:orders`. max_depth:
    most tasks that may wait or be in flight, at least 1 (back-pressure).

    An id is a text without spaces, or a whole number, which stands for its text. Each call is one atomic script (S15).
    Every call raises RedisUnavailable; a bad argument raises InvalidRequest with its name and bound (S16) and is logged
    (S17).
    """

    def __init__(self, client: Client, name: str, *, max_depth: int = 1_000_000) -> None:
        self.name = checked_name(name)
        self._client = checked_client(client, queue=name)
        self._max_depth = self._whole(max_depth, "max_depth", maximum=HIGHEST_WHOLE)
        self._register_at = 0.0
        self._waiting_keys = [make(self.name) for make in (keys.queue_waiting, keys.queue_records, keys.queue_state)]

    def enqueue(self, tasks: TaskId | Iterable[TaskId] | Mapping[TaskId, str], *, delay_ms: int = 0) -> list[Enqueued]:
        """Put one id, several, or {id: payload} in, due `delay_ms` from now; return what became of each (S12).

        tasks: at most 1,000. delay_ms: at most 366 days, counted by a clock of the queue that never goes back: after
        the server's clock was set back a task is late by as much. A payload has at most 1,000,000 characters. An id
        that waits, is in flight or is dead is left where it is. What the library sends again queues nothing twice; a
        caller that was told RedisUnavailable and calls again queues again what was worked meanwhile.
        """
        payloads = self._payloads(tasks)
        self._whole(delay_ms, "delay_ms", minimum=0, maximum=MAX_DELAY_MS)
        if time.monotonic() >= self._register_at:
            run_commands(self._client, [("SADD", keys.queues(), self.name)])
            self._register_at = time.monotonic() + REGISTER_SECONDS
        args: list[Argument] = [self._max_depth, delay_ms * 1000, ENQUEUE_REPLY_MS]
        args += [part for pair in payloads.items() for part in pair]
        reply = keys.queue_reply(self.name, method="enqueue", call=token_hex(16))
        flat = iter(run_script(self._client, "queue_enqueue", keys=[*queue_keys(self.name), reply], args=args))
        answers = [Enqueued(name, code, int(due or 0)) for name, code, due in zip(payloads, flat, flat, strict=True)]
        for answer in answers:
            if answer.code == "full":
                log.warning("task refused", action="queue_full", queue=self.name, task=answer.task_id, reason="full")
        return answers

    def dequeue(self, task_id: TaskId, *, due_us: int) -> Dequeued:
        """Remove a waiting task only if it is still due at `due_us` (µs): else it was queued again (S13).

        Sent once: after RedisUnavailable it may be removed.
        """
        task_id = self._id(task_id)
        self._whole(due_us, "due_us", minimum=0, maximum=HIGHEST_WHOLE)
        once = sending_once(self._client)
        answer = Dequeued(run_script(once, "queue_dequeue", keys=self._waiting_keys, args=[task_id, due_us]))
        if answer is not Dequeued.REMOVED:
            log.info("not dequeued", action="queue_kept", queue=self.name, task=task_id, reason=answer.name.lower())
        return answer

    @overload
    def top(self) -> Task | None: ...
    @overload
    def top(self, count: int) -> list[Task]: ...

    def top(self, count: int | None = None) -> Task | list[Task] | None:
        """Return the `count` earliest due tasks and leave them; without `count` the first itself, or None (S14)."""
        asked = self._whole(1 if count is None else count, "count")
        found = _tasks(run_script(self._client, "queue_pop", keys=self._waiting_keys, args=[asked, 0]))
        return found if count is not None else next(iter(found), None)

    @overload
    def pop(self, *, call: str = "") -> Task | None: ...
    @overload
    def pop(self, count: int, *, call: str = "") -> list[Task]: ...

    def pop(self, count: int | None = None, *, call: str = "") -> Task | list[Task] | None:
        """Remove and return the `count` earliest due tasks; without `count` the first itself, or None (S14).

        What a caller pops and does not finish is lost: take and settle what must not be. call: a name of this call,
        to repeat it within a minute and be given the same tasks; one is made when none is given.
        """
        asked = self._whole(1 if count is None else count, "count")
        checked_text(call, argument="call", maximum=MAX_NAME_LENGTH, queue=self.name)
        script_keys = [*self._waiting_keys, keys.queue_reply(self.name, method="pop", call=call or token_hex(16))]
        found = _tasks(run_script(self._client, "queue_pop", keys=script_keys, args=[asked, POP_REPLY_MS]))
        return found if count is not None else next(iter(found), None)

    def take(self, *, token: str, call: int, batch: int) -> Batch:
        """Take up to `batch` due tasks under the lock `token`; `call` rises with each take of this token (S19).

        What a dead holder left comes first: all together, then one at a time; after five hand-outs a task lies in
        the dead letters. A re-sent call is given the same batch. Raises LockLost.
        """
        name, script_keys, args = self._take_call(token=token, call=call, batch=batch)
        return self._batch(run_script(self._client, name, keys=script_keys, args=args))

    def settle(self, task_ids: Sequence[TaskId], *, token: str) -> int:
        """Remove worked tasks for good under the lock `token`; return how many this call settled. Raises LockLost."""
        name, script_keys, args = self._settle_call(task_ids, token=token)
        settled = int(run_script(self._client, name, keys=script_keys, args=args))
        if settled == -1:
            raise self._lost("settle")
        return settled

    def settle_and_take(self, task_ids: Sequence[TaskId], *, token: str, call: int, batch: int) -> Batch:
        """Settle, and take the next batch, in one round trip. Raises LockLost."""
        calls = [self._settle_call(task_ids, token=token), self._take_call(token=token, call=call, batch=batch)]
        settled, taken = run_scripts(self._client, calls)
        if settled == -1:
            raise self._lost("settle")
        return self._batch(taken)

    def give_back(self, *, token: str) -> None:
        """Leave the batch in flight without counting a hand-out: it was not at fault. Raises LockLost."""
        self._check_token(token)
        script_keys = [keys.lock(self.name), keys.queue_state(self.name)]
        if run_script(self._client, "give_back", keys=script_keys, args=[token]) == -1:
            raise self._lost("give_back")

    def dead_ids(self, *, count: int = 100) -> list[str]:
        """Return up to `count` ids of the dead letters, the earliest due first."""
        maximum = self._whole(count, "count")
        (found,) = run_commands(self._client, [("ZRANGE", keys.queue_dead_letters(self.name), 0, maximum - 1)])
        return list(found)

    def retry_dead(self, task_id: TaskId) -> bool:
        """Let a dead task wait again, due when it was, no hand-out counted; False when there is no such letter."""
        return self._change_dead("retry", task_id)

    def discard_dead(self, task_id: TaskId) -> bool:
        """Remove a dead task for good; False when there is no such letter."""
        return self._change_dead("discard", task_id)

    def counters(self) -> Counters:
        """Return how many tasks met each fate, over all machines (S20)."""
        (row,) = run_commands(self._client, [("HMGET", keys.queue_state(self.name), *Counters._fields)])
        return Counters(*(int(value or 0) for value in row))

    def _change_dead(self, mode: str, task_id: TaskId) -> bool:
        task_id = self._id(task_id)
        own = (keys.queue_dead_letters, keys.queue_dead_letter_notes, keys.queue_waiting)
        script_keys = [make(self.name) for make in (*own, keys.queue_records, keys.queue_state)]
        # Sent again after a lost reply it would find no such letter, and say that nothing was done.
        return bool(run_script(sending_once(self._client), "queue_dead", keys=script_keys, args=[mode, task_id]))

    def _take_call(self, *, token: str, call: int, batch: int) -> tuple[str, list[str], list[Argument]]:
        self._check_token(token)
        self._whole(call, "call", minimum=0, maximum=HIGHEST_WHOLE)
        self._whole(batch, "batch")
        own = (keys.lock, keys.queue_waiting, keys.queue_in_flight, keys.queue_records, keys.queue_state)
        dead = (keys.queue_hand_outs, keys.queue_dead_letters, keys.queue_dead_letter_notes)
        script_keys = [make(self.name) for make in own + dead]
        return "queue_take", script_keys, [token, call, batch, MAX_HAND_OUTS]

    def _settle_call(self, task_ids: Sequence[TaskId], *, token: str) -> tuple[str, list[str], list[Argument]]:
        self._check_token(token)
        if not isinstance(task_ids, list | tuple) or len(task_ids) > MAX_PER_CALL:
            raise refused("task_ids", f"must be a list of at most {MAX_PER_CALL}", task_ids, queue=self.name)
        settled = self._ids(task_ids)
        own = (keys.lock, keys.queue_in_flight, keys.queue_records, keys.queue_state, keys.queue_hand_outs)
        script_keys = [make(self.name) for make in own]
        return "queue_settle", script_keys, [token, *settled]

    def _batch(self, reply: Any) -> Batch:
        if reply == -1:
            raise self._lost("take")
        kind, aside, *flat = reply
        for name in aside.split():
            log.error("task handed out too often", action="dead_letter", queue=self.name, task=name)
        parts = iter(flat)
        return Batch(kind, list(zip(parts, parts, strict=True)))

    def _payloads(self, tasks: TaskId | Iterable[TaskId] | Mapping[TaskId, str]) -> dict[str, str]:
        if isinstance(tasks, str | int) and not isinstance(tasks, bool):
            tasks = [tasks]
        if isinstance(tasks, bytes | bytearray) or not isinstance(tasks, Iterable):
            raise refused("tasks", "must be an id, a list of ids or a mapping", tasks, queue=self.name)
        if isinstance(tasks, Mapping):
            check_texts(tasks.values(), argument="payload", queue=self.name)
            payloads = dict(zip(self._ids(tasks), tasks.values(), strict=True))
        else:
            payloads = dict.fromkeys(self._ids(tasks), "")
        if not 1 <= len(payloads) <= MAX_PER_CALL:
            raise refused("tasks", f"must be 1 to {MAX_PER_CALL}", len(payloads), queue=self.name)
        return payloads

    def _ids(self, task_ids: Iterable[TaskId]) -> list[str]:
        return checked_ids(task_ids, argument="task_id", queue=self.name)

    def _id(self, task_id: TaskId) -> str:
        return checked_id(task_id, argument="task_id", queue=self.name)

    def _check_token(self, token: str) -> None:
        checked_text(token, argument="token", minimum=1, maximum=MAX_NAME_LENGTH, queue=self.name)

    def _whole(self, value: int, argument: str, *, minimum: int = 1, maximum: int = MAX_PER_CALL) -> int:
        return checked_whole(value, argument=argument, minimum=minimum, maximum=maximum, queue=self.name)

    def _lost(self, call: str) -> LockLost:
        log.warning("lock lost", action="lock_lost", queue=self.name, reason=f"{call} under a token that holds no lock")
        return LockLost(f"the lock of queue {self.name} is no longer ours; nothing was changed")


def queue_keys(name: str) -> list[str]:
    """Return the keys that tell where every task of a queue lies: waiting, in flight, dead, records, state."""
    own = (keys.queue_waiting, keys.queue_in_flight, keys.queue_dead_letters, keys.queue_records, keys.queue_state)
    return [make(name) for make in own]


def _tasks(flat: Sequence[str]) -> list[Task]:
    parts: Iterator[str] = iter(flat)
    return [Task(name, int(due), payload) for name, due, payload in zip(parts, parts, parts, strict=True)]
