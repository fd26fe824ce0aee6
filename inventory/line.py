"""Hands batches of a SKU's line to the holder of its lock and takes them back settled; reads places. Never decides.
Called by the settler (take, settle), the gate and the pages (status), the catalogue (prime).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog
from django.conf import settings

from inventory import keys
from inventory.exceptions import LockLost, SaleNotPrimed
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
from inventory.tickets import Record, buyer_in, read_record

log = structlog.get_logger(__name__)

MOST_HAND_OUTS = 5  # then a request lies in the dead letters (Q12)
MOST_CHANGES = 500
REFUSAL_TRIES = 3  # so often a dead letter's refusal is tried; then it is set aside and the line goes on


class Handed(NamedTuple):
    """A batch: kind is fresh, again (what a crashed holder left) or dead (one handed out too often)."""

    kind: str
    requests: list[tuple[str, Record]]


class Settled(NamedTuple):
    """One request whose outcome is committed, and its record after it."""

    request_id: str
    record: Record


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
    next_lapse_ms: int = 0  # when the first hold ends, in Unix ms; 0: nothing is held


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
    sku: str,
    *,
    token: str,
    figures: StockFigures,
    settled: Sequence[Settled],
    staying: Sequence[str],
    waits_for: str,
    waits_until_us: int,
) -> tuple[str, Sequence[str], Sequence[Argument]]:
    script_keys = [
        keys.lock(sku),
        keys.in_flight(sku),
        keys.records(sku),
        keys.stock(sku),
        keys.hand_outs(sku),
        keys.live_units(sku),
        keys.line(sku),
        keys.holds(sku),
    ]
    args: list[Argument] = [token, sku, keys.settled_channel(), *figures, waits_for, waits_until_us, MOST_HAND_OUTS]
    args += _changed(settled)
    for name in staying:
        args += (name, "", 0, "")
    return "settle", script_keys, args


def _changed(settled: Sequence[Settled]) -> list[Argument]:
    flat: list[Argument] = []
    for name, record in settled:
        flat += (name, record.text(), record.quantity, live_field(sale_id=record.sale_id, buyer=record.buyer))
    return flat


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
    staying: Sequence[str] = (),
    waits_for: str = "",
    waits_until_us: int = 0,
) -> Handed:
    """Answer `settled` (after its COMMIT, never before) and take the next batch in the same round trip.

    staying: who keeps its place, because the line `waits_for` something (see allocation.py), until `waits_until_us`
    (Unix µs) at most.
    Raises LockLost, RedisUnavailable.
    """
    answered, handed = run_scripts(
        client,
        [
            _settle_call(
                sku,
                token=token,
                figures=figures,
                settled=settled,
                staying=staying,
                waits_for=waits_for,
                waits_until_us=waits_until_us,
            ),
            _take_call(sku, token=token, call=call, batch=batch),
        ],
    )
    if answered == -1:
        raise LockLost
    return _handed(sku, handed)


def settle(
    client: Client,
    sku: str,
    *,
    token: str,
    figures: StockFigures,
    settled: Sequence[Settled],
    staying: Sequence[str] = (),
    waits_for: str = "",
    waits_until_us: int = 0,
) -> int:
    """Answer `settled` without taking more; return how many this call settled. Raises LockLost, RedisUnavailable."""
    name, script_keys, args = _settle_call(
        sku,
        token=token,
        figures=figures,
        settled=settled,
        staying=staying,
        waits_for=waits_for,
        waits_until_us=waits_until_us,
    )
    answered = run_script(client, name, keys=script_keys, args=args)
    if answered == -1:
        raise LockLost
    return int(answered)


def tell_changes(client: Client, sku: str, *, figures: StockFigures, changed: Sequence[Settled]) -> int:
    """Tell the line what a COMMIT changed: orders that ended, and the stock after it; needs no lock.

    Safe to repeat, and in any order: records only go forward, stock versions too. Returns how many records went
    forward. Raises RedisUnavailable; the reconciler then tells it later.
    """
    script_keys = [
        keys.stock(sku),
        keys.records(sku),
        keys.live_units(sku),
        keys.line(sku),
        keys.holds(sku),
        keys.in_flight(sku),
        keys.dead_letters(sku),
    ]
    done = 0
    for start in range(0, max(len(changed), 1), MOST_CHANGES):
        args: list[Argument] = [sku, keys.settled_channel(), keys.wake_channel(), *figures]
        args += _changed(changed[start : start + MOST_CHANGES])
        done += int(run_script(client, "change", keys=script_keys, args=args))
    return done


def due_holds(client: Client, skus: Sequence[str], *, now_ms: int, most: int) -> dict[str, list[str]]:
    """Return, of each SKU that has any, up to `most` requests whose hold has ended at `now_ms` (Unix ms).

    Raises RedisUnavailable.
    """
    commands = [("ZRANGE", keys.holds(sku), "-inf", now_ms, "BYSCORE", "LIMIT", 0, most) for sku in skus]
    found = run_commands(client, commands) if commands else []
    return {sku: list(names) for sku, names in zip(skus, found, strict=True) if names}


def known_skus(client: Client) -> list[str]:
    """Return every SKU that was ever primed, by name. Raises RedisUnavailable."""
    (known,) = run_commands(client, [("SMEMBERS", keys.skus())])
    return sorted(known)


def restore(client: Client, sku: str, *, request_id: str, record: Record) -> bool:
    """Let a request wait again at the seq of its record; False when it is known already.

    Raises SaleNotPrimed, RedisUnavailable.
    """
    script_keys = [keys.stock(sku), keys.line(sku), keys.records(sku), keys.live_units(sku)]
    args: list[Argument] = [sku, keys.wake_channel(), request_id, record.seq, record.quantity, record.sale_id]
    done = run_script(client, "restore", keys=script_keys, args=[*args, record.buyer])
    if done == -1:
        raise SaleNotPrimed
    return bool(done)


def give_back(client: Client, sku: str, *, token: str, seen_fence: int = 0) -> None:
    """Leave the batch in flight without counting a hand-out: it was not at fault.

    seen_fence: what the stock row has seen; the next holder's fence is above it. Raises LockLost, RedisUnavailable.
    """
    script_keys = [keys.lock(sku), keys.stock(sku), keys.fence(sku)]
    if run_script(client, "give_back", keys=script_keys, args=[token, seen_fence, FENCE_TTL_MS]) == -1:
        raise LockLost


def _status_keys(sku: str) -> list[str]:
    return [keys.line(sku), keys.in_flight(sku), keys.records(sku), keys.stock(sku)]


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


STOCK_FIELDS = LineFigures._fields[:-2]
COMMANDS_A_SALE = 3


def _figures(row: Sequence[str | None], terms_version: str | None, first: Sequence[Any]) -> LineFigures | None:
    if row[0] is None:
        return None
    next_lapse_ms = int(float(first[1])) if first else 0
    return LineFigures(*(int(value or 0) for value in (*row, terms_version, next_lapse_ms)))


def _figures_commands(sku: str, sale_id: int) -> list[Sequence[Argument]]:
    return [
        ("HMGET", keys.stock(sku), *STOCK_FIELDS),
        ("HGET", keys.sale(sku, sale_id=sale_id), "version"),
        ("ZRANGE", keys.holds(sku), 0, 0, "WITHSCORES"),
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
