"""Sends what many callers ask in the same instant as one call, one call in flight at a time.
Bounded; never waits silently.
Called by the gate's handlers: one coalescer a sale for admissions, one a SKU for places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from inventory.exceptions import FairdropError, Unavailable

Item = TypeVar("Item")
Reply = TypeVar("Reply")


class Coalescer(Generic[Item, Reply]):
    """call: takes up to `most_per_call` items and returns a reply for each, in order.

    most_waiting: how many may wait; the next one is refused at once.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Item]], Awaitable[Sequence[Reply]]],
        *,
        most_per_call: int,
        most_waiting: int,
    ) -> None:
        self._call = call
        self._most_per_call = most_per_call
        self._most_waiting = most_waiting
        self._waiting: list[tuple[Item, asyncio.Future[Reply]]] = []
        self._runner: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def submit(self, item: Item) -> asyncio.Future[Reply]:
        """Return the future reply to `item`; it fails with Unavailable when the call does.
        Raises Unavailable if full.
        """
        if len(self._waiting) >= self._most_waiting:
            raise Unavailable("Too many are asking in this instant; your place, if you have one, is kept.")
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting.append((item, future))
        if self._runner is None:
            self._runner = self._loop.create_task(self._run())
        return future

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._most_per_call]
                del self._waiting[: self._most_per_call]
                await self._answer(batch)
        finally:
            self._runner = None

    async def _answer(self, batch: Sequence[tuple[Item, asyncio.Future[Reply]]]) -> None:
        try:
            replies = await self._call([item for item, _ in batch])
            if len(replies) != len(batch):
                raise RuntimeError(f"{len(replies)} replies to {len(batch)} items")
        except FairdropError as error:
            # Whoever waits behind a failed call has waited as long as it took: all are told now, none waits on.
            behind, self._waiting = self._waiting, []
            self._fail([*batch, *behind], error)
        except BaseException as error:
            self._fail(batch, Unavailable())
            if not isinstance(error, Exception):
                raise
            self._loop.call_exception_handler({"message": "coalesced call failed", "exception": error})
        else:
            for (_, future), reply in zip(batch, replies, strict=True):
                if not future.done():
                    future.set_result(reply)

    def _fail(self, batch: Sequence[tuple[Item, asyncio.Future[Reply]]], error: FairdropError) -> None:
        for _, future in batch:
            if not future.done():
                future.set_exception(error)
