"""GET /readyz: asks both stores whether they answer, and what their clocks say. Never waits longer than ANSWER_SECONDS:
a store that is silent is not ready. PostgreSQL's clock is looked at whether or not anybody asks; the board looks at
that of Redis (shop/gate/sales/cache.py).
"""

from __future__ import annotations

import asyncio
import json

import structlog

from inventory import redis
from inventory.exceptions import RedisUnavailable, Unavailable
from inventory.postgres import look_at_clock
from inventory.redis import clocks, memory
from shop.gate.server.threads import ThreadPool
from shop.replies import JSON_HEADERS, Head

log = structlog.get_logger(__name__)

ANSWER_SECONDS = 2.0
CLOCK_SECONDS = 10.0
LEAVES = "this process takes no new work: it is being replaced"
READY, NOT_READY = Head(200, JSON_HEADERS), Head(503, JSON_HEADERS)


class Readiness:
    """Whether this process can reach its stores. client: of the running event loop."""

    def __init__(self, client: redis.AsyncClient) -> None:
        self._client = client
        self._threads = ThreadPool("readiness", threads=1, max_waiting=1)
        self._question: asyncio.Task[bool] | None = None
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Compare PostgreSQL's clock with ours from now on, in a thread: the event loop never waits."""
        self._watching = asyncio.ensure_future(self._watch_clock())

    async def answer(self, *, leaving: bool) -> tuple[Head, bytes]:
        """Return the answer: 200 when both stores answer, or some shards of a Cluster do; else 503, as when leaving.

        `detail` names what people should know of a shop that goes on: a shard that is away, a Redis that is nearly
        full, a wrong clock.
        """
        redis_answers, database_answers = await asyncio.gather(self._redis_answers(), self._database_answers())
        ok = redis_answers and database_answers and not leaving
        told = (
            LEAVES if leaving else "",
            self._shards_away(),
            memory.WATCH.full_servers(self._client),
            clocks.LINE.detail,
            clocks.DATABASE.detail,
        )
        detail = "; ".join(filter(None, told))
        body = {"ok": ok, "stores": {"redis": redis_answers, "database": database_answers}}
        return (READY if ok else NOT_READY), json.dumps(body | ({"detail": detail} if detail else {})).encode()

    async def _redis_answers(self) -> bool:
        """Say whether any server that takes writes answers: of a Cluster one that is away stops its own SKUs only."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await redis.takes_writes_async(self._client)
        except (RedisUnavailable, TimeoutError):
            return False

    def _shards_away(self) -> str:
        away = ", ".join(redis.away(self._client))
        return f"degraded: away are the shards {away} of Redis; their SKUs wait, all others go on" if away else ""

    async def _database_answers(self) -> bool:
        """Ask once at a time: a question that a silent server keeps is the one that all later calls wait for."""
        if self._question is None or self._question.done():
            self._question = asyncio.ensure_future(self._ask_database())
        question = self._question
        await asyncio.wait({question}, timeout=ANSWER_SECONDS)
        return question.done() and question.result()

    async def _watch_clock(self) -> None:
        while True:
            try:
                await self._database_answers()
            except Exception:
                log.exception("clocks not compared", action="clock_unread")
            await asyncio.sleep(CLOCK_SECONDS)

    async def _ask_database(self) -> bool:
        try:
            await self._threads.read(look_at_clock)
        except Unavailable:
            return False
        return True

    def close(self) -> None:
        """Ask no more."""
        for task in (self._watching, self._question):
            if task is not None:
                task.cancel()
