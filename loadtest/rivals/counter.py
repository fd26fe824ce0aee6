"""A sale's units as one number in Redis, as the rivals that count there keep it, and the simplest of them.
Never goes back to the database for it.
"""

from __future__ import annotations

from contextlib import suppress

from loadtest.rivals.rival import AlreadySold, Rival, RivalAnswer, RivalBooks, redis_client, told_before, write_order


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

    def books(self, sale: str) -> RivalBooks:
        books = super().books(sale)
        return RivalBooks(units=books.units, orders=books.orders, left=int(redis_client().get(counter_key(sale))))


class CounterAlone(CountingRival):
    """Decrements a number in Redis, and if it was not below zero, writes the order: the popular fast one.

    Promises that nothing is oversold. Fails to sell everything: a unit that was counted down and got no order (a
    repeated click, a failed insert, a crash) is gone, and refusals count below zero and swallow a restock.
    """

    name = "counter-alone"
    title = "DECR, no compensation"
    correct = False

    def buy(self, sale: str, *, buyer: str, key: str) -> RivalAnswer:
        if redis_client().decr(counter_key(sale)) < 0:
            return told_before(sale, buyer=buyer, key=key)
        with suppress(AlreadySold):  # of a repeated click: the unit just counted down is nobody's
            write_order(sale, buyer=buyer, key=key)
        return RivalAnswer.HELD
