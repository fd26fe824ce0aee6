"""Puts a sale and its stock into Redis as the database knows them; safe to repeat. Never admits anyone.
Called by the catalogue when a sale or its stock changes, and when Redis has lost them (I18).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from inventory import keys
from inventory.line_changes import StockFigures
from inventory.locks import FENCE_TTL_MS
from inventory.redis import Argument, Client, run_commands, run_script

PAIRS_PER_CALL = 400


@dataclass(frozen=True, slots=True)
class SaleTerms:
    """What admission must know of a sale. limit: units a buyer; room: units that may queue beyond the stock.

    version: rises with every change, so that an older one never undoes a newer.
    """

    sale_id: int
    sku: str
    switch: str
    opens_at: datetime
    closes_at: datetime
    limit: int
    room: int
    version: int


def microseconds(moment: datetime) -> int:
    """Return an aware datetime as whole µs since 1970."""
    return round(moment.timestamp() * 1_000_000)


def prime_live_units(client: Client, sku: str, *, units_by_field: Sequence[tuple[str, int]]) -> None:
    """Write live units per "sale_id:buyer", unless the SKU is primed already. Raises RedisUnavailable."""
    _prime_pairs(client, "prime_live", [keys.stock(sku), keys.live_units(sku)], units_by_field)


def prime_records(client: Client, sku: str, *, records: Sequence[tuple[str, str]]) -> None:
    """Write decided requests (id, record), unless the SKU is primed already: a retry then finds itself (I14)."""
    _prime_pairs(client, "prime_records", [keys.stock(sku), keys.records(sku), keys.holds(sku)], records)


def _prime_pairs(
    client: Client, script: str, script_keys: Sequence[str], pairs: Sequence[tuple[str, str | int]]
) -> None:
    for start in range(0, len(pairs), PAIRS_PER_CALL):
        flat = [part for pair in pairs[start : start + PAIRS_PER_CALL] for part in pair]
        run_script(client, script, keys=script_keys, args=flat)


def prime(
    client: Client,
    terms: SaleTerms,
    *,
    figures: StockFigures,
    last_seq: int,
    decided: int,
    fence: int,
    forgotten: int = 0,
) -> bool:
    """Write a sale's terms and its stock's figures; say whether the figures were news. Raises RedisUnavailable.

    last_seq: the highest seq in the database, so that a place given out before Redis was lost stays the better one.
    decided: how many requests the database had decided when prime_records read them; it counts only into an empty
    Redis. fence: the highest the stock row has seen. forgotten: how many of the decided are of retired sales.
    """
    window = (microseconds(terms.opens_at), microseconds(terms.closes_at))
    args: list[Argument] = [terms.switch, *window, terms.limit, terms.room, *figures, last_seq, decided]
    args += (keys.settled_channel(), terms.sku, fence, FENCE_TTL_MS, terms.version, forgotten)
    script_keys = [
        keys.sale(terms.sku, sale_id=terms.sale_id),
        keys.stock(terms.sku),
        keys.fence(terms.sku),
        keys.in_flight(terms.sku),
        keys.line(terms.sku),
    ]
    # First of all: a SKU that can be asked for must be one that settlers look at.
    run_commands(client, [("SADD", keys.skus(), terms.sku)])
    written = run_script(client, "prime", keys=script_keys, args=args)
    return bool(written)


def terms_since(client: Client, sku: str, *, sale_id: int) -> tuple[int, int]:
    """Return the version of the terms under which people are let in, and from which seq on. Raises RedisUnavailable."""
    (row,) = run_commands(client, [("HMGET", keys.sale(sku, sale_id=sale_id), "version", "since_us")])
    version, since_us = row
    return int(version or 0), int(since_us or 0)


def is_primed(client: Client, sku: str) -> bool:
    """Say whether Redis knows the stock of `sku`. Raises RedisUnavailable."""
    (known,) = run_commands(client, [("HEXISTS", keys.stock(sku), "version")])
    return bool(known)
