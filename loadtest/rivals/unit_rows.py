"""A row for each unit: writes the order, then takes a row that nobody has locked, SELECT … FOR UPDATE SKIP LOCKED.
Promises that nothing is oversold or lost, and that purchases do not wait for each other. Fails to be fast: every
purchase is a transaction with a flush to disk, and each scan passes over the rows that were taken before it.
"""

from __future__ import annotations

from contextlib import suppress

from django.db import connection, transaction

from loadtest.rivals.rival import AlreadySold, Rival, RivalAnswer, RivalBooks, SoldOut, write_order

ADD = "INSERT INTO rival_unit (sale, taken) SELECT %s, false FROM generate_series(1, %s)"
TAKE = """
UPDATE rival_unit SET taken = true
WHERE id = (SELECT id FROM rival_unit WHERE sale = %s AND NOT taken LIMIT 1 FOR UPDATE SKIP LOCKED)
"""
LEFT = "SELECT count(*) FROM rival_unit WHERE sale = %s AND NOT taken"


class UnitRows(Rival):
    """Correct, with PostgreSQL alone.

    A locked row is always taken in the end: the order, which may be refused, is written before the row is locked.
    """

    name = "unit-rows"
    title = "SKIP LOCKED over unit rows"
    correct = True

    def prepare(self, sale: str, *, units: int) -> None:
        super().prepare(sale, units=units)
        run(ADD, sale, units)

    def restock(self, sale: str, *, units: int) -> None:
        super().restock(sale, units=units)
        run(ADD, sale, units)

    def buy(self, sale: str, *, buyer: str, key: str) -> RivalAnswer:
        try:
            with suppress(AlreadySold), transaction.atomic():
                write_order(sale, buyer=buyer, key=key)
                if not run(TAKE, sale):
                    raise SoldOut
        except SoldOut:
            return RivalAnswer.SOLD_OUT
        return RivalAnswer.HELD

    def books(self, sale: str) -> RivalBooks:
        books = super().books(sale)
        with connection.cursor() as cursor:
            cursor.execute(LEFT, [sale])
            return RivalBooks(units=books.units, orders=books.orders, left=cursor.fetchone()[0])


def run(statement: str, *arguments: str | int) -> int:
    """Run a statement that returns no rows; return how many rows it wrote."""
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        return int(cursor.rowcount)
