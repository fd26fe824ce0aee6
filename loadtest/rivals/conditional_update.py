"""Writes the order, then takes a unit by UPDATE … WHERE available > 0, last of all so that the row is locked briefly.
Promises that nothing is oversold or lost: the condition and the write are one statement. Fails to be fast: the row
stays locked until the disk has the commit, so purchases go one flush after the other.
"""

from __future__ import annotations

from contextlib import suppress

from django.db import transaction
from django.db.models import F

from loadtest.rivals.models import RivalStock
from loadtest.rivals.rival import AlreadySold, Answer, Rival, SoldOut, write_order


class ConditionalUpdate(Rival):
    """Correct; what a careful engineer writes without a queue."""

    name = "conditional-update"
    title = "conditional UPDATE"
    correct = True
    threads = 2

    def buy(self, sale: str, *, buyer: str, key: str) -> Answer:
        try:
            with suppress(AlreadySold), transaction.atomic():
                write_order(sale, buyer=buyer, key=key)
                if not RivalStock.objects.filter(sale=sale, available__gt=0).update(available=F("available") - 1):
                    raise SoldOut
        except SoldOut:
            return Answer.SOLD_OUT
        return Answer.HELD
