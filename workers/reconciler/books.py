"""Reads a SKU's stock row, movements and orders, and says where they disagree (I2, I2b, I5).
Never changes any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from django.db import connection

from inventory.postgres import Cursor
from inventory.records import StockFigures
from shop.models import Sale
from workers.reconciler.report import ALARM, Drift

PAGE = 250

STOCK = "SELECT available, held, sold, version, fence FROM inventory_stock WHERE sku = %(sku)s"
# The last figure is 0 when the same requests have the same units by the orders and by the movements.
SUMS = """
SELECT s.available, s.held, s.sold, s.total, m.available, m.total, d.held, d.sold, m.units + d.units
FROM inventory_stock s,
LATERAL (SELECT coalesce(sum(delta), 0)::int AS available,
                coalesce(sum(delta) FILTER (WHERE kind IN ('load', 'adjust')), 0)::int AS total,
                coalesce(sum(delta * hashtext(request_id)::bigint), 0) AS units
         FROM inventory_stockmovement WHERE stock_id = s.id) AS m,
LATERAL (SELECT coalesce(sum(quantity) FILTER (WHERE state = 'held'), 0)::int AS held,
                coalesce(sum(quantity) FILTER (WHERE state = 'paid'), 0)::int AS sold,
                coalesce(sum(quantity * hashtext(request_id)::bigint) FILTER (WHERE state IN ('held', 'paid')), 0)
                    AS units
         FROM inventory_decision WHERE stock_id = s.id) AS d
WHERE s.sku = %(sku)s
"""
# Requests that have units by orders but not by movements, or the other way round: names for a sum that is wrong.
UNMATCHED = """
SELECT coalesce(d.request_id, m.request_id), coalesce(d.state, 'never decided'), coalesce(d.quantity, 0),
       coalesce(m.delta, 0)
FROM (SELECT request_id, state, quantity FROM inventory_decision
      WHERE stock_id = (SELECT id FROM inventory_stock WHERE sku = %(sku)s) AND state IN ('held', 'paid')) d
FULL JOIN (SELECT request_id, sum(delta)::int AS delta FROM inventory_stockmovement
           WHERE stock_id = (SELECT id FROM inventory_stock WHERE sku = %(sku)s) AND request_id IS NOT NULL
           GROUP BY request_id HAVING sum(delta) <> 0) m USING (request_id)
WHERE d.quantity IS DISTINCT FROM -m.delta ORDER BY 1 LIMIT 100
"""
# Hashes of ids add up to the same sum for the same orders, so nobody need read them twice to know that none is missing.
ORDERS_THERE = """
SELECT coalesce(max(id), 0), coalesce(sum(hashint8(id)), 0) FROM shop_order WHERE sale_id = ANY(%(sale_ids)s)
"""
DIFFERING = """
SELECT coalesce(array_agg(r.name) FILTER (
           WHERE r.asked <> concat_ws('|', o.state, o.quantity, o.sale_id, o.buyer)), '{}'),
       coalesce(sum(hashint8(o.id)) FILTER (WHERE o.id <= %(last_id)s AND o.sale_id = ANY(%(sale_ids)s)), 0)
FROM unnest(string_to_array(%(names)s, ','), string_to_array(%(asked)s, ',')) AS r (name, asked)
LEFT JOIN shop_order o ON o.request_id = r.name
"""
ORDERS = """
SELECT request_id, buyer, id FROM shop_order
WHERE sale_id = %(sale_id)s AND (buyer, id) > (%(buyer)s, %(id)s) ORDER BY buyer, id LIMIT %(limit)s
"""


class StockRow(NamedTuple):
    """The stock row of a SKU as one moment saw it."""

    available: int
    held: int
    sold: int
    version: int
    fence: int

    def figures(self) -> StockFigures:
        """Return it as Redis is told of it."""
        return StockFigures(self.available, self.held, self.sold, self.version)


class SkuOnSale(NamedTuple):
    """The sales of a SKU that are not retired, and the version of its stock row."""

    sale_ids: list[int]
    version: int


def skus_on_sale() -> dict[str, SkuOnSale]:
    """Return what is known of every SKU that has a sale that is not retired, by SKU."""
    found: dict[str, SkuOnSale] = {}
    rows = Sale.objects.filter(retired_at__isnull=True).order_by("stock__sku", "id")
    for sku, sale_id, version in rows.values_list("stock__sku", "id", "stock__version"):
        found.setdefault(sku, SkuOnSale([], version)).sale_ids.append(sale_id)
    return found


def stock_row(cursor: Cursor, sku: str) -> StockRow:
    """Return the stock row of `sku`, which exists."""
    cursor.execute(STOCK, {"sku": sku})
    return StockRow(*cursor.fetchone())


def check_books(sku: str) -> list[Drift]:
    """Return where row, movements and orders of `sku` disagree: alarms only, counts are never mended.

    Each comparison is one statement, so one moment: what is being settled is in all of them or in none.
    """
    with connection.cursor() as cursor:
        cursor.execute(SUMS, {"sku": sku})
        available, held, sold, total, moved, loaded, orders_held, orders_paid, unmatched = cursor.fetchone()
        rows = []
        if unmatched:
            cursor.execute(UNMATCHED, {"sku": sku})
            rows = cursor.fetchall()
    pairs = {
        "available, by the movements": (available, moved),
        "total, by what was loaded and adjusted": (total, loaded),
        "total, by its parts": (total, available + held + sold),
        "held, by the orders": (held, orders_held),
        "sold, by the orders": (sold, orders_paid),
    }
    found = [
        Drift("books", sku, sku, f"{what}: the row says {one}, not {other}", ALARM)
        for what, (one, other) in pairs.items()
        if one != other
    ]
    for name, state, quantity, delta in rows:
        found.append(Drift("unit", sku, name, f"order {state} {quantity}, movements {delta:+d}", ALARM))
    return found


class OrdersThere:
    """The orders that some sales have at this moment; notes which of them are met while records are read."""

    def __init__(self, sale_ids: Sequence[int]) -> None:
        self._sale_ids = list(sale_ids)
        with connection.cursor() as cursor:
            cursor.execute(ORDERS_THERE, {"sale_ids": self._sale_ids})
            self._last_id, self._not_met = cursor.fetchone()

    @property
    def all_met(self) -> bool:
        """Say whether every one of these orders was met, once."""
        return bool(self._not_met == 0)

    def differing(self, asked: Mapping[str, str]) -> list[str]:
        """Meet the orders of some requests; return the ids of those that have none, or one that says something else.

        asked: request id → "state|quantity|sale id|buyer".
        """
        values = {"names": ",".join(asked), "asked": ",".join(asked.values())}
        with connection.cursor() as cursor:
            cursor.execute(DIFFERING, {**values, "last_id": self._last_id, "sale_ids": self._sale_ids})
            names, met = cursor.fetchone()
        self._not_met -= met
        return list(names)


def order_pages(sale_id: int) -> Iterator[list[str]]:
    """Yield the request id of every order of a sale, some hundred at a time, without sorting them all."""
    buyer, last_id = "", 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(ORDERS, {"sale_id": sale_id, "buyer": buyer, "id": last_id, "limit": PAGE})
            rows = cursor.fetchall()
        if rows:
            yield [name for name, _, _ in rows]
        if len(rows) < PAGE:
            return
        _, buyer, last_id = rows[-1]
