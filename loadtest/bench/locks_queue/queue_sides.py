"""Every queue that is compared, behind one interface, used as its own documentation shows.
Imports a rival only when it is asked for, so that only its own process has it.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from itertools import count, islice
from typing import Any

from django.conf import settings

from inventory.locks.lock import Lock
from inventory.queues.queue import Batch, Queue
from inventory.redis import connect
from loadtest.bench.locks_queue.lock_sides import rival_client, sure

BATCH = 100
NAME = "bench-queue"
LOCK_LIFE_MS = 10_000
OURS, OURS_APART = "ours", "ours, take and settle apart"
RQ, HUEY, DRAMATIQ, SAQ = "rq", "huey", "dramatiq", "saq"
RAW = "raw ZADD and ZPOPMIN"
RIVALS = (RQ, HUEY, DRAMATIQ, SAQ)


def noop(task: str) -> None:
    """Do nothing with `task`: only the queue is measured."""


async def noop_async(_context: object, *, task: str) -> None:
    """Do nothing with `task`."""


def load_queue(*, side: str) -> None:
    """Import the library of `side`."""
    if side in RIVALS:
        import_module(side)


class AnyQueue(ABC):
    """One queue; both calls do BATCH tasks. depth: how many tasks lie in it, as the one who works them counts."""

    def __init__(self) -> None:
        self._numbers = count()
        self.depth = 0

    def fresh_ids(self) -> list[str]:
        """Return BATCH ids never used before, of tasks that are put in."""
        self.depth += BATCH
        return [f"{number:032x}" for number in islice(self._numbers, BATCH)]

    @abstractmethod
    def enqueue(self) -> None:
        """Put BATCH fresh tasks in. Raises an error when one was not put in."""

    @abstractmethod
    def work(self) -> int:
        """Take BATCH tasks, do nothing with them, and have them removed for good; return how many."""


class OurQueue(AnyQueue):
    """inventory/queues/queue.py. apart: settle and take in two calls instead of one."""

    def __init__(self, *, apart: bool) -> None:
        super().__init__()
        self._apart = apart
        # A name each, so that both can be measured in turns.
        self._name = f"{NAME}-apart" if apart else NAME
        self._queue = Queue(connect(), self._name)
        self._lock = Lock(connect(), self._name, ttl_ms=LOCK_LIFE_MS)
        self._calls = count(1)
        self._batch: Batch | None = None
        sure(self._lock.acquire())

    def enqueue(self) -> None:
        sure(all(answer.code == "new" for answer in self._queue.enqueue(self.fresh_ids())))

    def work(self) -> int:
        token = self._lock.token
        if self._apart:
            worked = [task for task, _ in self._queue.take(token=token, call=next(self._calls), batch=BATCH).tasks]
            return self._queue.settle(worked, token=token)
        if self._batch is None:
            self._batch = self._queue.take(token=token, call=next(self._calls), batch=BATCH)
        worked = [task for task, _ in self._batch.tasks]
        self._batch = self._queue.settle_and_take(worked, token=token, call=next(self._calls), batch=BATCH)
        return len(worked)


class RqQueue(AnyQueue):
    """rq: enqueue_many in one transaction; the loop of a SimpleWorker, which does not fork; no result is kept."""

    def __init__(self) -> None:
        super().__init__()
        rq: Any = import_module("rq")
        client = rival_client()
        self._queue = rq.Queue(NAME, connection=client)
        self._worker = rq.SimpleWorker([self._queue], connection=client)
        # Begun once: the worker's own work() begins and ends a thread each time it is called.
        self._worker.bootstrap(logging_level="ERROR")

    def enqueue(self) -> None:
        jobs = [self._queue.prepare_data(noop, args=(task,), result_ttl=0) for task in self.fresh_ids()]
        sure(len(self._queue.enqueue_many(jobs)) == BATCH)

    def work(self) -> int:
        for _ in range(BATCH):
            job, queue = self._worker.dequeue_job_and_maintain_ttl(None)
            self._worker.execute_job(job, queue)
            self._worker.heartbeat()
        return BATCH - int(self._queue.failed_job_registry.count)


class HueyQueue(AnyQueue):
    """huey: one LPUSH a task, for it has no bulk call; its consumer's own worker loop; no result is kept."""

    def __init__(self) -> None:
        super().__init__()
        huey: Any = import_module("huey").RedisHuey(NAME, url=settings.REDIS_URL, results=False)
        self._huey = huey
        self._task = huey.task(name="noop")(noop)
        worker: Any = import_module("huey.consumer").Worker
        self._worker = worker(huey, threading.Event(), 0.1, 10.0, 1.15)

    def enqueue(self) -> None:
        for task in self.fresh_ids():
            self._task(task)

    def work(self) -> int:
        before = self._worker.task_count
        for _ in range(BATCH):
            self._worker.loop()
        return int(self._worker.task_count - before)


class DramatiqQueue(AnyQueue):
    """dramatiq: one script a message, for it has no bulk call; its consumer, 100 fetched at once, each acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        dramatiq: Any = import_module("dramatiq")
        broker: Any = import_module("dramatiq.brokers.redis").RedisBroker(url=settings.REDIS_URL)
        dramatiq.set_broker(broker)
        self._actor = dramatiq.actor(noop, broker=broker, queue_name=NAME)
        self._consumer = broker.consume(NAME, prefetch=BATCH)

    def enqueue(self) -> None:
        for task in self.fresh_ids():
            self._actor.send(task)

    def work(self) -> int:
        for _ in range(BATCH):
            message = next(self._consumer)
            self._actor(*message.args)
            self._consumer.ack(message)
        return BATCH


class SaqQueue(AnyQueue):
    """saq: 100 enqueued together over its pool; its worker's process() ten at a time; no result is kept."""

    WORKERS = 10

    def __init__(self) -> None:
        super().__init__()
        saq: Any = import_module("saq")
        self._loop = asyncio.new_event_loop()
        self._queue = saq.Queue.from_url(settings.REDIS_URL, name=NAME)
        self._worker = saq.Worker(self._queue, functions=[("noop", noop_async)], concurrency=self.WORKERS)

    def enqueue(self) -> None:
        self._loop.run_until_complete(self._enqueue())

    async def _enqueue(self) -> None:
        jobs = (self._queue.enqueue("noop", task=task, ttl=-1) for task in self.fresh_ids())
        sure(all(await asyncio.gather(*jobs)))

    def work(self) -> int:
        return self._loop.run_until_complete(self._work())

    async def _work(self) -> int:
        return sum(await asyncio.gather(*(self._share() for _ in range(self.WORKERS))))

    async def _share(self) -> int:
        return sum([await self._worker.process() for _ in range(BATCH // self.WORKERS)])


class RawQueue(AnyQueue):
    """No queue library at all: a sorted set, one command a batch; what is popped is gone when the worker dies."""

    def __init__(self) -> None:
        super().__init__()
        self._client = connect()
        self._scores = count()

    def enqueue(self) -> None:
        sure(self._client.zadd("raw:queue", dict(zip(self.fresh_ids(), self._scores, strict=False))) == BATCH)

    def work(self) -> int:
        return len(self._client.zpopmin("raw:queue", BATCH))


def open_queue(side: str) -> AnyQueue:
    """Open the queue of `side`."""
    if side in (OURS, OURS_APART):
        return OurQueue(apart=side == OURS_APART)
    kinds: dict[str, Callable[[], AnyQueue]]
    kinds = {RQ: RqQueue, HUEY: HueyQueue, DRAMATIQ: DramatiqQueue, SAQ: SaqQueue, RAW: RawQueue}
    return kinds[side]()
