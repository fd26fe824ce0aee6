"""Walks a hash or a sorted set page by page, so that no call keeps Redis busy for long.
Never shows one moment: what moves meanwhile may come twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from inventory.redis import Client, run_commands, run_script


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


class Seen(NamedTuple):
    """One id in one moment: places of w (waits, in line), f (in flight), d (dead letter); its score there; its record.

    request_id: of a request of a line, or of a task of a queue.
    """

    request_id: str
    places: str
    score: float
    record: str | None


def see(client: Client, place_keys: Sequence[str], ids: Sequence[str]) -> list[Seen]:
    """Return where each id lies, all in one moment; at most 1,000 of them. Raises RedisUnavailable.

    place_keys: as scripts/queues/queue_check.lua declares them.
    """
    parts = iter(run_script(client, "queue_check", keys=place_keys, args=ids)[5:])
    found = zip(ids, parts, parts, parts, strict=True)
    return [Seen(name, places, float(score or 0), record) for name, places, score, record in found]


def _pairs(found: Any) -> list[tuple[str, Any]]:
    # The library gives a hash as a dict, a sorted set as pairs, and either flat when it does not know the command.
    if isinstance(found, dict):
        return list(found.items())
    if found and isinstance(found[0], tuple | list):
        return [(pair[0], pair[1]) for pair in found]
    return list(zip(found[::2], found[1::2], strict=True))
