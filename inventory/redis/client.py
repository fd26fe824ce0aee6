"""The one door to Redis: opens clients, loads the files of scripts/ by name, turns Redis errors into ours.
Never decides anything. No other file imports the redis package.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
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
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    RedisClusterException,
    RedisError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from inventory.exceptions import RedisUnavailable
from inventory.redis.address import Address, read_address
from inventory.redis.connections import WaitingPlace as WaitingPlace  # locks keep one
from inventory.redis.connections import keep_ready, send
from inventory.redis.shards import Shards, Topology
from inventory.telemetry.measures import SCRIPT_SECONDS, note_store_errors

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
        raise _unavailable(error) from error
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
    address = read_address(url)
    options = _options(address, timeout_seconds=timeout_seconds)
    if address is None:
        client = library.Redis.from_url(url, retry=retry, **options)
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

    client.fairdrop_shards = Shards(_topology(url, os.getpid()), open_one=open_one)
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
def _topology(url: str, _process_id: int) -> Topology:
    """Return what this process knows of a Cluster; one for all clients of it."""

    def open_index() -> Client:
        address = read_address(url)
        nodes = address.nodes if address else ()
        options = _options(address, timeout_seconds=settings.REDIS_TIMEOUT_SECONDS)
        try:
            return _open_cluster(redis, nodes, options, retry=Retry(NoBackoff(), 0))
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


def _client_for(client: Any, key: str) -> Any:
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


def _send(client: Client, own: Client, command: Sequence[Argument]) -> Any:
    """Send one command to the client `own` of its shard, or to whom that names. May raise any of FAILURES."""
    try:
        return send(own, command)
    except REDIRECTS:
        if (shards := shards_of(client)) is None:  # a server of a Cluster that the settings take for the only one
            raise
        shards.topology.watch()
        return client.execute_command(*command)


async def _send_async(client: AsyncClient, own: AsyncClient, command: Sequence[Argument]) -> Any:
    try:
        return await own.execute_command(*command)
    except REDIRECTS:
        if (shards := shards_of(client)) is None:
            raise
        shards.topology.watch()
        return await client.execute_command(*command)


def _unavailable(cause: BaseException, client: Any = None, own: Any = None, *, key: str = "") -> RedisUnavailable:
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


def _key_of(command: Sequence[Argument]) -> str:
    """Return the first key of a command, '' when it has none."""
    place = 3 if command[0] in ("EVAL", "EVALSHA") else 1
    return str(command[place]) if len(command) > place else ""


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
    own = _client_for(client, keys[0])
    began = time.monotonic()
    try:
        try:
            return _send(client, own, ("EVALSHA", script_digest(name), len(keys), *keys, *args))
        except NoScriptError:
            # The text goes to the server that lacks it, whichever of a Cluster that is.
            return _send(client, own, ("EVAL", script_text(name), len(keys), *keys, *args))
    except FAILURES as error:
        raise _unavailable(error, client, own, key=keys[0]) from error
    finally:
        SCRIPT_SECONDS.observe(time.monotonic() - began, name)


async def run_script_async(client: AsyncClient, name: str, *, keys: Sequence[str], args: Sequence[Argument]) -> Any:
    """As run_script, within REDIS_TIMEOUT_SECONDS in all. Raises RedisUnavailable."""
    command = ("EVALSHA", script_digest(name), len(keys), *keys, *args)
    own = _client_for(client, keys[0])
    began = time.monotonic()
    try:
        async with asyncio.timeout(settings.REDIS_TIMEOUT_SECONDS):
            try:
                return await _send_async(client, own, command)
            except NoScriptError:
                return await _send_async(client, own, ("EVAL", script_text(name), *command[2:]))
    except FAILURES as error:
        raise _unavailable(error, client, own, key=keys[0]) from error
    finally:
        SCRIPT_SECONDS.observe(time.monotonic() - began, name)


def run_commands(client: Client, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    """Send plain commands in one round trip a shard and return their replies. Raises RedisUnavailable."""
    if shards_of(client) is None:
        return _run_here(client, client, commands)
    replies: list[Any] = [None] * len(commands)
    for numbers in _by_shard(client, [[each] for each in commands]):
        mine = [commands[number] for number in numbers]
        for number, reply in zip(numbers, _run_here(client, _client_for(client, _key_of(mine[0])), mine), strict=True):
            replies[number] = reply
    return replies


def _run_here(client: Client, own: Client, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    try:
        if own is client:
            return list(_pipeline(own, commands).execute())
        replies = _send_all(client, own, commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
    except FAILURES as error:
        raise _unavailable(error, client, own, key=_key_of(commands[0])) from error
    return replies


def _send_all(client: Client, own: Client, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    """Send commands to one server in one round trip, and those again that it did not do because a slot has moved.

    An error that a command met by itself is in the place of its reply. May raise any of FAILURES.
    """
    replies = list(_pipeline(own, commands).execute(raise_on_error=False))
    for number, reply in enumerate(replies):
        if isinstance(reply, REDIRECTS):
            try:
                replies[number] = _send(client, own, commands[number])
            except FAILURES as error:
                replies[number] = error
    return replies


def _by_shard(client: Client | AsyncClient, groups: Sequence[Sequence[Sequence[Argument]]]) -> list[list[int]]:
    """Return the numbers of those groups of commands that go to one server together, for each of a Cluster.

    What goes to a server that is away is by itself.
    """
    shards = shards_of(client)
    if shards is None:
        return [list(range(len(groups)))] if groups else []
    found: dict[str, list[int]] = {}
    for number, group in enumerate(groups):
        try:
            name = shards.topology.shard_of(_key_of(group[0]))
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
    key = _key_of(commands[0])
    own = _client_for(client, key)
    try:
        async with asyncio.timeout(settings.REDIS_TIMEOUT_SECONDS):
            try:
                return list(await _pipeline(own, commands).execute())
            except REDIRECTS:
                return [await _send_async(client, own, command) for command in commands]
    except FAILURES as error:
        raise _unavailable(error, client, own, key=key) from error


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

    await asyncio.gather(*map(run, _by_shard(client, groups)))
    _raise_if_all_failed(found)
    return found


def _raise_if_all_failed(replies: Sequence[Any]) -> None:
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


def time_of(client: Client) -> float:
    """Return what a server's clock says, in seconds since 1970; any one of a Cluster. Raises RedisUnavailable."""
    return _first_seconds(list(ask_servers(client, "TIME").values()))


async def time_of_async(client: AsyncClient) -> float:
    """As time_of, within REDIS_TIMEOUT_SECONDS in all."""
    return _first_seconds(list((await ask_servers_async(client, "TIME")).values()))


def _first_seconds(replies: Sequence[Any]) -> float:
    _raise_if_all_failed(replies)
    seconds, microseconds = next(reply for reply in replies if not isinstance(reply, RedisUnavailable))
    return float(int(seconds) + int(microseconds) / 1e6)


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
        return _unavailable(error, client, own)


async def _ask_async(client: AsyncClient, name: str, *command: str) -> Any:
    own = None
    try:
        async with asyncio.timeout(settings.REDIS_TIMEOUT_SECONDS):
            own = _server(client, name)
            return await own.execute_command(*command)
    except RedisUnavailable as error:
        return error
    except FAILURES as error:
        return _unavailable(error, client, own)


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


def memory_of(client: Client) -> dict[str, tuple[int, int]]:
    """Return bytes used and maxmemory of each server that takes writes, by its name: '' when there is but one.

    One that is away is left out. Raises RedisUnavailable when all are.
    """
    return _memory(ask_servers(client, "INFO", "memory"))


async def memory_of_async(client: AsyncClient) -> dict[str, tuple[int, int]]:
    """As memory_of."""
    return _memory(await ask_servers_async(client, "INFO", "memory"))


def _memory(info: dict[str, Any]) -> dict[str, tuple[int, int]]:
    _raise_if_all_failed(list(info.values()))
    # As the server itself counts: what replicas and the log on disk have not read yet is left out.
    return {
        name: (each["used_memory"] - each.get("mem_not_counted_for_evict", 0), each["maxmemory"])
        for name, each in info.items()
        if not isinstance(each, RedisUnavailable)
    }


def node_of(client: Client | AsyncClient, key: str) -> str:
    """Return the name of the server of a Cluster that has `key`, '' where there is but one server, or it is away."""
    shards = shards_of(client)
    if shards is None:
        return ""
    try:
        return shards.topology.shard_of(key)
    except RedisUnavailable:
        return ""


def run_scripts(client: Client, calls: Sequence[tuple[str, Sequence[str], Sequence[Argument]]]) -> list[Any]:
    """Run several scripts (name, keys, args), all for one SKU, in one round trip. Raises RedisUnavailable.

    The texts are sent, not their digests: with digests, a Redis that has forgotten the first script (a restart) would
    refuse it and still run the second, which relies on it.
    """
    commands = [("EVAL", script_text(name), len(keys), *keys, *args) for name, keys, args in calls]
    began = time.monotonic()
    try:
        return run_commands(client, commands)
    finally:
        SCRIPT_SECONDS.observe(time.monotonic() - began, "+".join(name for name, _, _ in calls))


async def close_async(client: AsyncClient) -> None:
    """Close a client that connect_async made, those of its shards, and those by which it asked the Sentinels."""
    shards = shards_of(client)
    for one in shards.clients() if shards else ():
        await one.aclose()
    await client.aclose()
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for sentinel in manager.sentinels if manager else ():
        await sentinel.aclose()


def subscription_of(client: Client | AsyncClient, **options: Any) -> Any:
    """Return a new subscription; of a Cluster at any server that answers, for all of them hear every message.

    Raises RedisUnavailable when none does.
    """
    shards = shards_of(client)
    if shards is None:
        return client.pubsub(**options)
    name = next((each for each in shards.topology.shards() if not shards.topology.is_away(each)), None)
    if name is None:
        raise RedisUnavailable
    subscription = shards.client_of(name).pubsub(**options)
    subscription.fairdrop_is_cut_off = lambda: not shards.topology.serves(name)
    return subscription


def is_cut_off(subscription: Any) -> bool:
    """Say whether the server that a subscription listens to is known to be away: it would be silent for ever."""
    return bool(getattr(subscription, "fairdrop_is_cut_off", bool)())


async def subscribe_async(subscription: AsyncSubscription, channel: str) -> None:
    """Subscribe to `channel`. May raise any of FAILURES."""
    if (cluster := getattr(subscription, "cluster", None)) is not None:
        await cluster.initialize()  # a Cluster that was not asked anything yet does not know who serves the channel
    await subscription.subscribe(channel)


def run_script_each(client: Client, name: str, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]) -> list[Any]:
    """Run one script for each (keys, args) of `calls` in one round trip a shard; replies in order.

    Only for scripts that may be sent twice. A call that failed alone, or whose shard is away, has a RedisUnavailable in
    its place. Raises RedisUnavailable when the whole trip failed, or all shards are away.
    """
    commands = [("EVALSHA", script_digest(name), len(keys), *keys, *args) for keys, args in calls]
    replies: list[Any] = [None] * len(commands)
    trips = []
    for numbers in _by_shard(client, [[each] for each in commands]):
        trip = _run_each(client, name, [commands[number] for number in numbers])
        trips.append(trip)
        for number, reply in zip(numbers, trip if isinstance(trip, list) else [trip] * len(numbers), strict=True):
            replies[number] = reply
    _raise_if_all_failed(trips)
    return [
        _unavailable(reply) if not isinstance(reply, RedisUnavailable) and isinstance(reply, Exception) else reply
        for reply in replies
    ]


def _run_each(client: Client, name: str, commands: Sequence[Sequence[Argument]]) -> list[Any] | RedisUnavailable:
    """Run script calls for one server; return the replies, or why none of them came."""
    key, own = _key_of(commands[0]), None
    try:
        own = _client_for(client, key)
        replies = _send_all(client, own, commands)
        unknown = [number for number, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:  # of a Cluster perhaps one server only: what has run must not run again (L1)
            own.script_load(script_text(name))
            again = _send_all(client, own, [commands[number] for number in unknown])
            for number, reply in zip(unknown, again, strict=True):
                replies[number] = reply
    except RedisUnavailable as error:
        return error
    except FAILURES as error:
        return _unavailable(error, client, own, key=key)
    return replies


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
    kept, own = place or WaitingPlace(), None
    try:
        own = _client_for(client, key)
        return kept.wait(own, key, seconds=look, block_seconds=max(look, place_seconds))
    except RedisUnavailable:
        kept.leave()
        raise
    except FAILURES as error:
        raise _unavailable(error, client, own, key=key) from error
    finally:
        if place is None:
            kept.leave()
