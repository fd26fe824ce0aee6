"""Redis, and Valkey: the client, its keys, its clock and memory. Hands on the names that every caller needs.
No other folder imports the library.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast


@contextmanager
def _hidden(module: str) -> Iterator[None]:
    """Let a module seem not installed for the length of a `with` block, unless it is imported already."""
    modules = cast("dict[str, object]", sys.modules)
    if module in modules:
        yield
        return
    modules[module] = None
    try:
        yield
    finally:
        del modules[module]


# Where OpenTelemetry is installed, the library imports it: 3 MB and half of its own time, for figures nobody asks for.
with _hidden("opentelemetry"):
    from inventory.redis.client import (
        FAILURES,
        Argument,
        AsyncClient,
        AsyncSubscription,
        Client,
        away,
        close_async,
        connect,
        connect_async,
        connect_once,
        is_ours,
        sending_once,
        shards_of,
    )
    from inventory.redis.clocks import time_of, time_of_async
    from inventory.redis.commands import as_dict, run_commands, run_commands_async, run_groups_async
    from inventory.redis.connections import WaitingPlace
    from inventory.redis.memory import memory_of
    from inventory.redis.scripts import ScriptCall, run_script, run_script_async, run_script_each, run_scripts
    from inventory.redis.servers import ask_servers, node_of, takes_writes_async
    from inventory.redis.subscriptions import (
        MAX_BLOCK_SECONDS,
        is_cut_off,
        subscribe_async,
        subscription_of,
        wait_for_signal,
    )

__all__ = [
    "FAILURES",
    "MAX_BLOCK_SECONDS",
    "Argument",
    "AsyncClient",
    "AsyncSubscription",
    "Client",
    "ScriptCall",
    "WaitingPlace",
    "as_dict",
    "ask_servers",
    "away",
    "close_async",
    "connect",
    "connect_async",
    "connect_once",
    "is_cut_off",
    "is_ours",
    "memory_of",
    "node_of",
    "run_commands",
    "run_commands_async",
    "run_groups_async",
    "run_script",
    "run_script_async",
    "run_script_each",
    "run_scripts",
    "sending_once",
    "shards_of",
    "subscribe_async",
    "subscription_of",
    "takes_writes_async",
    "time_of",
    "time_of_async",
    "wait_for_signal",
]
