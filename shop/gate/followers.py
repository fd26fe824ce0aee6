"""Knows who follows which request or sale, and looks at those of whom there may be news: all of one SKU in few calls.
Never asks the line for one follower alone, never keeps more than the newest message for anyone.
Called by the streams.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import structlog

from inventory.exceptions import FairdropError, Unavailable
from inventory.outcomes import WAITING_STATES
from shop.gate.board import Board
from shop.gate.entries import SaleEntry
from shop.gate.sales import sale_answer
from shop.gate.status import Statuses

log = structlog.get_logger(__name__)

TICK_SECONDS = 0.25
LEAST_PAUSE_SECONDS = 0.1  # news comes in crowds; one look serves all of it
LATEST_SECONDS = 15.0  # everybody is looked at this often, whatever the board says
SALE_SECONDS = 1.0
HEARTBEAT_SECONDS = 10.0
# A purchase that comes meanwhile waits behind one call, and behind telling a few of many, never behind all of it.
MOST_PER_CALL = 32
MOST_AT_A_TIME = 4
MOST_SCANNED = 100
# Between a few and the next few whose place merely moved the process rests, and its core is free for a purchase.
REST_SECONDS = 0.004
SCAN_REST_SECONDS = 0.001
# So many of them a round: who is decided meanwhile is in the next one, and told first.
MOST_CALM = 128
# A place is told this much later than a poll would ask for it; a decision is told at once.
CALMER = 4
LEAST_PLACE_SECONDS = 1.0
MOST_FORGOTTEN = 32  # requests a round that the line forgot: each costs a read of the database
# These differ in every answer and are no news.
CHANGING = frozenset({"server_time", "poll_after_ms", "eta_seconds", "eta_range_seconds"})


def digest_of(value: dict[str, Any]) -> str:
    """Return the name of a state: the same state has the same name, in every process."""
    news = [part for name, part in value.items() if name not in CHANGING]
    return blake2b(repr(news).encode(), digest_size=8).hexdigest()


class Follower:
    """One open stream. name: the state its reader has; '' when it has none."""

    def __init__(self, entry: SaleEntry, *, request_id: str = "", buyer: str = "", name: str = "") -> None:
        self.entry = entry
        self.request_id = request_id
        self.buyer = buyer
        self.name = name
        self.ended = False
        self.spoken_at = time.monotonic()
        self.position = 0
        self._message: bytes | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._switch = (entry.card.switch, entry.card.pause_reason)
        self._changes = -1
        self._decided = 0
        self.due = self._latest = 0.0

    def wants_look(self, now: float) -> bool:
        """Say whether there may be news of it: it is its time and something moved, or its turn may have come."""
        if now >= self._latest or self._is_switched():
            return True
        return self._seen_changes() != self._changes and (now >= self.due or self._may_be_decided())

    def is_urgent(self) -> bool:
        """Say whether there may be more news than another place: its turn may have come, or staff did something."""
        return self._is_switched() or self._may_be_decided()

    def _is_switched(self) -> bool:
        return self._switch != (self.entry.card.switch, self.entry.card.pause_reason)

    def _may_be_decided(self) -> bool:
        # Who stands at place n is decided after n decisions at the earliest.
        decided = self.entry.figures.decided if self.entry.figures is not None else 0
        return decided - self._decided >= self.position > 0

    def _seen_changes(self) -> int:
        return self.entry.moves if self.request_id else self.entry.changes

    def looked(self, now: float, *, pause_seconds: float) -> None:
        """Remember what is known now, and when it is looked at again."""
        entry = self.entry
        self._switch = (entry.card.switch, entry.card.pause_reason)
        self._changes = self._seen_changes()
        self._decided = entry.figures.decided if entry.figures is not None else 0
        self.due, self._latest = now + pause_seconds, now + max(pause_seconds, LATEST_SECONDS)

    def put(self, value: dict[str, Any], *, ends: bool) -> None:
        """Leave a message when `value` is news; it takes the place of one that was not sent yet."""
        name = digest_of(value)
        if name != self.name:
            self.name = name
            self._message = f"id: {name}\ndata: {json.dumps(value)}\n\n".encode()
        if ends:
            self.ended = True
        if ends or self._message is not None:
            self.wake()

    def end(self) -> None:
        """Let the stream end; its reader asks anew."""
        self.ended = True
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self) -> bytes | None:
        """Return the newest message, once."""
        message, self._message = self._message, None
        return message

    async def wait(self) -> None:
        """Return when there is something to do: a message, the end, or a heartbeat."""
        if self._message is None and not self.ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None


class Followers:
    """All open streams of one process."""

    def __init__(self, board: Board, statuses: Statuses) -> None:
        self._board = board
        self._statuses = statuses
        self._all: set[Follower] = set()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        board.watch(lambda _entry: self._news.set())

    def __len__(self) -> int:
        return len(self._all)

    def start(self) -> None:
        """Begin to look, until stop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End looking, and every stream."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
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
            except Unavailable as error:
                log.info("followers not looked at", action="figures_retry", error=repr(error))
            except Exception:
                # Whatever it is: the next round looks again, and nobody is told anything that was not read.
                log.exception("unexpected error while looking", action="gate_error")
            await asyncio.sleep(max(0.0, LEAST_PAUSE_SECONDS - (time.monotonic() - began)))

    async def _look(self) -> None:
        now = time.monotonic()
        urgent: list[Follower] = []
        calm: list[Follower] = []
        for number, follower in enumerate(list(self._all)):
            if number % MOST_SCANNED == 0:
                await asyncio.sleep(SCAN_REST_SECONDS)
            if now - follower.spoken_at >= HEARTBEAT_SECONDS:
                follower.wake()
            if follower.wants_look(now):
                (urgent if follower.is_urgent() else calm).append(follower)
        await self._look_at_all(urgent, now, rest_seconds=0)
        if len(calm) > MOST_CALM:
            calm.sort(key=lambda follower: follower.due)
            self._news.set()  # the others at once after this round
        await self._look_at_all(calm[:MOST_CALM], now, rest_seconds=REST_SECONDS)

    async def _look_at_all(self, due: Sequence[Follower], now: float, *, rest_seconds: float) -> None:
        by_sku: dict[str, list[Follower]] = {}
        for follower in due:
            by_sku.setdefault(follower.entry.card.sku if follower.request_id else "", []).append(follower)
        await self._look_at_sales(by_sku.pop("", []), now, rest_seconds=rest_seconds)
        for sku, group in by_sku.items():
            for start in range(0, len(group), MOST_PER_CALL):
                await self._look_at(sku, group[start : start + MOST_PER_CALL], now, rest_seconds=rest_seconds)

    async def _look_at_sales(self, due: Sequence[Follower], now: float, *, rest_seconds: float) -> None:
        answers: dict[str, dict[str, Any]] = {}
        for number, follower in enumerate(due):
            if number % MOST_AT_A_TIME == 0:
                await asyncio.sleep(rest_seconds)
            slug = follower.entry.card.slug
            tell_sale(follower, answers.get(slug) or answers.setdefault(slug, sale_answer(follower.entry)), now)

    async def _look_at(self, sku: str, due: Sequence[Follower], now: float, *, rest_seconds: float) -> None:
        places = await self._statuses.places(sku, [each.request_id for each in due])
        forgotten: list[Follower] = []
        for number, (follower, place) in enumerate(zip(due, places, strict=True)):
            if number % MOST_AT_A_TIME == 0:
                await asyncio.sleep(rest_seconds)
            if place is None:
                forgotten.append(follower)
                continue
            self.tell(follower, self._statuses.answer_of(follower.entry, follower.request_id, place), now)
        for follower in forgotten[:MOST_FORGOTTEN]:
            await self._look_up(follower, now)

    async def _look_up(self, follower: Follower, now: float) -> None:
        """Read a request that the line forgot. Nobody knows it: the stream ends, and its reader shows the ticket."""
        try:
            self.tell(follower, await self._statuses.read(follower.request_id, buyer=follower.buyer), now)
        except Unavailable:
            return  # the next round
        except FairdropError:
            follower.end()

    def tell(self, follower: Follower, status: dict[str, Any], now: float) -> None:
        """Tell a follower where its request stands."""
        follower.position = status["position"] or 0
        pause = max(LEAST_PLACE_SECONDS, CALMER * status["poll_after_ms"] / 1000)
        follower.looked(now, pause_seconds=pause)
        follower.put(status, ends=status["state"] not in WAITING_STATES)


def tell_sale(follower: Follower, answer: dict[str, Any], now: float) -> None:
    """Tell one who follows a sale what the board knows of it."""
    follower.looked(now, pause_seconds=SALE_SECONDS)
    follower.put(answer, ends=answer["state"] == "closed")
