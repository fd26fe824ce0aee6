"""Asks every server that takes writes, and names the one that has a key. Never waits for one known to be away."""

from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings

from inventory.exceptions import RedisUnavailable
from inventory.redis.client import FAILURES, AsyncClient, Client, shards_of, unavailable
from inventory.redis.commands import raise_if_all_failed


def ask_servers(client: Client, *command: str) -> dict[str, Any]:
    """As ask_servers_async, for callers without an event loop: one after the other."""
    return {name: _ask(client, name, *command) for name in _servers(client)}


async def ask_servers_async(client: AsyncClient, *command: str) -> dict[str, Any]:
    """Return the reply of every server that takes writes to a command without a key, by its name.

    One that is away has a RedisUnavailable in its place. Raises RedisUnavailable when no server is known.
    """
    names = _servers(client)
    replies = await asyncio.gather(*(_ask_async(client, name, *command) for name in names))
    return dict(zip(names, replies, strict=True))


async def takes_writes_async(client: AsyncClient) -> bool:
    """Say whether any server is a primary; where the only one is none, ask what its address leads to the next time.

    Raises RedisUnavailable when none answers.
    """
    replies = list((await ask_servers_async(client, "INFO", "replication")).values())
    raise_if_all_failed(replies)
    if any(not isinstance(reply, RedisUnavailable) and reply["role"] == "master" for reply in replies):
        return True
    if shards_of(client) is None:
        await client.connection_pool.disconnect(inuse_connections=False)
    return False


def node_of(client: Client | AsyncClient, key: str) -> str:
    """Return the name of the server of a Cluster that has `key`, '' where there is but one server, or it is away."""
    shards = shards_of(client)
    if shards is None:
        return ""
    try:
        return shards.topology.shard_of(key)
    except RedisUnavailable:
        return ""


def _servers(client: Client | AsyncClient) -> list[str]:
    """Return the names of those that take writes, '' for the one there is. Raises RedisUnavailable."""
    shards = shards_of(client)
    return shards.topology.shards() if shards else [""]


def _server(client: Any, name: str) -> Any:
    """Return whom to ask for the server `name`. Raises RedisUnavailable when it is away."""
    shards = shards_of(client)
    if shards is None:
        return client
    if shards.topology.is_away(name):
        raise RedisUnavailable
    return shards.client_of(name)


def _ask(client: Client, name: str, *command: str) -> Any:
    """Return the reply of one server, or the RedisUnavailable in its place."""
    own = None
    try:
        own = _server(client, name)
        return own.execute_command(*command)
    except RedisUnavailable as error:
        return error
    except FAILURES as error:
        return unavailable(error, client, own)


async def _ask_async(client: AsyncClient, name: str, *command: str) -> Any:
    own = None
    try:
        async with asyncio.timeout(settings.REDIS_TIMEOUT_SECONDS):
            own = _server(client, name)
            return await own.execute_command(*command)
    except RedisUnavailable as error:
        return error
    except FAILURES as error:
        return unavailable(error, client, own)
