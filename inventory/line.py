"""Hands batches of a SKU's line to the holder of its lock and takes them back settled; reads places. Never decides.
Called by the settler (take, settle), the gate and the pages (status), the catalogue (prime).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog
from django.conf import settings

from inventory import keys
from inventory.exceptions import LockLost
from inventory.locks import FENCE_TTL_MS
from inventory.redis import (
    Argument,
    AsyncClient,
    Client,
    run_commands,
    run_commands_async,
    run_script,
    run_script_async,
    run_scripts,
)
from inventory.tickets import Record, read_record

log = structlog.get_logger(__name__)

MOST_HAND_OUTS = 5  # then a request lies in the dead letters (Q12)
REFUSAL_TRIES = 3  # so often a dead letter's refusal is tried; then it is set aside and the line goes on


class Handed(NamedTuple):
    """A batch: kind is fresh, again (what a crashed holder left) or dead (one handed out too often)."""

    kind: str
    requests: list[tuple[str, Record]]


class Settled(NamedTuple):
    """One settled request: its new record, and the live field to take its units off, or '' to leave them."""

    request_id: str
    record: Record
    frees_units: bool


class StockFigures(NamedTuple):
    """The stock as the database has it after a commit; returning = held units that may still come back."""

    available: int
    held: int
    sold: int
    returning: int
    version: int


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


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request stands; position 1 is next, 0 means it does not wait."""

    record: Record
    position: int


def live_field(*, sale_id: int, buyer: str) -> str:
    """Return the field of the live-units hash that counts `buyer` in a sale."""
    return f"{sale_id}:{buyer}"


def _take_call(sku: str, *, token: str, call: int, batch: int) -> tuple[str, Sequence[str], Sequence[Argument]]:
    script_keys = [
        keys.lock(sku),
        keys.line(sku),
        keys.in_flight(sku),
        keys.records(sku),
        keys.stock(sku),
        keys.hand_outs(sku),
        keys.dead_letters(sku),
        keys.dead_letter_notes(sku),
    ]
    return "take", script_keys, [token, call, batch, MOST_HAND_OUTS, MOST_HAND_OUTS + REFUSAL_TRIES, "line"]


def _settle_call(
    sku: str, *, token: str, figures: StockFigures, settled: Sequence[Settled]
) -> tuple[str, Sequence[str], Sequence[Argument]]:
    script_keys = [
        keys.lock(sku),
        keys.in_flight(sku),
        keys.records(sku),
        keys.stock(sku),
        keys.hand_outs(sku),
        keys.live_units(sku),
    ]
    args: list[Argument] = [token, sku, keys.settled_channel(), *figures]
    for name, record, frees_units in settled:
        freed = live_field(sale_id=record.sale_id, buyer=record.buyer) if frees_units else ""
        args += (name, record.text(), record.quantity, freed)
    return "settle", script_keys, args


def _handed(sku: str, reply: Any) -> Handed:
    if reply == -1:
        raise LockLost
    kind, aside, *flat = reply
    for name in aside.split():
        log.error("not even its refusal could be written", action="dead_letter_set_aside", sku=sku, request=name)
    parts = iter(flat)
    return Handed(kind, [(name, _sound_record(name, text)) for name, text in zip(parts, parts, strict=True)])


def _sound_record(name: str, text: str) -> Record:
    try:
        return read_record(text)
    except (ValueError, KeyError) as error:
        raise ValueError(f"the record of request {name} is damaged: {text[:200]!r}") from error


def take(client: Client, sku: str, *, token: str, call: int, batch: int) -> Handed:
    """Take up to `batch` requests under the lock `token`; `call` rises with each take of this token.

    What a dead holder left in flight comes first: all together, then one at a time (S19).
    Raises LockLost, RedisUnavailable, ValueError when a record is damaged (that request ends in the dead letters).
    """
    name, script_keys, args = _take_call(sku, token=token, call=call, batch=batch)
    return _handed(sku, run_script(client, name, keys=script_keys, args=args))


def settle_and_take(
    client: Client,
    sku: str,
    *,
    token: str,
    figures: StockFigures,
    settled: Sequence[Settled],
    call: int,
    batch: int,
) -> Handed:
    """Answer `settled` (after its COMMIT, never before) and take the next batch in the same round trip.

    Raises LockLost, RedisUnavailable.
    """
    answered, handed = run_scripts(
        client,
        [
            _settle_call(sku, token=token, figures=figures, settled=settled),
            _take_call(sku, token=token, call=call, batch=batch),
        ],
    )
    if answered == -1:
        raise LockLost
    return _handed(sku, handed)


def settle(client: Client, sku: str, *, token: str, figures: StockFigures, settled: Sequence[Settled]) -> int:
    """Answer `settled` without taking more; return how many this call settled. Raises LockLost, RedisUnavailable."""
    name, script_keys, args = _settle_call(sku, token=token, figures=figures, settled=settled)
    answered = run_script(client, name, keys=script_keys, args=args)
    if answered == -1:
        raise LockLost
    return int(answered)


def give_back(client: Client, sku: str, *, token: str, seen_fence: int = 0) -> None:
    """Leave the batch in flight without counting a hand-out: it was not at fault.

    seen_fence: what the stock row has seen; the next holder's fence is above it. Raises LockLost, RedisUnavailable.
    """
    script_keys = [keys.lock(sku), keys.stock(sku), keys.fence(sku)]
    if run_script(client, "give_back", keys=script_keys, args=[token, seen_fence, FENCE_TTL_MS]) == -1:
        raise LockLost


def _status_keys(sku: str) -> list[str]:
    return [keys.line(sku), keys.in_flight(sku), keys.records(sku)]


def _places(flat: list[Any]) -> list[Place | None]:
    parts = iter(flat)
    return [
        Place(read_record(record), int(position)) if record else None
        for record, position in zip(parts, parts, strict=True)
    ]


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
    """Return the primed SKUs whose line or flight is not empty, by name. Raises RedisUnavailable."""
    (known,) = run_commands(client, [("SMEMBERS", keys.skus())])
    names = sorted(known)
    commands = [("ZCARD", key(sku)) for sku in names for key in (keys.line, keys.in_flight)]
    counts = run_commands(client, commands) if commands else []
    return [sku for sku, waiting, flying in zip(names, counts[::2], counts[1::2], strict=True) if waiting or flying]


STOCK_FIELDS = LineFigures._fields[:-1]


def _figures(row: Sequence[str | None], terms_version: str | None) -> LineFigures | None:
    return None if row[0] is None else LineFigures(*(int(value or 0) for value in (*row, terms_version)))


def _figures_commands(sku: str, sale_id: int) -> list[Sequence[Argument]]:
    return [("HMGET", keys.stock(sku), *STOCK_FIELDS), ("HGET", keys.sale(sku, sale_id=sale_id), "version")]


async def figures_async(client: AsyncClient, sales: Sequence[tuple[str, int]]) -> list[LineFigures | None]:
    """Return the figures of each (sku, sale_id), None for one that is not primed. Raises RedisUnavailable."""
    commands = [command for sku, sale_id in sales for command in _figures_commands(sku, sale_id)]
    rows = await run_commands_async(client, commands, timeout_seconds=settings.REDIS_TIMEOUT_SECONDS)
    return [_figures(row, terms) for row, terms in zip(rows[::2], rows[1::2], strict=True)]


def figures(client: Client, sku: str, *, sale_id: int = 0) -> LineFigures | None:
    """Return the figures of one SKU and sale, None when it is not primed. Raises RedisUnavailable."""
    return _figures(*run_commands(client, _figures_commands(sku, sale_id)))


async def known_ids_async(client: AsyncClient, sku: str) -> set[str]:
    """Return the id of every request ever admitted to the line of `sku`. Raises RedisUnavailable."""
    found: set[str] = set()
    cursor = "0"
    while True:
        command = ("HSCAN", keys.records(sku), cursor, "COUNT", 1000)
        ((cursor, flat),) = await run_commands_async(client, [command], timeout_seconds=settings.REDIS_TIMEOUT_SECONDS)
        found.update(flat)
        if str(cursor) == "0":
            return found


def check(client: Client, sku: str) -> LineCheck:
    """Return the state of a SKU's line, read in one moment. Raises RedisUnavailable."""
    script_keys = [keys.line(sku), keys.in_flight(sku), keys.stock(sku), keys.dead_letters(sku)]
    return LineCheck(*run_script(client, "check", keys=script_keys, args=[]))
