"""The one door to Redis: opens clients, loads scripts/*.lua by name, turns Redis errors into ours.
Never decides anything. Called by the rest of inventory; no other file imports the redis package.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import redis
import redis.asyncio
from django.conf import settings
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisClusterException, RedisError
from redis.retry import Retry

from inventory.exceptions import RedisUnavailable

SCRIPTS = Path(__file__).parent / "scripts"
# Set here, not left to the library: the shape of replies depends on it (ecosystem §0.3).
PROTOCOL = 2

# The library leaves half of its methods untyped; what passes through here is checked where it is used.
Client: TypeAlias = Any
AsyncClient: TypeAlias = Any
AsyncSubscription: TypeAlias = Any
Argument: TypeAlias = str | bytes | int | float
FAILURES = (RedisError, RedisClusterException, OSError, asyncio.TimeoutError)


def connect(*, timeout_seconds: float | None = None) -> Client:
    """Return this process's client; every socket of it times out after `timeout_seconds` (default: the setting).

    Commands whose connection broke are sent again twice, so only idempotent scripts may write through it (pitfall L1).
    One that timed out is not: behind a silent server the caller would wait three times as long as it was promised.
    """
    return _client(settings.REDIS_URL, timeout_seconds or settings.REDIS_TIMEOUT_SECONDS, os.getpid())


@lru_cache(maxsize=8)
def _client(url: str, timeout_seconds: float, _process_id: int) -> Client:
    # The process id is part of the key so that a fork never shares its parent's sockets (pitfall L7).
    return redis.Redis.from_url(
        url,
        protocol=PROTOCOL,
        decode_responses=True,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=timeout_seconds,
        retry=Retry(ExponentialBackoff(cap=0.2, base=0.02), 2, supported_errors=(RedisConnectionError,)),
    )


def connect_async(*, timeout_seconds: float | None = None) -> AsyncClient:
    """Return a new client for the running event loop; its owner closes it."""
    timeout = timeout_seconds or settings.REDIS_TIMEOUT_SECONDS
    return redis.asyncio.Redis.from_url(
        settings.REDIS_URL,
        protocol=PROTOCOL,
        decode_responses=True,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=AsyncRetry(NoBackoff(), 1),
    )


@cache
def script_text(name: str) -> str:
    """Return the text of scripts/`name`.lua."""
    return (SCRIPTS / f"{name}.lua").read_text()


@cache
def script_digest(name: str) -> str:
    """Return the digest under which Redis knows scripts/`name`.lua."""
    return hashlib.sha1(script_text(name).encode(), usedforsecurity=False).hexdigest()


def run_script(client: Client, name: str, *, keys: Sequence[str], args: Sequence[Argument]) -> Any:
    """Run scripts/`name`.lua and return its reply as Redis gives it. Raises RedisUnavailable."""
    command = ("EVALSHA", script_digest(name), len(keys), *keys, *args)
    try:
        try:
            return client.execute_command(*command)
        except NoScriptError:
            client.script_load(script_text(name))
            return client.execute_command(*command)
    except FAILURES as error:
        raise RedisUnavailable from error


async def run_script_async(
    client: AsyncClient, name: str, *, keys: Sequence[str], args: Sequence[Argument], timeout_seconds: float
) -> Any:
    """As run_script, within `timeout_seconds` in all. Raises RedisUnavailable."""
    command = ("EVALSHA", script_digest(name), len(keys), *keys, *args)
    try:
        async with asyncio.timeout(timeout_seconds):
            try:
                return await client.execute_command(*command)
            except NoScriptError:
                await client.script_load(script_text(name))
                return await client.execute_command(*command)
    except FAILURES as error:
        raise RedisUnavailable from error


def run_commands(client: Client, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    """Send plain commands, all for one SKU, in one round trip and return their replies. Raises RedisUnavailable."""
    try:
        pipeline = client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return list(pipeline.execute())
    except FAILURES as error:
        raise RedisUnavailable from error


async def run_commands_async(
    client: AsyncClient, commands: Sequence[Sequence[Argument]], *, timeout_seconds: float
) -> list[Any]:
    """As run_commands, within `timeout_seconds` in all. Raises RedisUnavailable."""
    try:
        async with asyncio.timeout(timeout_seconds):
            pipeline = client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return list(await pipeline.execute())
    except FAILURES as error:
        raise RedisUnavailable from error


def run_scripts(client: Client, calls: Sequence[tuple[str, Sequence[str], Sequence[Argument]]]) -> list[Any]:
    """Run several scripts (name, keys, args), all for one SKU, in one round trip. Raises RedisUnavailable.

    The texts are sent, not their digests: with digests, a Redis that has forgotten the first script (a restart) would
    refuse it and still run the second, which relies on it.
    """
    commands = [("EVAL", script_text(name), len(keys), *keys, *args) for name, keys, args in calls]
    return run_commands(client, commands)


async def close_async(client: AsyncClient) -> None:
    """Close a client that connect_async made."""
    await client.aclose()
