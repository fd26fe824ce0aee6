"""Runs the gate's few database reads in threads, so that the event loop never waits for PostgreSQL.
Never lets a database error out: the caller sees Unavailable. Called by the board and the status door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, close_old_connections

from inventory.exceptions import Unavailable

Result = TypeVar("Result")


async def read_in_thread(read: Callable[..., Result], *args: Any, **named: Any) -> Result:
    """Return what `read` returns. Raises Unavailable when the database is away, and what `read` raises otherwise."""
    return await asyncio.to_thread(_with_good_connection, read, *args, **named)


def _with_good_connection(read: Callable[..., Result], *args: Any, **named: Any) -> Result:
    # Django does this round every request of its own; without it a thread would keep a connection that PostgreSQL
    # closed and fail for ever.
    close_old_connections()
    try:
        return read(*args, **named)
    except (DatabaseError, InterfaceError) as error:
        raise Unavailable from error
    finally:
        close_old_connections()
