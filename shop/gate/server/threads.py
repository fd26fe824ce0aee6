"""Runs what waits for PostgreSQL, or takes long, in threads, so that the event loop never waits for it.
Never queues without a bound, and never begins what nobody waits for any more: the caller sees Unavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from django.db import DatabaseError, InterfaceError, close_old_connections

from inventory.exceptions import Unavailable
from inventory.telemetry.measures import note_store_errors

Result = TypeVar("Result")
# The threads of every pool of this process that is in use.
_POOLS: WeakSet[ThreadPoolExecutor] = WeakSet()


class ThreadPool:
    """A few threads for one kind of work. threads: how many; max_waiting: how many calls may be under way or wait."""

    def __init__(self, name: str, *, threads: int, max_waiting: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)
        _POOLS.add(self._pool)
        self._free = asyncio.Semaphore(threads)
        self._max_waiting = max_waiting
        self._waiting = 0

    @property
    def is_full(self) -> bool:
        """Say whether the next call would be refused."""
        return self._waiting >= self._max_waiting

    async def run(self, call: Callable[[], Result], *, left: asyncio.Future[Any] | None = None) -> Result:
        """Return what `call` returns. left: is done when nobody waits for it; a call that began goes on all the same.

        Raises Unavailable when too many wait, or when `left` was done before the call could begin.
        """
        if self.is_full:
            raise Unavailable
        self._waiting += 1
        try:
            if self._free.locked():
                await self._wait(left)
            else:
                await self._free.acquire()  # at once
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, partial(copy_context().run, call))
            finally:
                self._free.release()
        finally:
            self._waiting -= 1

    async def _wait(self, left: asyncio.Future[Any] | None) -> None:
        turn = asyncio.ensure_future(self._free.acquire())
        if left is not None:
            left.add_done_callback(lambda _left: turn.cancel())
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free.release()  # our turn came in the moment in which we were cancelled
            if left is not None and left.done():
                raise Unavailable from None
            raise

    async def read(self, call: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """Return what `call` reads. Raises Unavailable when the database is away or too many wait for it."""
        return await self.run(partial(_with_good_connection, call, *args, **named))


def close_pools() -> None:
    """Begin no more calls in this process; what is under way ends by the database's own timeouts."""
    for pool in _POOLS:
        pool.shutdown(wait=False, cancel_futures=True)


def _with_good_connection(call: Callable[..., Result], *args: Any, **named: Any) -> Result:
    # Django does this round every request of its own; without it a thread would keep a connection that PostgreSQL
    # closed and fail for ever.
    close_old_connections()
    try:
        return call(*args, **named)
    except (DatabaseError, InterfaceError) as error:
        note_store_errors("postgresql")
        raise Unavailable from error
    finally:
        close_old_connections()
