"""Walks a hash or a sorted set page by page, so that no call keeps Redis busy for long.
Never shows one moment: what moves meanwhile may come twice. Called by reconciling.py and queue_checks.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inventory.redis import Client, run_commands


def pages(client: Client, scan: str, key: str, *, size: int) -> Iterator[list[tuple[str, Any]]]:
    """Yield the pairs (field, value; member, score) of `key`, `size` at most in a page. Raises RedisUnavailable.

    scan: HSCAN or ZSCAN.
    """
    cursor = "0"
    while True:
        # A server gives some more than it was asked for: a second page of two or three would cost as much as the first.
        ((cursor, found),) = run_commands(client, [(scan, key, cursor, "COUNT", size * 4 // 5)])
        pairs = _pairs(found)
        # A small hash or set is one page to Redis, however large it is.
        yield from (pairs[start : start + size] for start in range(0, len(pairs), size))
        if str(cursor) == "0":
            return


def _pairs(found: Any) -> list[tuple[str, Any]]:
    # The library gives a hash as a dict, a sorted set as pairs, and either flat when it does not know the command.
    if isinstance(found, dict):
        return list(found.items())
    if found and isinstance(found[0], tuple | list):
        return [(pair[0], pair[1]) for pair in found]
    return list(zip(found[::2], found[1::2], strict=True))
