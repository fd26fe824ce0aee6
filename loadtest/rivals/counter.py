"""A sale's units as one number in Redis, as the rivals that count there keep it.
Never goes back to the database for it.
"""

from __future__ import annotations

from loadtest.rivals.rival import Books, Rival
from loadtest.rivals.stores import redis_client


def counter_key(sale: str) -> str:
    """Return the key of the number of units left."""
    return f"rival:{sale}:left"


class CountingRival(Rival):
    """A rival whose stock is a number in Redis; the database has only the orders."""

    def prepare(self, sale: str, *, units: int) -> None:
        super().prepare(sale, units=units)
        redis_client().set(counter_key(sale), units)

    def restock(self, sale: str, *, units: int) -> None:
        super().restock(sale, units=units)
        redis_client().incrby(counter_key(sale), units)

    def books(self, sale: str) -> Books:
        books = super().books(sale)
        return Books(units=books.units, orders=books.orders, left=int(redis_client().get(counter_key(sale))))
