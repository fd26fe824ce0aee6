"""Reads the stock, and if there is some, writes one less: what the first draft of most shops does.
Promises nothing under concurrency: two who read the same number write the same number, and both have an order.
Neither the transaction nor the constraint that stock is not negative helps.
"""

from __future__ import annotations

from contextlib import suppress

from django.db import transaction
from django.db.models import QuerySet

from loadtest.rivals.models import RivalStock
from loadtest.rivals.rival import AlreadySold, Answer, Rival, told_before, write_order


class ReadModifyWrite(Rival):
    """Fails: oversells as soon as two buy at once."""

    name = "read-modify-write"
    title = "read, modify, write"
    correct = False

    def buy(self, sale: str, *, buyer: str, key: str) -> Answer:
        return read_modify_write(RivalStock.objects.all(), sale, buyer=buyer, key=key)


def read_modify_write(rows: QuerySet[RivalStock], sale: str, *, buyer: str, key: str) -> Answer:
    """Read the stock from `rows`; if there is some, write one less and the order, and commit.

    Alone it guards nothing: it is as safe as `rows` is locked, or as its caller keeps others away.
    """
    with suppress(AlreadySold), transaction.atomic():
        row = rows.get(sale=sale)
        if row.available < 1:
            return told_before(sale, buyer=buyer, key=key)
        row.available -= 1
        row.save(update_fields=["available"])
        write_order(sale, buyer=buyer, key=key)
    return Answer.HELD
