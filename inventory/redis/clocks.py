"""Knows by how much the clocks of Redis and PostgreSQL are ahead of this machine's, and tells the time by the line's.
Never sets a clock. A process that compares none goes by its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import structlog

from inventory.exceptions import RedisUnavailable
from inventory.redis.client import AsyncClient, Client
from inventory.redis.commands import raise_if_all_failed
from inventory.redis.servers import ask_servers, ask_servers_async
from inventory.telemetry.families import family, labels

log = structlog.get_logger(__name__)

MAX_SECONDS = 1.0
LOOK_SECONDS = 1.0
# A difference that stays is told again after so long.
AGAIN_SECONDS = 300.0


class ClockWatch:
    """The clock of one store, as this process last saw it. store: its name for people."""

    def __init__(self, store: str) -> None:
        self.ahead_seconds = 0.0
        self._store = store
        self._looked_at = self._told_at = float("-inf")

    def is_due(self) -> bool:
        """Say whether the last look is too old, and count this as the next one."""
        due = time.monotonic() - self._looked_at >= LOOK_SECONDS
        if due:
            self._looked_at = time.monotonic()
        return due

    def note(self, said: float, *, began: float, ended: float) -> None:
        """Take over what the store's clock said in a call; all in seconds since 1970, `began` and `ended` by ours.

        Of all differences that such a call allows, the one nearest to the difference before: a slow call changes
        nothing. The log has what is beyond MAX_SECONDS (L21).
        """
        self.ahead_seconds = min(max(self.ahead_seconds, said - ended), said - began)
        if not self.detail:
            self._told_at = float("-inf")
        elif time.monotonic() - self._told_at >= AGAIN_SECONDS:
            self._told_at = time.monotonic()
            log.warning(
                "clocks differ: holds and openings are off by as much",
                action="clock_differs",
                store=self._store,
                ahead_seconds=round(self.ahead_seconds, 1),
            )

    def now(self) -> datetime:
        """Return the present moment by the store's clock."""
        return datetime.fromtimestamp(time.time() + self.ahead_seconds, UTC)

    @property
    def detail(self) -> str:
        """Say by how much the clocks differ, '' when they agree."""
        if abs(self.ahead_seconds) <= MAX_SECONDS:
            return ""
        return f"the clock of {self._store} is {self.ahead_seconds:+.1f} s from this machine's"


LINE, DATABASE = ClockWatch("Redis"), ClockWatch("PostgreSQL")


def seconds() -> float:
    """Return the seconds since 1970 by the clock of the line, which opens and closes sales."""
    return time.time() + LINE.ahead_seconds


def now() -> datetime:
    """Return the present moment by the clock of the line."""
    return LINE.now()


def time_of(client: Client) -> float:
    """Return what a server's clock says, in seconds since 1970; any one of a Cluster. Raises RedisUnavailable."""
    return _first_seconds(list(ask_servers(client, "TIME").values()))


async def time_of_async(client: AsyncClient) -> float:
    """As time_of, within REDIS_TIMEOUT_SECONDS in all."""
    return _first_seconds(list((await ask_servers_async(client, "TIME")).values()))


def _first_seconds(replies: Sequence[Any]) -> float:
    raise_if_all_failed(replies)
    seconds, microseconds = next(reply for reply in replies if not isinstance(reply, RedisUnavailable))
    return float(int(seconds) + int(microseconds) / 1e6)


def look(client: Client) -> None:
    """Compare the clock of Redis with ours; a Redis that is away is noted in the log."""
    began = time.time()
    try:
        said = time_of(client)
    except RedisUnavailable as error:
        log.info("clocks not compared", action="redis_retry", error=repr(error.__cause__))
        return
    LINE.note(said, began=began, ended=time.time())


async def look_async(client: AsyncClient) -> None:
    """Compare the clock of Redis with ours, when it is time. Raises RedisUnavailable."""
    if LINE.is_due():
        began = time.time()
        LINE.note(await time_of_async(client), began=began, ended=time.time())


def clock_family() -> str:
    """Return by how much the clocks of the stores are ahead of this process's, as it last saw them."""
    watched = (("redis", LINE), ("postgresql", DATABASE))
    ahead = [(labels(store=store), watch.ahead_seconds) for store, watch in watched]
    return family("fairdrop_clock_ahead_seconds", "How far a store's clock is ahead", samples=ahead)
