"""Reads a SKU's line page by page, and mends it in steps of a millisecond or so.
Never decides what is wrong: its caller compares with the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from inventory.line.reading import revision_in
from inventory.records import Record
from inventory.redis import Argument, Client, keys, run_commands, run_script
from inventory.redis.scan import Seen as Seen  # what look() returns
from inventory.redis.scan import pages, see

PAGE = 250  # a step of so many takes Redis a millisecond or two
READ_PAGE = 1_000  # to read so many takes it half a millisecond


class Standing(NamedTuple):
    """What moves whenever a request comes, is decided, or its units change."""

    version: int
    changes: int


class StockSeen(NamedTuple):
    """A SKU as Redis has it: figures, requests in flight, the last fence, and the revision of each sale."""

    available: int
    held: int
    sold: int
    version: int
    in_flight: int
    fence: int
    revisions: tuple[int, ...]


def stock(client: Client, sku: str, *, sale_ids: Sequence[int]) -> StockSeen | None:
    """Return what Redis knows of `sku` and its sales, None when it is not primed. Raises RedisUnavailable.

    A sale that it does not know has revision 0.
    """
    figures, in_flight, fence, *sales = run_commands(
        client,
        [
            ("HMGET", keys.stock(sku), "available", "held", "sold", "version"),
            ("ZCARD", keys.in_flight(sku)),
            ("GET", keys.fence(sku)),
            *(("HGET", keys.sales(sku), sale_id) for sale_id in sale_ids),
        ],
    )
    if figures[3] is None:
        return None
    available, held, sold, version = (int(value or 0) for value in figures)
    return StockSeen(available, held, sold, version, int(in_flight), int(fence or 0), tuple(map(revision_in, sales)))


def standing(client: Client, sku: str) -> Standing:
    """Return what a SKU has come to; equal twice means that nothing moved between. Raises RedisUnavailable."""
    (row,) = run_commands(client, [("HMGET", keys.stock(sku), "version", "changes")])
    return Standing(*(int(value or 0) for value in row))


def extent(client: Client, sku: str) -> int:
    """Return how many entries a comparison of `sku` reads: records, live units, the line. Raises RedisUnavailable."""
    hashes = [("HLEN", keys.records(sku)), ("HLEN", keys.live_units(sku))]
    sets = [("ZCARD", keys.line(sku)), ("ZCARD", keys.in_flight(sku))]
    return sum(map(int, run_commands(client, [*hashes, *sets])))


def record_pages(client: Client, sku: str) -> Iterator[dict[str, str]]:
    """Yield every record (id → text), up to READ_PAGE at a time; one that moves meanwhile may come twice."""
    return (dict(page) for page in pages(client, "HSCAN", keys.records(sku), size=READ_PAGE))


def live_pages(client: Client, sku: str) -> Iterator[dict[str, int]]:
    """Yield every buyer's live units (field → units), up to READ_PAGE at a time."""
    found = pages(client, "HSCAN", keys.live_units(sku), size=READ_PAGE)
    return ({field: int(units) for field, units in page} for page in found)


def queued_pages(client: Client, sku: str) -> Iterator[list[str]]:
    """Yield every id in line and in flight, some hundred at a time; one that moves meanwhile may come twice."""
    for key in (keys.line(sku), keys.in_flight(sku)):
        for page in pages(client, "ZSCAN", key, size=PAGE):
            yield [name for name, _ in page]


def look(client: Client, sku: str, request_ids: Sequence[str]) -> list[Seen]:
    """Return where each id lies, all in one moment; at most PAGE of them. Raises RedisUnavailable."""
    return see(client, place_keys(sku), request_ids) if request_ids else []


def place_keys(sku: str) -> list[str]:
    """Return the keys of a line that scripts/queues/queue_check.lua declares."""
    return [keys.line(sku), keys.in_flight(sku), keys.dead_letters(sku), keys.records(sku), keys.stock(sku)]


def records_of(client: Client, sku: str, request_ids: Sequence[str]) -> dict[str, str]:
    """Return the record of each id that has one. Raises RedisUnavailable."""
    if not request_ids:
        return {}
    (texts,) = run_commands(client, [("HMGET", keys.records(sku), *request_ids)])
    return {name: text for name, text in zip(request_ids, texts, strict=True) if text is not None}


def queued_units(client: Client, sku: str) -> int | None:
    """Return the `queued` counter, None while it is known to be uncertain. Raises RedisUnavailable."""
    (row,) = run_commands(client, [("HMGET", keys.stock(sku), "queued", "queued_unsure")])
    return None if row[1] is not None else int(row[0] or 0)


def mend_units(
    client: Client,
    sku: str,
    *,
    standing: Standing,
    queued: tuple[int, int],
    live: Mapping[str, tuple[int, int]],
) -> int:
    """Correct units (as they were, as they must be) unless something has moved since `standing`.

    live: by field. Returns how many figures were corrected, -1 when something has moved. Raises RedisUnavailable.
    """
    fields = [(field, *pair) for field, pair in live.items()]
    return _mend(client, [keys.stock(sku), keys.live_units(sku)], standing=standing, queued=queued, fields=fields)


def renew_ends(client: Client, sku: str, ends: Sequence[tuple[str, str, Record]]) -> int:
    """Give holds another end: of each request its record as it was read, and as it shall be.

    A record that has changed meanwhile is left alone. Returns how many were written. Raises RedisUnavailable.
    """
    fields = [(name, was, now.text()) for name, was, now in ends]
    return _mend(client, [keys.stock(sku), keys.records(sku)], standing=("", ""), queued=(0, 0), fields=fields)


def _mend(
    client: Client,
    script_keys: Sequence[str],
    *,
    standing: Sequence[Argument],
    queued: tuple[int, int],
    fields: Sequence[tuple[str, Argument, Argument]],
) -> int:
    done = 0
    for start in range(0, max(len(fields), 1), PAGE):
        args = [*standing, *(queued if start == 0 else (0, 0))]
        args += [part for field in fields[start : start + PAGE] for part in field]
        mended = int(run_script(client, "mend", keys=script_keys, args=args))
        if mended < 0:
            return done or -1
        done += mended
    return done
