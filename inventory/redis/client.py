"""The one door to Redis: opens clients, loads the files of scripts/ by name, turns Redis errors into ours.
Never decides anything. No other file imports the redis package.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
from django.conf import settings
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisClusterException, RedisError
from redis.retry import Retry

from inventory.exceptions import RedisUnavailable
from inventory.redis.address import read_address
from inventory.redis.connections import WaitingPlace as WaitingPlace  # locks keep one
from inventory.redis.connections import keep_ready, send

SCRIPTS = Path(__file__).parents[1] / "scripts"
# A line of a script in whose place a function stands that several scripts have.
SHARED = re.compile(r"^-- Shared: (\w+)\n", re.MULTILINE)
# Set here, not left to the library: the shape of replies depends on it.
PROTOCOL = 2

# The library leaves half of its methods untyped; what passes through here is checked where it is used.
Client: TypeAlias = Any
AsyncClient: TypeAlias = Any
AsyncSubscription: TypeAlias = Any
Argument: TypeAlias = str | bytes | int | float
# How each client of connect() was opened, so that another of the same servers can be.
_OPENED: WeakKeyDictionary[Client, tuple[str, float]] = WeakKeyDictionary()
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
    retry = Retry(ExponentialBackoff(cap=0.2, base=0.02), 2, supported_errors=(RedisConnectionError,))
    return _open_sync(url, timeout_seconds=timeout_seconds, retry=retry)


def _open_sync(url: str, *, timeout_seconds: float, retry: Retry) -> Client:
    try:
        client = _open(redis, url, timeout_seconds=timeout_seconds, retry=retry)
    except FAILURES as error:  # of the three kinds only a Cluster is asked at once
        raise RedisUnavailable from error
    _OPENED[client] = (url, timeout_seconds)
    return client


class _WatchedConnection(redis.sentinel.SentinelManagedConnection):
    """A connection to the primary that is given up after an error, as every other kind is.

    The library's own keeps it: after a timeout the next command would be given the reply of the one before.
    """

    def read_response(self, *args: Any, disconnect_on_error: bool | None = True, **options: Any) -> Any:
        return super().read_response(*args, disconnect_on_error=disconnect_on_error, **options)


class _WatchedTLSConnection(_WatchedConnection, redis.sentinel.SentinelManagedSSLConnection):
    """The same with TLS."""


def _open(library: Any, url: str, *, timeout_seconds: float, retry: Any) -> Any:
    """Return a client of one server, of the primary that Sentinel names, or of a Cluster; library: sync or async."""
    options = {
        "protocol": PROTOCOL,
        "decode_responses": True,
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
    }
    address = read_address(url)
    if address is None:
        client = library.Redis.from_url(url, retry=retry, **options)
        if library is redis:
            keep_ready(client)
        return client
    if address.tls:
        options["ssl"] = True
    login = {"username": address.username, "password": address.password, "retry": retry, **options}
    if address.service:
        ask = {**options, "password": address.sentinel_password}
        sentinel = library.sentinel.Sentinel(address.nodes, sentinel_kwargs=ask)
        if library is redis:
            login["connection_class"] = _WatchedTLSConnection if address.tls else _WatchedConnection
        return sentinel.master_for(address.service, db=address.database, **login)
    nodes = [library.cluster.ClusterNode(host, port) for host, port in address.nodes]
    return library.RedisCluster(startup_nodes=nodes, **login)


def connect_async(*, timeout_seconds: float | None = None) -> AsyncClient:
    """Return a new client for the running event loop; its owner closes it."""
    timeout = timeout_seconds or settings.REDIS_TIMEOUT_SECONDS
    return _open(redis.asyncio, settings.REDIS_URL, timeout_seconds=timeout, retry=AsyncRetry(NoBackoff(), 1))


@cache
def _script_paths() -> dict[str, Path]:
    """Return every script by its name, which no other folder of scripts/ has."""
    return {path.stem: path for path in SCRIPTS.rglob("*.lua") if path.parent.name != "shared"}


def script_names() -> list[str]:
    """Return the name of every script."""
    return list(_script_paths())


@cache
def script_text(name: str) -> str:
    """Return the text of the script `name`, with the files of scripts/shared that it names put in."""
    text = _script_paths()[name].read_text()
    return SHARED.sub(lambda found: (SCRIPTS / "shared" / f"{found[1]}.lua").read_text(), text)


@cache
def script_digest(name: str) -> str:
    """Return the digest under which Redis knows the script `name`."""
    return hashlib.sha1(script_text(name).encode(), usedforsecurity=False).hexdigest()


def run_script(client: Client, name: str, *, keys: Sequence[str], args: Sequence[Argument]) -> Any:
    """Run the script `name` and return its reply as Redis gives it. Raises RedisUnavailable."""
    try:
        try:
            return send(client, ("EVALSHA", script_digest(name), len(keys), *keys, *args))
        except NoScriptError:
            # The text goes to the server that lacks it, whichever of a Cluster that is.
            return client.execute_command("EVAL", script_text(name), len(keys), *keys, *args)
    except FAILURES as error:
        raise RedisUnavailable from error


async def run_script_async(client: AsyncClient, name: str, *, keys: Sequence[str], args: Sequence[Argument]) -> Any:
    """As run_script, within REDIS_TIMEOUT_SECONDS in all. Raises RedisUnavailable."""
    command = ("EVALSHA", script_digest(name), len(keys), *keys, *args)
    try:
        async with asyncio.timeout(settings.REDIS_TIMEOUT_SECONDS):
            try:
                return await client.execute_command(*command)
            except NoScriptError:
                return await client.execute_command("EVAL", script_text(name), *command[2:])
    except FAILURES as error:
        raise RedisUnavailable from error


def run_commands(client: Client, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    """Send plain commands, all for one SKU, in one round trip and return their replies. Raises RedisUnavailable."""
    try:
        return list(_pipeline(client, commands).execute())
    except FAILURES as error:
        raise RedisUnavailable from error


async def run_commands_async(client: AsyncClient, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    """As run_commands, within REDIS_TIMEOUT_SECONDS in all. Raises RedisUnavailable."""
    try:
        async with asyncio.timeout(settings.REDIS_TIMEOUT_SECONDS):
            return list(await _pipeline(client, commands).execute())
    except FAILURES as error:
        raise RedisUnavailable from error


def _pipeline(client: Client | AsyncClient, commands: Sequence[Sequence[Argument]]) -> Any:
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return pipeline


def as_dict(reply: Any) -> dict[str, Any]:
    """Return a reply of names and values as a dict: inside a pipeline the library may hand it over as a flat list."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def time_of(client: Client) -> float:
    """Return what a server's clock says, in seconds since 1970. Raises RedisUnavailable."""
    try:
        seconds, microseconds = client.time()
    except FAILURES as error:
        raise RedisUnavailable from error
    return float(seconds + microseconds / 1e6)


async def time_of_async(client: AsyncClient) -> float:
    """As time_of, within REDIS_TIMEOUT_SECONDS in all."""
    try:
        async with asyncio.timeout(settings.REDIS_TIMEOUT_SECONDS):
            seconds, microseconds = await client.time()
    except FAILURES as error:
        raise RedisUnavailable from error
    return float(seconds + microseconds / 1e6)


def memory_of(client: Client) -> dict[str, tuple[int, int]]:
    """Return bytes used and maxmemory of each server that takes writes, by its name: '' when there is but one.

    Raises RedisUnavailable.
    """
    try:
        return _memory_by_node(client.info("memory", **_primaries(client)))
    except FAILURES as error:
        raise RedisUnavailable from error


async def memory_of_async(client: AsyncClient) -> dict[str, tuple[int, int]]:
    """As memory_of."""
    try:
        return _memory_by_node(await client.info("memory", **_primaries(client)))
    except FAILURES as error:
        raise RedisUnavailable from error


def _primaries(client: Client | AsyncClient) -> dict[str, Any]:
    return {"target_nodes": client.PRIMARIES} if hasattr(client, "PRIMARIES") else {}


def _memory_by_node(info: dict[str, Any]) -> dict[str, tuple[int, int]]:
    by_node = {"": info} if "used_memory" in info else info
    # As the server itself counts: what replicas and the log on disk have not read yet is left out.
    return {
        name: (each["used_memory"] - each.get("mem_not_counted_for_evict", 0), each["maxmemory"])
        for name, each in by_node.items()
    }


def node_of(client: Client | AsyncClient, key: str) -> str:
    """Return the name of the server of a Cluster that has `key`, '' where there is but one server."""
    return str(client.get_node_from_key(key).name) if hasattr(client, "get_node_from_key") else ""


def run_scripts(client: Client, calls: Sequence[tuple[str, Sequence[str], Sequence[Argument]]]) -> list[Any]:
    """Run several scripts (name, keys, args), all for one SKU, in one round trip. Raises RedisUnavailable.

    The texts are sent, not their digests: with digests, a Redis that has forgotten the first script (a restart) would
    refuse it and still run the second, which relies on it.
    """
    commands = [("EVAL", script_text(name), len(keys), *keys, *args) for name, keys, args in calls]
    return run_commands(client, commands)


async def close_async(client: AsyncClient) -> None:
    """Close a client that connect_async made, and those by which it asked the Sentinels."""
    await client.aclose()
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for sentinel in manager.sentinels if manager else ():
        await sentinel.aclose()


async def subscribe_async(subscription: AsyncSubscription, channel: str) -> None:
    """Subscribe to `channel`. May raise any of FAILURES."""
    if (cluster := getattr(subscription, "cluster", None)) is not None:
        await cluster.initialize()  # a Cluster that was not asked anything yet does not know who serves the channel
    await subscription.subscribe(channel)


def run_script_each(client: Client, name: str, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]) -> list[Any]:
    """Run one script for each (keys, args) of `calls` in one round trip; replies in order.

    Only for scripts that may be sent twice. A call that failed alone has a RedisUnavailable in its place. Raises
    RedisUnavailable when the whole trip failed.
    """
    commands = [("EVALSHA", script_digest(name), len(keys), *keys, *args) for keys, args in calls]
    try:
        replies = list(_pipeline(client, commands).execute(raise_on_error=False))
        unknown = [number for number, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:  # of a Cluster perhaps one server only: what has run must not run again (L1)
            client.script_load(script_text(name))
            again = _pipeline(client, [commands[number] for number in unknown]).execute(raise_on_error=False)
            for number, reply in zip(unknown, again, strict=True):
                replies[number] = reply
    except FAILURES as error:
        raise RedisUnavailable from error
    return [_unavailable(reply) if isinstance(reply, Exception) else reply for reply in replies]


def _unavailable(cause: Exception) -> RedisUnavailable:
    error = RedisUnavailable()
    error.__cause__ = cause
    return error


def connect_once(url: str, *, timeout_seconds: float) -> Client:
    """Return a new client that sends nothing twice; every socket times out after `timeout_seconds`.

    May raise RedisUnavailable.
    """
    return _open_sync(url, timeout_seconds=timeout_seconds, retry=Retry(NoBackoff(), 0))


# A wait is looked up from at least this often: a signal is a hint only, and it may be lost (L10, L11).
MAX_BLOCK_SECONDS = 1.0
_SENDING_ONCE: WeakKeyDictionary[Client, Client] = WeakKeyDictionary()


def is_ours(client: Client) -> bool:
    """Say whether connect() or connect_once() opened `client`."""
    try:
        return client in _OPENED
    except TypeError:  # nothing that a weak reference can point to
        return False


def sending_once(client: Client) -> Client:
    """Return a client of the same servers that never sends a command twice. May raise RedisUnavailable."""
    once = _SENDING_ONCE.get(client)
    if once is None:
        url, timeout_seconds = _OPENED[client]
        once = _SENDING_ONCE[client] = connect_once(url, timeout_seconds=timeout_seconds)
    return once


def wait_for_signal(
    client: Client, key: str, *, seconds: float, place: WaitingPlace | None = None, place_seconds: float = 0
) -> str | None:
    """Wait up to `seconds` (at most one) for an element of the list `key`, and take it; None when none came.

    Waits on a connection of its own (L10, L11). With a `place` the caller keeps its turn from one call to the next,
    for `place_seconds` at most, and leaves it when it wants no element any more. Raises RedisUnavailable.
    """
    look = max(0.01, min(seconds, MAX_BLOCK_SECONDS))
    kept = place or WaitingPlace()
    try:
        return kept.wait(client, key, seconds=look, block_seconds=max(look, place_seconds))
    except FAILURES as error:
        raise RedisUnavailable from error
    finally:
        if place is None:
            kept.leave()
