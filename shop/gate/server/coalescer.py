"""Sends what many callers ask in the same instant as one call, one call in flight at a time.
Bounded; never waits silently: anyone who asked is told a reply or an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

from inventory.exceptions import FairdropError, Unavailable

Item = TypeVar("Item")
Reply = TypeVar("Reply")


class Coalescer(Generic[Item, Reply]):
    """call: takes up to `max_per_call` items and returns a reply for each, in order.

    deliver: gets each item with its reply, or with the error that came instead; it must not wait.
    max_waiting: how many may wait; the next one is refused at once.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Item]], Awaitable[Sequence[Reply]]],
        deliver: Callable[[Item, Reply | FairdropError], None],
        *,
        max_per_call: int,
        max_waiting: int,
    ) -> None:
        self._call = call
        self._deliver = deliver
        self._max_per_call = max_per_call
        self._max_waiting = max_waiting
        self._waiting: list[Item] = []
        self._runner: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def is_full(self) -> bool:
        """Say whether the next item would be refused."""
        return len(self._waiting) >= self._max_waiting

    def submit(self, item: Item) -> None:
        """Send `item` with the next call. Raises Unavailable if full."""
        if len(self._waiting) >= self._max_waiting:
            raise Unavailable("Too many are asking in this instant; your place, if you have one, is kept.")
        self._waiting.append(item)
        if self._runner is None:
            # What is logged of a batch belongs to no single call: not to the one that began it.
            self._runner = self._loop.create_task(self._run(), context=Context())

    async def finish(self) -> None:
        """Return when nobody waits any more."""
        while self._runner is not None:
            await asyncio.wait([self._runner])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._max_per_call]
                del self._waiting[: self._max_per_call]
                await self._answer(batch)
        finally:
            self._runner = None

    async def _answer(self, batch: Sequence[Item]) -> None:
        try:
            replies = await self._call(batch)
            if len(replies) != len(batch):
                raise RuntimeError(f"{len(replies)} replies to {len(batch)} items")
        except FairdropError as error:
            # Those who wait for the next call have waited as long as this one took: all are told now.
            waiting, self._waiting = self._waiting, []
            self._deliver_all([*batch, *waiting], error)
        except BaseException as error:
            self._deliver_all(batch, Unavailable())
            if not isinstance(error, Exception):
                raise
            self._report(error)
        else:
            for item, reply in zip(batch, replies, strict=True):
                try:
                    self._deliver(item, reply)
                except Exception as error:
                    self._deliver_all([item], Unavailable())
                    self._report(error)

    def _deliver_all(self, batch: Sequence[Item], error: FairdropError) -> None:
        for item in batch:
            try:
                self._deliver(item, error)
            except Exception as mistake:
                self._report(mistake)

    def _report(self, error: Exception) -> None:
        self._loop.call_exception_handler({"message": "coalesced call failed", "exception": error})
