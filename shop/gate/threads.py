"""Runs the gate's few database reads in threads of their own, so that the event loop never waits for PostgreSQL.
Never lets a database error out, never queues without a bound: the caller sees Unavailable.
Called by the board and the status door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, close_old_connections

from inventory.exceptions import Unavailable

Result = TypeVar("Result")


class ReaderThreads:
    """A few threads for one kind of read. threads: how many; most_waiting: how many reads may be under way or wait."""

    def __init__(self, name: str, *, threads: int, most_waiting: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)
        self._most_waiting = most_waiting
        self._waiting = 0

    async def read(self, call: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """Return what `call` returns. Raises Unavailable when the database is away or too many wait for it."""
        if self._waiting >= self._most_waiting:
            raise Unavailable
        self._waiting += 1
        try:
            work = partial(copy_context().run, partial(_with_good_connection, call, *args, **named))
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Take no more reads; what is under way ends by the database's own timeouts."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _with_good_connection(call: Callable[..., Result], *args: Any, **named: Any) -> Result:
    # Django does this round every request of its own; without it a thread would keep a connection that PostgreSQL
    # closed and fail for ever.
    close_old_connections()
    try:
        return call(*args, **named)
    except (DatabaseError, InterfaceError) as error:
        raise Unavailable from error
    finally:
        close_old_connections()
