"""What every rival can do, so that one view, one crowd and one table serve them all: sell, look up, work, count.
Never sells anything itself.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar

from django.conf import settings
from django.db import IntegrityError
from django.db.models import F

from inventory.redis import Client, connect_once
from loadtest.rivals.models import RivalOrder, RivalStock


class RivalAnswer(StrEnum):
    """What a buyer is told at once. queued: ask again later; busy: nothing happened, ask again."""

    HELD = "held"
    QUEUED = "queued"
    SOLD_OUT = "sold_out"
    BUSY = "busy"


@dataclass(frozen=True, kw_only=True)
class RivalBooks:
    """What a sale came to. orders: wishes that have a unit; left: units the rival believes it still has."""

    units: int
    orders: int
    left: int

    @property
    def oversold(self) -> int:
        """Units that were sold and never existed."""
        return max(0, self.orders - self.units)

    @property
    def unsold(self) -> int:
        """Units that nobody has."""
        return max(0, self.units - self.orders)


class Rival(ABC):
    """One way to sell. correct: whether its author may promise that no unit is sold twice, in a run without crashes."""

    name: ClassVar[str]
    title: ClassVar[str]
    correct: ClassVar[bool]
    # Processes that must run alongside the web, each by `python -m loadtest.rivals.work`.
    workers: ClassVar[int] = 0
    # Of each of the two web processes: what suits it best of 2, 4 and 8.
    threads: ClassVar[int] = 4
    # How long a worker sleeps when nothing waits.
    poll_seconds: ClassVar[float] = 0.1

    def prepare(self, sale: str, *, units: int) -> None:
        """Put `units` on sale."""
        RivalStock.objects.create(sale=sale, units=units, available=units)

    @abstractmethod
    def buy(self, sale: str, *, buyer: str, key: str) -> RivalAnswer:
        """Try to give one unit to the wish (buyer, key); a repeated wish gets the answer of the first."""

    def look_up(self, sale: str, *, buyer: str, key: str) -> RivalAnswer:
        """Return what became of a wish that was queued."""
        state = RivalOrder.objects.filter(sale=sale, buyer=buyer, key=key).values_list("state", flat=True).first()
        return RivalAnswer(state) if state else RivalAnswer.QUEUED

    def restock(self, sale: str, *, units: int) -> None:
        """Put `units` more on sale."""
        RivalStock.objects.filter(sale=sale).update(available=F("available") + units, units=F("units") + units)

    def waiting(self, sale: str) -> int:
        """Return how many wishes were accepted and are not decided yet."""
        return 0

    def work(self, sales: Sequence[str]) -> None:
        """Decide what waits, until the process is ended. Raises RuntimeError where purchases are decided at once."""
        while True:
            if not sum([self.work_once(sale) for sale in sales]):
                time.sleep(self.poll_seconds)

    def work_once(self, sale: str) -> int:
        """Decide what waits now; return how many wishes that were. Raises RuntimeError as `work` does."""
        raise RuntimeError(f"{self.name} decides at once: there is nothing for a worker")

    def books(self, sale: str) -> RivalBooks:
        """Return what the sale came to until now."""
        units, left = RivalStock.objects.values_list("units", "available").get(sale=sale)
        return RivalBooks(units=units, orders=held_orders(sale), left=left)


class SoldOut(Exception):
    """No unit is left: the order must not stay."""


def held_orders(sale: str) -> int:
    """Return how many wishes of a sale have a unit."""
    return RivalOrder.objects.filter(sale=sale, state=RivalOrder.HELD).count()


def write_order(sale: str, *, buyer: str, key: str) -> None:
    """Give a unit to a wish. Raises IntegrityError when the wish has one already."""
    RivalOrder.objects.create(sale=sale, buyer=buyer, key=key)


def told_before(sale: str, *, buyer: str, key: str) -> RivalAnswer:
    """Return what a wish is told when no unit is left: its own unit, if it has one."""
    has_one = RivalOrder.objects.filter(sale=sale, buyer=buyer, key=key, state=RivalOrder.HELD).exists()
    return RivalAnswer.HELD if has_one else RivalAnswer.SOLD_OUT


# What the unique constraint says of a repeated click.
AlreadySold = IntegrityError


def redis_client() -> Client:
    """Return this process's client, as its library makes it by default; it may be used by many threads.

    Never with the shop's own options: what is compared is what their authors would have.
    """
    return _client(settings.REDIS_URL, os.getpid())


@lru_cache(maxsize=4)
def _client(url: str, _process_id: int) -> Client:
    # Only one file opens Redis; it is asked for the library's own class.
    return type(connect_once(url, timeout_seconds=1)).from_url(url)
