"""Adds up money from the history of orders: taken when an order was paid, given back when it was refunded.
Never adds one currency to another. Never counts money that came too late and went back: it bought nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from operator import add
from typing import NamedTuple, TypeVar

from django.db import connection

Key = TypeVar("Key")
# An order's history begins with "paid" for its money and ends with "refunded"; only from "paid" was it ours before.
# The condition is that of the index event_of_money.
ROWS = """
SELECT (e.at AT TIME ZONE 'UTC')::date, s.id, s.slug, o.currency,
       coalesce(sum(o.quantity) FILTER (WHERE e.to_state = 'paid'), 0),
       coalesce(sum(o.quantity) FILTER (WHERE e.from_state = 'paid'), 0),
       coalesce(sum(o.quantity * o.unit_price) FILTER (WHERE e.to_state = 'paid'), 0),
       coalesce(sum(o.quantity * o.unit_price) FILTER (WHERE e.from_state = 'paid'), 0)
FROM shop_orderevent e JOIN shop_order o ON o.id = e.order_id JOIN shop_sale s ON s.id = o.sale_id
WHERE (e.to_state = 'paid' OR e.from_state = 'paid')
  AND e.at >= %(first)s::date::timestamp AT TIME ZONE 'UTC'
  AND e.at < (%(last)s::date + 1)::timestamp AT TIME ZONE 'UTC'
GROUP BY 1, 2, 3, 4 ORDER BY 1 DESC, 2 DESC, 4
"""
OF_SALES = """
SELECT sale_id, currency, sum(quantity * unit_price), count(*) FROM shop_order
WHERE sale_id = ANY(%(sale_ids)s) AND state = 'paid' GROUP BY sale_id, currency ORDER BY sale_id, currency
"""


class Money(NamedTuple):
    """Units and amounts in one currency. taken: what was paid; returned: what of it was refunded."""

    units: int
    units_returned: int
    taken: Decimal
    returned: Decimal

    @property
    def net(self) -> Decimal:
        """What is left; of a single day it may be below zero."""
        return self.taken - self.returned


class MoneyRow(NamedTuple):
    """The money of one sale on one day, in one currency."""

    day: date
    sale_id: int
    slug: str
    currency: str
    money: Money


def read_rows(first: date, last: date) -> list[MoneyRow]:
    """Return the money from `first` to `last` (days of UTC, both included), the newest day first."""
    with connection.cursor() as cursor:
        cursor.execute(ROWS, {"first": first, "last": last})
        return [MoneyRow(day, sale_id, slug, currency, Money(*sums)) for day, sale_id, slug, currency, *sums in cursor]


def by_day(rows: Iterable[MoneyRow]) -> list[tuple[date, str, Money]]:
    """Return the money of each day and currency, in the order of `rows`."""
    sums = _add_up(((row.day, row.currency), row.money) for row in rows)
    return [(*key, money) for key, money in sums.items()]


def by_sale(rows: Iterable[MoneyRow]) -> list[tuple[int, str, str, Money]]:
    """Return the money of each sale and currency, the newest sale first."""
    sums = _add_up(((row.sale_id, row.slug, row.currency), row.money) for row in rows)
    return [(*key, sums[key]) for key in sorted(sums, key=lambda key: (-key[0], key[2]))]


def in_all(rows: Iterable[MoneyRow]) -> list[tuple[str, Money]]:
    """Return the money of each currency."""
    return sorted(_add_up((row.currency, row.money) for row in rows).items())


def _add_up(moneys: Iterable[tuple[Key, Money]]) -> dict[Key, Money]:
    sums: dict[Key, Money] = {}
    for key, money in moneys:
        sums[key] = Money(*map(add, sums[key], money)) if key in sums else money
    return sums


class Earned(NamedTuple):
    """What a sale has earned in one currency, and with how many orders that are paid."""

    currency: str
    amount: Decimal
    orders: int


def of_sales(sale_ids: Sequence[int]) -> dict[int, list[Earned]]:
    """Return what each sale has earned so far, refunds subtracted, by currency; one query."""
    found: dict[int, list[Earned]] = {}
    with connection.cursor() as cursor:
        cursor.execute(OF_SALES, {"sale_ids": list(sale_ids)})
        for sale_id, *earned in cursor:
            found.setdefault(sale_id, []).append(Earned(*earned))
    return found
