"""Compares a SKU's stock, terms, fence and counters in Redis with the database, and corrects Redis.
Never writes the database; a version guards each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from inventory.line import repair as line_repair
from inventory.line import writing
from inventory.line.repair import StockSeen
from inventory.postgres import Cursor
from inventory.redis import Client
from shop.models import Sale
from shop.sales import catalogue, priming
from workers.reconciler.books import StockRow, stock_row
from workers.reconciler.report import ALARM, FOUND, REPAIRED, Drift

UNPRIMED, BEHIND, DIFFERS, AHEAD = "not_primed", "stock_behind", "stock_differs", "stock_ahead"
TERMS, FENCE = "terms_behind", "fence_behind"


class StockLook(NamedTuple):
    """What both stores said of a SKU in one look, Redis first. revisions: by sale id."""

    seen: StockSeen | None
    row: StockRow
    revisions: Mapping[int, int]


def look_at_stock(client: Client, cursor: Cursor, sku: str, *, sale_ids: Sequence[int]) -> StockLook:
    """Read the stock of `sku` and the revision of its sales in Redis, then in the database. Raises RedisUnavailable."""
    seen = line_repair.stock(client, sku, sale_ids=sale_ids)
    rows = dict(Sale.objects.filter(pk__in=sale_ids).values_list("id", "revision"))
    return StockLook(seen, stock_row(cursor, sku), {sale_id: rows.get(sale_id, 0) for sale_id in sale_ids})


def wrong_with_stock(before: StockLook, now: StockLook) -> dict[str, str]:
    """Return what is wrong (kind → detail) by two looks: Redis still says less than the database said before.

    The same look twice says what may be wrong. What is in flight is left to its settlement.
    """
    if now.seen is None:
        return {} if before.seen is not None else {UNPRIMED: "Redis does not know it"}
    seen, row, found = now.seen, before.row, {}
    still = before.seen is not None and before.seen.version == seen.version and not seen.in_flight
    if seen.version > now.row.version:
        found[AHEAD] = f"Redis has version {seen.version}, the row {now.row.version}"
    elif still and seen.version < row.version:
        found[BEHIND] = f"Redis has version {seen.version}, the row {row.version}"
    elif still and seen.version == now.row.version and seen[:3] != now.row.figures()[:3]:
        found[DIFFERS] = f"Redis says {seen[:3]}, the row {now.row.figures()[:3]}"
    behind = [
        version for version, want in zip(seen.revisions, before.revisions.values(), strict=True) if version < want
    ]
    if behind:
        found[TERMS] = f"Redis has the sale as of revision {behind[0]}"
    if seen.fence < row.fence:
        found[FENCE] = f"Redis would give fences above {seen.fence}, the row has seen {row.fence}"
    return found


def mend_stock(client: Client, sku: str, now: StockLook, wrong: Mapping[str, str], *, repair: bool) -> list[Drift]:
    """Correct in Redis what is wrong; say what was done. Raises RedisUnavailable."""
    mendable = [kind for kind in wrong if kind != AHEAD]
    if repair and BEHIND in mendable:
        writing.publish_changes(client, sku, figures=now.row.figures(), changed=[])
    if repair and mendable and mendable != [BEHIND]:
        for sale_id in now.revisions:
            priming.prime_card(catalogue.find_sale_by_id(sale_id))
    done = REPAIRED if repair else FOUND
    return [Drift(kind, sku, sku, detail, done if kind in mendable else ALARM) for kind, detail in wrong.items()]
