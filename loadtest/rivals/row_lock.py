"""Locks the stock row, reads it, writes one less and the order, and commits: SELECT … FOR UPDATE a purchase.
Promises that nothing is oversold or lost. Fails to be fast: all who buy stand behind one row, and each of them waits
for four round trips and a flush to disk of everybody before.
"""

from __future__ import annotations

from loadtest.rivals.models import RivalStock
from loadtest.rivals.read_modify_write import read_modify_write
from loadtest.rivals.rival import Answer, Rival


class RowLock(Rival):
    """Correct, one purchase after the other."""

    name = "row-lock"
    title = "select_for_update"
    correct = True
    threads = 2

    def buy(self, sale: str, *, buyer: str, key: str) -> Answer:
        return read_modify_write(RivalStock.objects.select_for_update(), sale, buyer=buyer, key=key)
