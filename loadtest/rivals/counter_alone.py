"""Decrements a number in Redis, and if it was not below zero, writes the order: the popular fast one.
Promises that nothing is oversold. Fails to sell everything: a unit that was counted down and got no order (a repeated
click, a failed insert, a crash) is gone, and refusals count below zero and swallow a restock.
"""

from __future__ import annotations

from contextlib import suppress

from loadtest.rivals.counter import CountingRival, counter_key
from loadtest.rivals.rival import AlreadySold, Answer, told_before, write_order
from loadtest.rivals.stores import redis_client


class CounterAlone(CountingRival):
    """Fails: undersells with every repeated click."""

    name = "counter-alone"
    title = "DECR, no compensation"
    correct = False

    def buy(self, sale: str, *, buyer: str, key: str) -> Answer:
        if redis_client().decr(counter_key(sale)) < 0:
            return told_before(sale, buyer=buyer, key=key)
        with suppress(AlreadySold):  # of a repeated click: the unit just counted down is nobody's
            write_order(sale, buyer=buyer, key=key)
        return Answer.HELD
