"""Knows who follows which request or sale, and looks at those of whom there may be news: all of one SKU in few calls.
Never lets one SKU, one record or the database keep the others from their news and heartbeats.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import structlog

from inventory.exceptions import FairdropError, Unavailable
from shop.gate.sales.cache import Board
from shop.gate.sales.listing import sale_answer
from shop.gate.status import Statuses
from shop.gate.subscriber import MAX_SECONDS, Follower, seen_of, send_sale, send_status

log = structlog.get_logger(__name__)

TICK_SECONDS = 0.25
MIN_PAUSE_SECONDS = 0.1  # news comes in crowds; one look serves all of it
HEARTBEAT_SECONDS = 10.0
# A purchase that comes meanwhile waits behind one call, and behind telling a few of many, never behind all of it.
MAX_PER_CALL = 32
MAX_AT_A_TIME = 4
MAX_SCANNED = 100
# Between a few and the next few whose place merely moved the process rests, and its core is free for a purchase.
REST_SECONDS = 0.004
SCAN_REST_SECONDS = 0.001
# So many of them a round: what is decided meanwhile is in the next one, and told first.
MAX_CALM = 128
# So many SKUs that do not answer are waited for, one after the other; those that did not last time come last.
MAX_SILENT = 2
FORGOTTEN_SECONDS = 1.0  # the line is asked again this much later for a request that it forgot


class Followers:
    """All open streams of one process."""

    def __init__(self, board: Board, statuses: Statuses) -> None:
        self._statuses = statuses
        self._all: set[Follower] = set()
        self._news = asyncio.Event()
        self._silent_since: dict[str, float] = {}  # SKUs that did not answer when they were last asked
        self._task: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        board.watch(lambda _entry: self._news.set())

    def __len__(self) -> int:
        return len(self._all)

    def start(self) -> None:
        """Begin to look, until stop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End looking, and every stream."""
        tasks = [task for task in (self._task, self._reading) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for follower in self._all:
            follower.end()

    def add(self, follower: Follower) -> None:
        self._all.add(follower)

    def discard(self, follower: Follower) -> None:
        self._all.discard(follower)

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._news.wait()
            self._news.clear()
            began = time.monotonic()
            try:
                await self._look()
            except Exception:
                # Whatever it is: the next round looks again, and nobody is told anything that was not read.
                log.exception("unexpected error while looking", action="gate_error")
            await asyncio.sleep(max(0.0, MIN_PAUSE_SECONDS - (time.monotonic() - began)))

    async def _look(self) -> None:
        now = time.monotonic()
        urgent: list[Follower] = []
        calm: list[Follower] = []
        for number, follower in enumerate(list(self._all)):
            if number % MAX_SCANNED == 0:
                await asyncio.sleep(SCAN_REST_SECONDS)
            if now - follower.spoken_at >= HEARTBEAT_SECONDS:
                follower.wake()
            if follower.wants_look(now):
                (urgent if follower.is_urgent() else calm).append(follower)
        await self._look_at_all(urgent, now, rest_seconds=0)
        if len(calm) > MAX_CALM:
            calm.sort(key=self._rank)
            self._news.set()  # the others at once after this round
        await self._look_at_all(calm[:MAX_CALM], now, rest_seconds=REST_SECONDS)

    async def _look_at_all(self, due: Sequence[Follower], now: float, *, rest_seconds: float) -> None:
        by_sku: dict[str, list[Follower]] = {}
        for follower in due:
            by_sku.setdefault(follower.entry.card.sku if follower.request_id else "", []).append(follower)
        await self._look_at_sales(by_sku.pop("", []), now, rest_seconds=rest_seconds)
        silent = 0
        for sku in sorted(by_sku, key=self._silence_of):
            try:
                await self._look_at_sku(sku, by_sku[sku], now, rest_seconds=rest_seconds)
                self._silent_since.pop(sku, None)
            except Unavailable as error:
                log.info("followers not looked at", action="figures_retry", sku=sku, error=repr(error))
                self._silent_since[sku] = time.monotonic()
                silent += 1
                if silent >= MAX_SILENT:
                    return

    def _rank(self, follower: Follower) -> tuple[float, float]:
        return self._silence_of(follower.entry.card.sku) if follower.request_id else 0.0, follower.due

    def _silence_of(self, sku: str) -> float:
        """Return when `sku` did not answer last, in monotonic seconds; 0 when it did since, or that is long ago."""
        since = self._silent_since.get(sku, 0.0)
        return since if time.monotonic() - since < MAX_SECONDS else 0.0

    async def _look_at_sales(self, due: Sequence[Follower], now: float, *, rest_seconds: float) -> None:
        answers: dict[str, dict[str, Any]] = {}
        for number, follower in enumerate(due):
            if number % MAX_AT_A_TIME == 0:
                await asyncio.sleep(rest_seconds)
                answers.clear()  # the board may know more by now
            slug = follower.entry.card.slug
            send_sale(follower, answers.get(slug) or answers.setdefault(slug, sale_answer(follower.entry)), now)

    async def _look_at_sku(self, sku: str, group: Sequence[Follower], now: float, *, rest_seconds: float) -> None:
        for start in range(0, len(group), MAX_PER_CALL):
            await self._look_at(sku, group[start : start + MAX_PER_CALL], now, rest_seconds=rest_seconds)

    async def _look_at(self, sku: str, due: Sequence[Follower], now: float, *, rest_seconds: float) -> None:
        known = [seen_of(each.entry) for each in due]
        places = await self._statuses.places(sku, [each.request_id for each in due])
        forgotten: list[Follower] = []
        for number, (follower, seen, place) in enumerate(zip(due, known, places, strict=True)):
            if number % MAX_AT_A_TIME == 0:
                await asyncio.sleep(rest_seconds)
            if place is None:
                forgotten.append(follower)
                continue
            send_status(follower, self._statuses.answer_of(follower.entry, follower.request_id, place), now, seen=seen)
        self._look_up_soon(forgotten, now)

    def _look_up_soon(self, forgotten: Sequence[Follower], now: float) -> None:
        """Read requests that the line forgot alongside the rounds: nobody's news or heartbeat waits for the database.

        Those of one call at a time; anyone who is not read comes back a moment later.
        """
        for follower in forgotten:
            follower.postpone(now + FORGOTTEN_SECONDS)
        if forgotten and (self._reading is None or self._reading.done()):
            self._reading = asyncio.get_running_loop().create_task(self._look_up_all(forgotten))

    async def _look_up_all(self, forgotten: Sequence[Follower]) -> None:
        for follower in forgotten:
            if follower in self._all and not await self._look_up(follower):
                return

    async def _look_up(self, follower: Follower) -> bool:
        """Read a request that the line forgot; say False when it cannot be read now.

        Nobody knows it: the stream ends, and its reader shows the ticket.
        """
        seen = seen_of(follower.entry)
        try:
            status = await self._statuses.read(follower.request_id, buyer=follower.buyer)
        except Unavailable as error:
            log.info("forgotten requests not read", action="figures_retry", error=repr(error))
            return False
        except FairdropError:
            follower.end()
        except Exception:
            log.exception("unexpected error while looking", action="gate_error", request=follower.request_id)
        else:
            send_status(follower, status, time.monotonic(), seen=seen)
        return True
