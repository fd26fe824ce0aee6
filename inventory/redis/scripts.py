"""Runs the scripts of inventory/scripts by their names: by digest, and by text where a server does not know it yet.
Never reads what a reply means.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from django.conf import settings

from inventory.exceptions import RedisUnavailable
from inventory.redis.client import FAILURES, Argument, AsyncClient, Client, NoScriptError, unavailable
from inventory.redis.commands import (
    by_shard,
    client_for,
    key_of,
    raise_if_all_failed,
    run_commands,
    send_all,
    send_to,
    send_to_async,
)
from inventory.telemetry.measures import SCRIPT_SECONDS

# A script's name, keys and arguments.
ScriptCall: TypeAlias = tuple[str, Sequence[str], Sequence[Argument]]

SCRIPTS = Path(__file__).parents[1] / "scripts"
# A line of a script in whose place a function stands that several scripts have.
SHARED = re.compile(r"^-- Shared: (\w+)\n", re.MULTILINE)


@cache
def script_paths() -> dict[str, Path]:
    """Return every script by its name, which no other folder of scripts/ has."""
    return {path.stem: path for path in SCRIPTS.rglob("*.lua") if path.parent.name != "shared"}


@cache
def script_text(name: str) -> str:
    """Return the text of the script `name`, with the files of scripts/shared that it names put in."""
    text = script_paths()[name].read_text()
    return SHARED.sub(lambda found: (SCRIPTS / "shared" / f"{found[1]}.lua").read_text(), text)


@cache
def script_digest(name: str) -> str:
    """Return the digest under which Redis knows the script `name`."""
    return hashlib.sha1(script_text(name).encode(), usedforsecurity=False).hexdigest()


def run_script(client: Client, name: str, *, keys: Sequence[str], args: Sequence[Argument]) -> Any:
    """Run the script `name` and return its reply as Redis gives it. Raises RedisUnavailable."""
    own = client_for(client, keys[0])
    began = time.monotonic()
    try:
        try:
            return send_to(client, own, ("EVALSHA", script_digest(name), len(keys), *keys, *args))
        except NoScriptError:
            # The text goes to the server that lacks it, whichever of a Cluster that is.
            return send_to(client, own, ("EVAL", script_text(name), len(keys), *keys, *args))
    except FAILURES as error:
        raise unavailable(error, client, own, key=keys[0]) from error
    finally:
        SCRIPT_SECONDS.observe(time.monotonic() - began, name)


async def run_script_async(client: AsyncClient, name: str, *, keys: Sequence[str], args: Sequence[Argument]) -> Any:
    """As run_script, within REDIS_TIMEOUT_SECONDS in all. Raises RedisUnavailable."""
    command = ("EVALSHA", script_digest(name), len(keys), *keys, *args)
    own = client_for(client, keys[0])
    began = time.monotonic()
    try:
        async with asyncio.timeout(settings.REDIS_TIMEOUT_SECONDS):
            try:
                return await send_to_async(client, own, command)
            except NoScriptError:
                return await send_to_async(client, own, ("EVAL", script_text(name), *command[2:]))
    except FAILURES as error:
        raise unavailable(error, client, own, key=keys[0]) from error
    finally:
        SCRIPT_SECONDS.observe(time.monotonic() - began, name)


def run_scripts(client: Client, calls: Sequence[ScriptCall]) -> list[Any]:
    """Run several scripts, all for one SKU, in one round trip. Raises RedisUnavailable.

    The texts are sent, not their digests: with digests, a Redis that has forgotten the first script (a restart) would
    refuse it and still run the second, which relies on it.
    """
    commands = [("EVAL", script_text(name), len(keys), *keys, *args) for name, keys, args in calls]
    began = time.monotonic()
    try:
        return run_commands(client, commands)
    finally:
        SCRIPT_SECONDS.observe(time.monotonic() - began, "+".join(name for name, _, _ in calls))


def run_script_each(client: Client, name: str, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]) -> list[Any]:
    """Run one script for each (keys, args) of `calls` in one round trip a shard; replies in order.

    Only for scripts that may be sent twice. A call that failed alone, or whose shard is away, has a RedisUnavailable in
    its place. Raises RedisUnavailable when the whole trip failed, or all shards are away.
    """
    commands = [("EVALSHA", script_digest(name), len(keys), *keys, *args) for keys, args in calls]
    replies: list[Any] = [None] * len(commands)
    trips = []
    for numbers in by_shard(client, [[each] for each in commands]):
        trip = _run_each(client, name, [commands[number] for number in numbers])
        trips.append(trip)
        for number, reply in zip(numbers, trip if isinstance(trip, list) else [trip] * len(numbers), strict=True):
            replies[number] = reply
    raise_if_all_failed(trips)
    return [
        unavailable(reply) if not isinstance(reply, RedisUnavailable) and isinstance(reply, Exception) else reply
        for reply in replies
    ]


def _run_each(client: Client, name: str, commands: Sequence[Sequence[Argument]]) -> list[Any] | RedisUnavailable:
    """Run script calls for one server; return the replies, or why none of them came."""
    key, own = key_of(commands[0]), None
    try:
        own = client_for(client, key)
        replies = send_all(client, own, commands)
        unknown = [number for number, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:  # of a Cluster perhaps one server only: what has run must not run again (L1)
            own.script_load(script_text(name))
            again = send_all(client, own, [commands[number] for number in unknown])
            for number, reply in zip(unknown, again, strict=True):
                replies[number] = reply
    except RedisUnavailable as error:
        return error
    except FAILURES as error:
        return unavailable(error, client, own, key=key)
    return replies
