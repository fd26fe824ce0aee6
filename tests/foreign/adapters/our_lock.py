"""What both adapters need: a client that inventory.redis opened for the server of a foreign client; their key names.
Runs in the process of a foreign suite, where no other module of tests can be imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

from django.conf import settings

from inventory import redis
from inventory.locks.report import report_locks
from inventory.redis import keys

settings.configure()  # gevent, which some tests use, looks at every object there is

# What the libraries take for "no life": ours always has one, and is renewed.
TTL_SECONDS = 15.0


def name_keys(make: Callable[[str], str]) -> None:
    """Let our lock of a name lie where the foreign tests look for it."""
    keys.lock = make


def client_of(foreign: Any) -> redis.Client:
    """Return our client of the server that a foreign client talks to."""
    options = foreign.connection_pool.connection_kwargs
    if path := options.get("path"):
        return _client(f"unix://{path}?db={options.get('db', 0)}", os.getpid())
    return _client(f"redis://{options['host']}:{options['port']}/{options.get('db', 0)}", os.getpid())


@cache
def _client(url: str, _process_id: int) -> redis.Client:
    return redis.connect_once(url, timeout_seconds=5)


def holder_of(client: redis.Client, name: str) -> str | None:
    """Return the token that holds the lock of `name`."""
    (report,) = report_locks(client, [name])
    return report.token if report.state == "held" else None
