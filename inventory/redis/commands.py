"""Sends commands, many of them in one round trip a server; of a Cluster each goes to the shard that has its key.
Never waits for a shard that is known to be away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from inventory.exceptions import RedisUnavailable
from inventory.redis.client import (
    AWAY,
    FAILURES,
    REDIRECTS,
    Argument,
    AsyncClient,
    Client,
    ReadOnlyError,
    shards_of,
    unavailable,
)
from inventory.redis.connections import send
from inventory.telemetry.measures import note_store_errors


def client_for(client: Any, key: str) -> Any:
    """Return the client to ask for `key`: of a Cluster that of its shard. Raises RedisUnavailable when that is away."""
    shards = shards_of(client)
    if shards is None:
        return client
    try:
        return shards.client_of(shards.topology.shard_of(key))
    except RedisUnavailable:
        # Nobody was asked, because the one to ask is known to be away: it has not answered all the same.
        note_store_errors("redis", shards.topology.owner_of(key))
        raise


def send_to(client: Client, own: Client, command: Sequence[Argument]) -> Any:
    """Send one command to the client `own` of its shard, or to whom that names. May raise any of FAILURES."""
    try:
        return send(own, command)
    except REDIRECTS:
        if (shards := shards_of(client)) is None:  # a server of a Cluster that the settings take for the only one
            raise
        shards.topology.watch()
        return client.execute_command(*command)


async def send_to_async(client: AsyncClient, own: AsyncClient, command: Sequence[Argument]) -> Any:
    """As send_to."""
    try:
        return await own.execute_command(*command)
    except REDIRECTS:
        if (shards := shards_of(client)) is None:
            raise
        shards.topology.watch()
        return await client.execute_command(*command)


def key_of(command: Sequence[Argument]) -> str:
    """Return the first key of a command, '' when it has none."""
    place = 3 if command[0] in ("EVAL", "EVALSHA") else 1
    return str(command[place]) if len(command) > place else ""


def run_commands(client: Client, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    """Send plain commands in one round trip a shard and return their replies. Raises RedisUnavailable."""
    if shards_of(client) is None:
        return _run_here(client, client, commands)
    replies: list[Any] = [None] * len(commands)
    for numbers in by_shard(client, [[each] for each in commands]):
        mine = [commands[number] for number in numbers]
        for number, reply in zip(numbers, _run_here(client, client_for(client, key_of(mine[0])), mine), strict=True):
            replies[number] = reply
    return replies


def _run_here(client: Client, own: Client, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    try:
        if own is client:
            return list(_pipeline(own, commands).execute())
        replies = send_all(client, own, commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
    except FAILURES as error:
        raise unavailable(error, client, own, key=key_of(commands[0])) from error
    return replies


def send_all(client: Client, own: Client, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    """Send commands to one server in one round trip, and those again that it did not do because a slot has moved.

    An error that a command met by itself is in the place of its reply. May raise any of FAILURES.
    """
    replies = list(_pipeline(own, commands).execute(raise_on_error=False))
    if any(isinstance(reply, ReadOnlyError) for reply in replies):  # the library reconnects only where it raises it
        own.connection_pool.disconnect(inuse_connections=False)
    for number, reply in enumerate(replies):
        if isinstance(reply, REDIRECTS):
            try:
                replies[number] = send_to(client, own, commands[number])
            except FAILURES as error:
                replies[number] = error
    return replies


def by_shard(client: Client | AsyncClient, groups: Sequence[Sequence[Sequence[Argument]]]) -> list[list[int]]:
    """Return the numbers of those groups of commands that go to one server together, for each of a Cluster.

    What goes to a server that is away is by itself.
    """
    shards = shards_of(client)
    if shards is None:
        return [list(range(len(groups)))] if groups else []
    found: dict[str, list[int]] = {}
    for number, group in enumerate(groups):
        try:
            name = shards.topology.shard_of(key_of(group[0]))
        except RedisUnavailable:
            name = f"away {number}"
        found.setdefault(name, []).append(number)
    return list(found.values())


async def run_commands_async(client: AsyncClient, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    """Send plain commands, all for one SKU, in one round trip, within REDIS_TIMEOUT_SECONDS in all.

    Raises RedisUnavailable.
    """
    if not commands:
        return []
    key = key_of(commands[0])
    own = client_for(client, key)
    try:
        async with asyncio.timeout(settings.REDIS_TIMEOUT_SECONDS):
            try:
                return list(await _pipeline(own, commands).execute())
            except REDIRECTS:
                return [await send_to_async(client, own, command) for command in commands]
    except FAILURES as error:
        raise unavailable(error, client, own, key=key) from error


async def run_groups_async(
    client: AsyncClient, groups: Sequence[Sequence[Sequence[Argument]]]
) -> list[list[Any] | RedisUnavailable]:
    """Send groups of commands, each for one SKU, in one round trip a shard; return the replies of each group.

    A group that failed, or whose shard is away, has a RedisUnavailable in its place. Raises it when all of them have.
    """
    found: list[list[Any] | RedisUnavailable] = [RedisUnavailable() for _ in groups]

    async def run(numbers: Sequence[int]) -> None:
        try:
            flat = iter(await run_commands_async(client, [each for number in numbers for each in groups[number]]))
        except RedisUnavailable as error:
            half = len(numbers) // 2
            if half and not isinstance(error.__cause__, AWAY):  # one of them is at fault: find it, and read the others
                await run(numbers[:half])
                await run(numbers[half:])
                return
            for number in numbers:
                found[number] = error
        else:
            for number in numbers:
                found[number] = [next(flat) for _ in groups[number]]

    await asyncio.gather(*map(run, by_shard(client, groups)))
    raise_if_all_failed(found)
    return found


def raise_if_all_failed(replies: Sequence[Any]) -> None:
    """Raise the first of `replies` when each of them is a RedisUnavailable."""
    if replies and all(isinstance(reply, RedisUnavailable) for reply in replies):
        raise replies[0]


def _pipeline(client: Client | AsyncClient, commands: Sequence[Sequence[Argument]]) -> Any:
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return pipeline


def as_dict(reply: Any) -> dict[str, Any]:
    """Return a reply of names and values as a dict: inside a pipeline the library may hand it over as a flat list."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
