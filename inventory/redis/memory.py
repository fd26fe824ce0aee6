"""Knows whether a server of the line is nearly full: then nobody new is admitted, and what was admitted drains.
The watch never asks a server more often than LOOK_SECONDS, and never stops anything but admission.

Only a server with a maxmemory can be full. The scripts that drain carry the flag allow-oom and also work above it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import structlog

from inventory.exceptions import RedisUnavailable
from inventory.redis import keys
from inventory.redis.client import AsyncClient, Client
from inventory.redis.commands import raise_if_all_failed
from inventory.redis.servers import ask_servers, ask_servers_async, node_of

log = structlog.get_logger(__name__)

# Above this share of maxmemory nobody new is admitted; the rest is for what draining writes.
FULL_SHARE = 0.9
LOOK_SECONDS = 0.5


class Memory(NamedTuple):
    """What a server uses of its maxmemory, in bytes; max_bytes 0: it has no limit."""

    used_bytes: int
    max_bytes: int

    @property
    def nearly_full(self) -> bool:
        """Say whether admission must stop here."""
        return 0 < self.max_bytes * FULL_SHARE <= self.used_bytes

    def __str__(self) -> str:
        return f"{self.used_bytes:,} of {self.max_bytes:,} bytes (maxmemory) are used; nobody new is admitted"


class MemoryWatch:
    """The nearly full servers, as this process last saw them."""

    def __init__(self) -> None:
        self.seen: dict[str, Memory] = {}  # of every server, at the last look
        self._full: dict[str, Memory] = {}
        self._looked_at = float("-inf")

    def is_due(self) -> bool:
        """Say whether the last look is too old, and count this as the next one."""
        now = time.monotonic()
        due = now - self._looked_at >= LOOK_SECONDS
        if due:
            self._looked_at = now
        return due

    def note(self, found: Mapping[str, Memory]) -> None:
        """Take over what the servers said; the log has each change."""
        self.seen = dict(found)
        full = {name: memory for name, memory in found.items() if memory.nearly_full}
        for name in full.keys() - self._full.keys():
            log.error("Redis is nearly full", action="redis_full", node=name, detail=str(full[name]))
        for name in self._full.keys() - full.keys():
            log.warning("Redis has room again", action="redis_roomy", node=name)
        self._full = full

    def full_servers(self, client: Client | AsyncClient, sku: str = "") -> str:
        """Say which servers were nearly full at the last look, only the one of `sku` when it is given; '' for none."""
        if not self._full:
            return ""
        mine = ("", node_of(client, keys.stock(sku))) if sku else self._full
        return "; ".join(f"Redis {name} {self._full[name]}" for name in mine if name in self._full)


WATCH = MemoryWatch()


def memory_of(client: Client) -> dict[str, Memory]:
    """Return what each server that takes writes uses, by its name: '' when there is but one.

    One that is away is left out. Raises RedisUnavailable when all are.
    """
    return _memory(ask_servers(client, "INFO", "memory"))


def _memory(info: dict[str, Any]) -> dict[str, Memory]:
    raise_if_all_failed(list(info.values()))
    # As the server itself counts: what replicas and the log on disk have not read yet is left out.
    return {
        name: Memory(each["used_memory"] - each.get("mem_not_counted_for_evict", 0), each["maxmemory"])
        for name, each in info.items()
        if not isinstance(each, RedisUnavailable)
    }


async def look_async(client: AsyncClient) -> None:
    """Look at every server that takes writes, when it is time. Raises RedisUnavailable."""
    if WATCH.is_due():
        WATCH.note(_memory(await ask_servers_async(client, "INFO", "memory")))


def look(client: Client, sku: str = "") -> str:
    """As look_async, for callers without an event loop; return what full_servers says of `sku`, or of all servers."""
    if WATCH.is_due():
        WATCH.note(memory_of(client))
    return WATCH.full_servers(client, sku)
