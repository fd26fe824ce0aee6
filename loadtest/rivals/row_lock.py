"""Locks the stock row, reads it, writes one less and the order, and commits: SELECT … FOR UPDATE a purchase.
Promises that nothing is oversold or lost. Fails to be fast: all who buy stand behind one row, and each of them waits
for four round trips and a flush to disk of everybody before. Called through the rivals' view.
"""

from __future__ import annotations

from contextlib import suppress

from django.db import transaction

from loadtest.rivals.models import RivalStock
from loadtest.rivals.rival import AlreadySold, Answer, Rival, told_before, write_order


class RowLock(Rival):
    """Correct, one purchase after the other."""

    name = "row-lock"
    title = "select_for_update"
    correct = True
    threads = 2

    def buy(self, sale: str, *, buyer: str, key: str) -> Answer:
        with suppress(AlreadySold), transaction.atomic():
            row = RivalStock.objects.select_for_update().get(sale=sale)
            if row.available < 1:
                return told_before(sale, buyer=buyer, key=key)
            row.available -= 1
            row.save(update_fields=["available"])
            write_order(sale, buyer=buyer, key=key)
        return Answer.HELD
