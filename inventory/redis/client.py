"""The one door to Redis: opens and closes clients, and turns Redis errors into ours. Never decides anything.
No other file imports the redis package.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import lru_cache
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
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisClusterException, RedisError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError as NoScriptError  # scripts are sent as a text then
from redis.exceptions import ReadOnlyError as ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from inventory.exceptions import RedisUnavailable
from inventory.redis.address import Address, read_address
from inventory.redis.connections import keep_ready
from inventory.redis.shards import Shards, Topology
from inventory.telemetry.measures import note_store_errors

# Set here, not left to the library: the shape of replies depends on it.
PROTOCOL = 2

# The library leaves half of its methods untyped; what passes through here is checked where it is used.
Client: TypeAlias = Any
AsyncClient: TypeAlias = Any
AsyncSubscription: TypeAlias = Any
Argument: TypeAlias = str | bytes | int | float
# How each client of connect() was opened, so that another of the same servers can be.
_OPENED: WeakKeyDictionary[Client, tuple[str, float]] = WeakKeyDictionary()
_SENDING_ONCE: WeakKeyDictionary[Client, Client] = WeakKeyDictionary()
FAILURES = (RedisError, RedisClusterException, OSError, asyncio.TimeoutError)
# A slot is on its way to another server, or there: nothing was done.
REDIRECTS = (MovedError, AskError, TryAgainError)
# Those that say something of the server, not of what it was asked.
AWAY = (RedisConnectionError, RedisTimeoutError, ClusterDownError, RedisClusterException, OSError, asyncio.TimeoutError)


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
        raise unavailable(error) from error
    _OPENED[client] = (url, timeout_seconds)
    return client


def connect_once(url: str, *, timeout_seconds: float) -> Client:
    """Return a new client that sends nothing twice; every socket times out after `timeout_seconds`.

    May raise RedisUnavailable.
    """
    return _open_sync(url, timeout_seconds=timeout_seconds, retry=Retry(NoBackoff(), 0))


def connect_async() -> AsyncClient:
    """Return a new client for the running event loop; its owner closes it."""
    timeout, retry = settings.REDIS_TIMEOUT_SECONDS, AsyncRetry(NoBackoff(), 1)
    return _open(redis.asyncio, settings.REDIS_URL, timeout_seconds=timeout, retry=retry)


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


async def close_async(client: AsyncClient) -> None:
    """Close a client that connect_async made, those of its shards, and those by which it asked the Sentinels."""
    shards = shards_of(client)
    for one in shards.clients() if shards else ():
        await one.aclose()
    await client.aclose()
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for sentinel in manager.sentinels if manager else ():
        await sentinel.aclose()


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
    address = read_address(url)
    options = _options(address, timeout_seconds=timeout_seconds)
    if address is None:
        # READONLY: the server has become a replica. Connect again: the address may lead to the new primary by now.
        client = library.Redis.from_url(url, retry=retry, retry_on_error=[ReadOnlyError], **options)
        if library is redis:
            keep_ready(client)
        return client
    if address.service:
        ask = {**options, "username": None, "password": address.sentinel_password}
        sentinel = library.sentinel.Sentinel(address.nodes, sentinel_kwargs=ask)
        if library is redis:
            options["connection_class"] = _WatchedTLSConnection if address.tls else _WatchedConnection
        return sentinel.master_for(address.service, db=address.database, retry=retry, **options)

    client = _open_cluster(library, address.nodes, options, retry=retry)

    def open_one(node: tuple[str, int]) -> Any:
        one = library.Redis(host=node[0], port=node[1], retry=retry, **options)
        if library is redis:
            keep_ready(one)
        return one

    client.fairdrop_shards = Shards(_topology(address, os.getpid()), open_one=open_one)
    return client


def _open_cluster(library: Any, nodes: Sequence[tuple[str, int]], options: dict[str, Any], *, retry: Any) -> Any:
    """Return the library's client of a Cluster, without shards."""
    at = [library.cluster.ClusterNode(host, port) for host, port in nodes]
    if library is not redis:
        return library.RedisCluster(startup_nodes=at, retry=retry, require_full_coverage=False, **options)
    # As it is opened it asks one server for more than the topology, and that one may be away: then the next.
    opening = Retry(NoBackoff(), 2)
    client = library.RedisCluster(startup_nodes=at, retry=opening, require_full_coverage=False, **options)
    client.set_retry(retry)
    return client


def _options(address: Address | None, *, timeout_seconds: float) -> dict[str, Any]:
    options: dict[str, Any] = {
        "protocol": PROTOCOL,
        "decode_responses": True,
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
    }
    if address is not None:
        options |= {"username": address.username, "password": address.password}
        if address.tls:
            options["ssl"] = True
    return options


@lru_cache(maxsize=8)
def _topology(address: Address, _process_id: int) -> Topology:
    """Return what this process knows of a Cluster; one for all clients of it."""

    def open_index() -> Client:
        options = _options(address, timeout_seconds=settings.REDIS_TIMEOUT_SECONDS)
        try:
            return _open_cluster(redis, address.nodes, options, retry=Retry(NoBackoff(), 0))
        except FAILURES as error:
            raise RedisUnavailable from error

    topology = Topology(open_index, answers=_answers)
    topology.open()
    return topology


def _answers(index: Client, name: str, key: str) -> bool:
    node = index.get_node(node_name=name)
    if node is None:
        return False
    try:
        index.get_redis_connection(node).execute_command("EXISTS", key)
    except AWAY:
        return False
    except FAILURES:  # it answers, though perhaps not for this key any more
        return True
    return True


def shards_of(client: Client | AsyncClient) -> Shards | None:
    """Return the shards of a client of a Cluster, None of any other."""
    return getattr(client, "fairdrop_shards", None)


def away(client: Client | AsyncClient) -> list[str]:
    """Return the names of the shards that are away, none when there is but one server."""
    shards = shards_of(client)
    return shards.topology.away() if shards else []


def unavailable(cause: BaseException, client: Any = None, own: Any = None, *, key: str = "") -> RedisUnavailable:
    """Return our error for one of FAILURES, and count it; note what it says of the shard that `own` is the client of.

    Not of the shard that has `key` by now: that may be a new server, which was not asked.
    """
    shards, shard = shards_of(client), getattr(own, "fairdrop_shard", "")
    note_store_errors("redis", shard)
    if shards and shard and isinstance(cause, AWAY):
        is_silent = isinstance(cause, RedisTimeoutError | TimeoutError)
        shards.topology.note_failure(shard, key=key, is_silent=is_silent)
    error = RedisUnavailable()
    error.__cause__ = cause
    return error
