"""Tells where requests stand in a SKU's line, what the line comes to, and which lines have work. Never changes one.
Called by the gate and the pages (places, figures), the workers (which SKUs have work), the checks. Changes are made
by admission.py and line_changes.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.conf import settings

from inventory import keys
from inventory.redis import (
    Argument,
    AsyncClient,
    Client,
    run_commands,
    run_commands_async,
    run_script,
    run_script_async,
)
from inventory.tickets import Record, buyer_in, record_or_none


class LineFigures(NamedTuple):
    """What Redis knows of a SKU: stock and queue in units, admitted and decided in requests, versions."""

    available: int
    held: int
    sold: int
    returning: int
    queued: int
    admitted: int
    decided: int
    version: int
    terms_version: int = 0


class LineCheck(NamedTuple):
    """A SKU's line in one moment: requests in the line, in flight, in both (must be 0), counters, dead letters,
    and how many of those were set aside undecided.
    """

    waiting: int
    flying: int
    both: int
    admitted: int
    decided: int
    queued_units: int
    dead_letters: int
    aside: int


STOCK_FIELDS = LineFigures._fields[:-1]  # the last one is of the sale
COMMANDS_A_SALE = 2


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
    return _places(
        await run_script_async(
            client,
            "status",
            keys=_status_keys(sku),
            args=request_ids,
            timeout_seconds=settings.REDIS_TIMEOUT_SECONDS,
        )
    )


def places(client: Client, sku: str, request_ids: Sequence[str]) -> list[Place | None]:
    """As places_async, for callers without an event loop."""
    return _places(run_script(client, "status", keys=_status_keys(sku), args=request_ids))


def skus_with_work(client: Client) -> list[str]:
    """Return the primed SKUs that have something to hand out, by name. Raises RedisUnavailable.

    A line that waits for a unit or for staff has none until its stock or its terms change, or its time has come.
    """
    names = known_skus(client)
    commands = [command for sku in names for command in _work_commands(sku)]
    rows = run_commands(client, commands) if commands else []
    now_us = time.time_ns() // 1000
    looks = zip(names, rows[::3], rows[1::3], rows[2::3], strict=True)
    return [sku for sku, waiting, flying, stock in looks if flying or (waiting and not _must_wait(stock, now_us))]


def _work_commands(sku: str) -> list[Sequence[Argument]]:
    return [
        ("ZCARD", keys.line(sku)),
        ("ZCARD", keys.in_flight(sku)),
        ("HMGET", keys.stock(sku), "waits_for", "waits_version", "version", "waits_until_us"),
    ]


def _must_wait(stock: Sequence[str | None], now_us: int) -> bool:
    waits_for, waits_version, version, until_us = stock
    return bool(waits_for) and waits_version == version and now_us < int(until_us or 0)


def _figures(row: Sequence[str | None], terms_version: str | None) -> LineFigures | None:
    if row[0] is None:
        return None
    return LineFigures(*(int(value or 0) for value in (*row, terms_version)))


def _figures_commands(sku: str, sale_id: int) -> list[Sequence[Argument]]:
    return [
        ("HMGET", keys.stock(sku), *STOCK_FIELDS),
        ("HGET", keys.sale(sku, sale_id=sale_id), "version"),
    ]


async def figures_async(client: AsyncClient, sales: Sequence[tuple[str, int]]) -> list[LineFigures | None]:
    """Return the figures of each (sku, sale_id), None for one that is not primed. Raises RedisUnavailable."""
    commands = [command for sku, sale_id in sales for command in _figures_commands(sku, sale_id)]
    rows = await run_commands_async(client, commands, timeout_seconds=settings.REDIS_TIMEOUT_SECONDS)
    return [_figures(*rows[at : at + COMMANDS_A_SALE]) for at in range(0, len(rows), COMMANDS_A_SALE)]


def figures(client: Client, sku: str, *, sale_id: int = 0) -> LineFigures | None:
    """Return the figures of one SKU and sale, None when it is not primed. Raises RedisUnavailable."""
    return _figures(*run_commands(client, _figures_commands(sku, sale_id)))


async def known_buyers_async(client: AsyncClient, sku: str) -> set[str]:
    """Return everybody who was ever admitted to the line of `sku`. Raises RedisUnavailable."""
    found: set[str] = set()
    cursor = "0"
    while True:
        command = ("HSCAN", keys.records(sku), cursor, "COUNT", 1000)
        ((cursor, flat),) = await run_commands_async(client, [command], timeout_seconds=settings.REDIS_TIMEOUT_SECONDS)
        found.update(map(buyer_in, flat.values()))
        if str(cursor) == "0":
            return found


def check(client: Client, sku: str) -> LineCheck:
    """Return the state of a SKU's line, read in one moment. Raises RedisUnavailable."""
    script_keys = [keys.line(sku), keys.in_flight(sku), keys.stock(sku), keys.dead_letters(sku)]
    return LineCheck(*run_script(client, "check", keys=script_keys, args=[]))
