"""Lends single connections of a client: for one command, or for as long as a caller waits at a list.
Never opens a client, and repeats a command only as its client was told to.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from hiredis import pack_command

# How much later than the server's own end of a wait its word of it may come.
WAY_SECONDS = 0.1


# What is ready is no longer the pool's to lend: it must leave room below the pool's limit for pipelines and waits.
MAX_READY = 8
# Connections that wait for the next command, by the pool they were taken from and keep belonging to.
_READY: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()


def send(client: Any, command: Sequence[str | bytes | int | float]) -> Any:
    """Send one command with the client's own retries and return its reply. May raise any of redis.FAILURES.

    The library's own way costs 20 µs more a command, most of it for telemetry that nobody reads.
    """
    pool = getattr(client, "connection_pool", None)
    if pool is None or client.connection is not None:  # a Cluster, or a client bound to one connection
        return client.execute_command(*command)
    ready = _READY.get(pool)
    connection = _lend(pool, ready)
    packed_parts = (pack_command(tuple(command)),)  # type: ignore[arg-type]  # its stub means a tuple of one

    def try_once() -> Any:
        connection.send_packed_command(packed_parts)
        return connection.read_response()

    try:
        return connection.retry.call_with_retry(try_once, lambda _error: connection.disconnect())
    finally:
        _take_back(pool, ready, connection)


def keep_ready(client: Any) -> None:
    """Keep the connections of a client of one server: the pool, which has telemetry too, is asked for new ones only."""
    _READY[client.connection_pool] = []


def _lend(pool: Any, ready: list[Any] | None) -> Any:
    """Return a connection on which nothing is under way; ready: of the pool, None when it keeps none."""
    if not ready:
        return pool.get_connection()
    try:
        connection = ready.pop()
    except IndexError:  # another thread was faster
        return pool.get_connection()
    if not connection.is_connected:
        return connection  # it connects with the next command; to look into it would connect too, and wait twice
    try:
        fit = not connection.can_read()  # nobody asked anything: a word, or an end, is none for us
    except Exception:
        fit = False
    if not fit:
        connection.disconnect()  # it connects again with the next command
    return connection


def _take_back(pool: Any, ready: list[Any] | None, connection: Any) -> None:
    if ready is None or len(ready) >= MAX_READY:
        pool.release(connection)
    else:
        ready.append(connection)


def _forget_all() -> None:
    """Start afresh in a forked child: it must not speak on its parent's connections (L7)."""
    for ready in _READY.values():
        ready.clear()


os.register_at_fork(after_in_child=_forget_all)


class WaitingPlace:
    """A caller's place among those who wait at a list: kept from its first wait until an element came, or leave().

    The server serves its waiting connections in the order they came. So a caller that looks up now and then keeps
    its connection waiting meanwhile; who gives it up and comes back stands at the end.
    """

    def __init__(self) -> None:
        self._pool: Any = None
        self._connection: Any = None
        self._ends_at = 0.0

    def wait(self, client: Any, key: str, *, seconds: float, block_seconds: float) -> str | None:
        """Wait up to `seconds` for an element of the list `key` and take it; None when none came.

        The place itself ends on the server after `block_seconds`, counted from its first wait. May raise any of
        redis.FAILURES; the place is then left.
        """
        try:
            if self._connection is None:
                self._pool = client.connection_pool
                self._connection = _lend(self._pool, _READY.get(self._pool))
                self._ends_at = time.monotonic() + block_seconds
                self._connection.send_command("BLPOP", key, f"{block_seconds:.3f}")
            left = max(0.0, self._ends_at - time.monotonic())
            if left < seconds + WAY_SECONDS:
                # The server ends the wait itself: to end it first would lose an element that is under way.
                seconds = left + WAY_SECONDS
            if not self._connection.can_read(timeout=seconds):
                return None
            popped = self._connection.read_response()
        except BaseException:
            self.leave()
            raise
        connection, self._connection = self._connection, None
        _take_back(self._pool, _READY.get(self._pool), connection)
        return None if popped is None else str(popped[1])

    def leave(self) -> None:
        """Wait no more. The connection is cut: the server must not hand an element to nobody."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
            self._pool.release(connection)
