"""Puts a sale and its stock into Redis as the database knows them; safe to repeat. Never admits anyone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from inventory.exceptions import RedisUnavailable
from inventory.records import StockFigures
from inventory.redis import Argument, Client, keys, run_commands, run_script, sending_once, shards_of

PAIRS_PER_CALL = 400


@dataclass(frozen=True, slots=True)
class SaleTerms:
    """What admission must know of a sale. line_capacity: units that may queue beyond the stock.

    revision: rises with every change, so that an older one never undoes a newer. terms_version: of the terms in force.
    ordinal_base: where ordinals go on, None when it was never primed.
    """

    sale_id: int
    sku: str
    operator_state: str
    opens_at: datetime
    closes_at: datetime
    per_buyer_limit: int
    line_capacity: int
    revision: int
    terms_version: int
    ordinal_base: int | None

    def text(self) -> str:
        """Return it as Redis stores it, but for the moment of the change."""
        opens_us, closes_us = microseconds(self.opens_at), microseconds(self.closes_at)
        window = f"{self.operator_state}|{opens_us}|{closes_us}"
        return f"{window}|{self.per_buyer_limit}|{self.line_capacity}|{self.revision}|{self.terms_version}"


def microseconds(moment: datetime) -> int:
    """Return an aware datetime as whole µs since 1970."""
    return round(moment.timestamp() * 1_000_000)


def prime_fields(client: Client, sku: str, *, key: str, pairs: Sequence[tuple[str, str | int]]) -> None:
    """Write fields and values of a hash of `sku`, unless it is primed already. Raises RedisUnavailable.

    key: of its records (a retry then finds itself, I14), its live units, or how many requests ended unsold.
    """
    for start in range(0, len(pairs), PAIRS_PER_CALL):
        flat = [part for pair in pairs[start : start + PAIRS_PER_CALL] for part in pair]
        run_script(client, "prime_fields", keys=[keys.stock(sku), key], args=flat)


class Primed(IntEnum):
    """What became of the figures."""

    NO_NEWS = 0
    WRITTEN = 1
    MUST_MOVE_ORDINALS = 2  # nothing was written


def prime(
    client: Client,
    terms: SaleTerms,
    *,
    versions: Mapping[str, str],
    figures: StockFigures,
    last_seq: int,
    fence: int,
    begins: bool = False,
    grace_seconds: float = 0.0,
) -> Primed:
    """Write a sale's terms and its stock's figures. Raises RedisUnavailable.

    versions: of every terms version there was: version → "limit|price|currency", "version:hold" → seconds.
    begins: its ordinals may begin after its base: it was never primed, or the base was moved above a jump.
    last_seq: the highest seq in the database, so that a place given out before Redis was lost stays the better one.
    fence: the highest the stock row has seen.
    grace_seconds: how long an empty Redis decides nobody, so that those who have a ticket can bring it.
    """
    args: list[Argument] = [
        terms.sale_id,
        terms.text(),
        terms.revision,
        f"{terms.ordinal_base or 0}{'+' if begins else ''}",
        *figures,
        last_seq,
        keys.settled_channel(),
        terms.sku,
        fence,
        keys.FENCE_TTL_MS,
        round(grace_seconds * 1_000_000),
    ]
    args += [part for pair in versions.items() for part in pair]
    # First of all: a SKU that can be asked for must be one that settlers look at.
    _list_sku(client, terms.sku)
    # Sent again after a second loss, it would let ordinals begin where some were given before it.
    sender = sending_once(client) if begins else client
    return Primed(run_script(sender, "prime", keys=_keys(terms.sku), args=args))


def _list_sku(client: Client, sku: str) -> None:
    """Name a SKU in the list that workers go by.

    The list is one key, so on one shard of a Cluster. While that is away the SKUs of the others are primed all the
    same: settlers read the database then, and the reconciler lists what is missing afterwards.
    """
    try:
        # Not written again: a full Redis refuses SADD, and staff must be able to pause a sale there.
        if not run_commands(client, [("SISMEMBER", keys.skus(), sku)])[0]:
            run_commands(client, [("SADD", keys.skus(), sku)])
    except RedisUnavailable:
        if shards_of(client) is None:
            raise


def _keys(sku: str) -> list[str]:
    return [make(sku) for make in (keys.sales, keys.stock, keys.fence, keys.in_flight, keys.line, keys.records)]


def is_primed(client: Client, sku: str) -> bool:
    """Say whether Redis knows the stock of `sku`. Raises RedisUnavailable."""
    (known,) = run_commands(client, [("HEXISTS", keys.stock(sku), "version")])
    return bool(known)


def has_ordinals(client: Client, terms: SaleTerms) -> bool:
    """Say whether Redis knows how many admissions a sale has had. Raises RedisUnavailable."""
    (known,) = run_commands(client, [("HEXISTS", keys.sales(terms.sku), f"{terms.sale_id}:ordinals")])
    return bool(known)
