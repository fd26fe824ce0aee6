"""Reads the stock, and if there is some, writes one less: what the first draft of most shops does.
Promises nothing under concurrency: two who read the same number write the same number, and both have an order.
Neither the transaction nor the constraint that stock is not negative helps. Called through the rivals' view.
"""

from __future__ import annotations

from contextlib import suppress

from django.db import transaction

from loadtest.rivals.models import RivalStock
from loadtest.rivals.rival import AlreadySold, Answer, Rival, told_before, write_order


class ReadModifyWrite(Rival):
    """Fails: oversells as soon as two buy at once."""

    name = "read-modify-write"
    title = "read, modify, write"
    correct = False

    def buy(self, sale: str, *, buyer: str, key: str) -> Answer:
        with suppress(AlreadySold), transaction.atomic():
            row = RivalStock.objects.get(sale=sale)
            if row.available < 1:
                return told_before(sale, buyer=buyer, key=key)
            row.available -= 1
            row.save(update_fields=["available"])
            write_order(sale, buyer=buyer, key=key)
        return Answer.HELD
