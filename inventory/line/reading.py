"""Tells where requests stand in a SKU's line, what the line comes to, and which lines have work. Never changes one.
Changes are made by admission.py and writing.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from inventory.exceptions import RedisUnavailable
from inventory.line.writing import live_field, take_keys
from inventory.records import Record, buyer_in, record_or_none
from inventory.redis import (
    Argument,
    AsyncClient,
    Client,
    keys,
    run_commands,
    run_commands_async,
    run_groups_async,
    run_script,
    run_script_async,
    run_script_each,
)


class LineFigures(NamedTuple):
    """What Redis knows of a SKU and one of its sales: stock and queue in units, the others in requests.

    admitted: to the sale, since its ordinals last jumped; waiting: in the SKU's line and in flight; version: of the
    stock; revision: of the sale, 0 when Redis does not know it; records: of all sales of the SKU.
    """

    available: int
    held: int
    sold: int
    queued: int
    version: int
    admitted: int = 0
    waiting: int = 0
    revision: int = 0
    records: int = 0

    @property
    def decided(self) -> int:
        """How many of those admitted do not wait any more."""
        return max(0, self.admitted - self.waiting)


STOCK_FIELDS = LineFigures._fields[:5]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request stands; position 1 is next, 0 means it does not wait."""

    record: Record
    position: int


def known_skus(client: Client) -> list[str]:
    """Return every SKU that was ever primed, by name. Raises RedisUnavailable."""
    (known,) = run_commands(client, [("SMEMBERS", keys.skus())])
    return sorted(known)


def _status_keys(sku: str) -> list[str]:
    return [keys.line(sku), keys.in_flight(sku), keys.records(sku), keys.stock(sku)]


def _places(flat: list[Any]) -> list[Place | None]:
    # A record that cannot be read is nobody's place: its owner is looked up in the database, and all others are told.
    parts = iter(flat)
    found = [(record_or_none(record), position) for record, position in zip(parts, parts, strict=True)]
    return [Place(record, int(position)) if record else None for record, position in found]


async def places_async(client: AsyncClient, sku: str, request_ids: Sequence[str]) -> list[Place | None]:
    """Return the place of each request (at most 1,000), None for one Redis does not know. Raises RedisUnavailable."""
    return _places(await run_script_async(client, "status", keys=_status_keys(sku), args=request_ids))


def places(client: Client, sku: str, request_ids: Sequence[str]) -> list[Place | None]:
    """As places_async, for callers without an event loop."""
    return _places(run_script(client, "status", keys=_status_keys(sku), args=request_ids))


def let_in_by(client: Client, sku: str, *, sale_id: int, entry: str) -> str:
    """Return the id of the request that a pass or an entry let in, '' for none. Raises RedisUnavailable."""
    (found,) = run_commands(client, [("HGET", keys.passes(sku), f"{sale_id}:{entry}")])
    return found or ""


def live_units(client: Client, sku: str, *, sale_id: int, buyer: str) -> int:
    """Return how many units of a sale `buyer` has: in line, in flight, held or paid. Raises RedisUnavailable."""
    (found,) = run_commands(client, [("HGET", keys.live_units(sku), live_field(sale_id=sale_id, buyer=buyer))])
    return int(found or 0)


class Work(IntEnum):
    """What a settler finds in a line."""

    NONE = 0
    READY = 1  # something can be decided
    WAITS = 2  # for a held unit, or for staff


def look_for_work(client: Client, names: Sequence[str] | None = None) -> dict[str, Work]:
    """Return how each SKU's line stands that has anybody in it, by name; one whose server is away is left out.

    names: of the SKUs; by default those that Redis lists. Raises RedisUnavailable when no server answers.
    """
    names = known_skus(client) if names is None else names
    calls = [(take_keys(sku), ("", 0, 1, 0, 0, 0)) for sku in names]
    replies = run_script_each(client, "take", calls) if calls else []
    found = {sku: Work(reply) for sku, reply in zip(names, replies, strict=True) if not isinstance(reply, Exception)}
    return {sku: work for sku, work in found.items() if work is not Work.NONE}


def revision_in(sale: str | None) -> int:
    """Return the revision in what Redis keeps of a sale, 0 when it keeps nothing."""
    return int(sale.split("|")[5]) if sale else 0


def _figures(
    row: Sequence[str | None], sale: Sequence[str | None], waiting: int, in_flight: int, records: int
) -> LineFigures | None:
    """Raise RedisUnavailable when one of them is damaged."""
    if row[0] is None:
        return None
    try:
        last, base = map(int, (sale[1] or "0|0").split("|")[:2])
        stock = [int(value or 0) for value in row]
        return LineFigures._make([*stock, last - base, waiting + in_flight, revision_in(sale[0]), records])
    except (ValueError, IndexError) as error:
        raise RedisUnavailable from error


def _figures_commands(sku: str, sale_id: int) -> list[Sequence[Argument]]:
    return [
        ("HMGET", keys.stock(sku), *STOCK_FIELDS),
        ("HMGET", keys.sales(sku), sale_id, f"{sale_id}:ordinals"),
        ("ZCARD", keys.line(sku)),
        ("ZCARD", keys.in_flight(sku)),
        ("HLEN", keys.records(sku)),
    ]


async def figures_async(
    client: AsyncClient, sales: Sequence[tuple[str, int]]
) -> list[LineFigures | RedisUnavailable | None]:
    """Return the figures of each (sku, sale_id), None for one that is not primed.

    One whose shard of a Cluster is away, or of which a value is damaged, has a RedisUnavailable in its place. Raises
    RedisUnavailable when all are away.
    """
    groups = await run_groups_async(client, [_figures_commands(sku, sale_id) for sku, sale_id in sales])
    return [rows if isinstance(rows, RedisUnavailable) else _figures_or_error(rows) for rows in groups]


def _figures_or_error(rows: Sequence[Any]) -> LineFigures | RedisUnavailable | None:
    try:
        return _figures(*rows)
    except RedisUnavailable as error:
        return error


def figures(client: Client, sku: str, *, sale_id: int = 0) -> LineFigures | None:
    """Return the figures of one SKU and sale, None when it is not primed. Raises RedisUnavailable."""
    return _figures(*run_commands(client, _figures_commands(sku, sale_id)))


async def known_buyers_async(client: AsyncClient, sku: str) -> set[str]:
    """Return everybody who was ever admitted to the line of `sku`. Raises RedisUnavailable."""
    found: set[str] = set()
    cursor = "0"
    while True:
        command = ("HSCAN", keys.records(sku), cursor, "COUNT", 1000)
        ((cursor, flat),) = await run_commands_async(client, [command])
        found.update(map(buyer_in, flat.values()))
        if str(cursor) == "0":
            return found
