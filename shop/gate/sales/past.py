"""Finds retired sales, which the board does not keep, and what was asked in them: in the database, a few at a time.
Never asks the line, never lets a reader of a past sale hold up a sale that is open.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable

from inventory.exceptions import SaleNotFound
from shop.gate.sales.listing import past_answer
from shop.gate.sales.state import SaleEntry
from shop.gate.server.threads import ThreadPool
from shop.orders import requests
from shop.orders.requests import RequestView
from shop.sales import catalogue

# How long a sale, or that there is none, is remembered: a title that staff mend is shown a moment later.
REMEMBERED_SECONDS = 1.0
MAX_REMEMBERED = 10_000


class PastSales:
    """The retired sales that one process was asked for lately."""

    def __init__(self) -> None:
        self._threads = ThreadPool("past", threads=2, max_waiting=64)
        self._seen: OrderedDict[Hashable, tuple[float, SaleEntry | None]] = OrderedDict()

    def recall(self, name: str | int) -> SaleEntry | None:
        """Return the sale with this slug or id if it was read a moment ago, None when it was not.

        Raises SaleNotFound when it was looked for then, and there was none.
        """
        read_at, entry = self._seen.get(name, (float("-inf"), None))
        if time.monotonic() - read_at >= REMEMBERED_SECONDS:
            return None
        if entry is None:
            raise SaleNotFound
        return entry

    async def find(self, name: str | int) -> SaleEntry:
        """Return the retired sale with this slug or id. Raises SaleNotFound, Unavailable."""
        look_up = catalogue.find_sale if isinstance(name, str) else catalogue.find_sale_by_id
        try:
            card = await self._threads.read(look_up, name)
        except SaleNotFound:
            self._remember(name, None)
            raise
        if card.retired_at is None:
            raise SaleNotFound  # the board will know it in a moment
        _, entry = self._seen.get(name, (0.0, None))
        if entry is None:
            entry = SaleEntry(card)
        entry.use(card)
        self._remember(name, entry)
        return entry

    async def find_asked(self, request_id: str, *, quantity: int) -> RequestView:
        """Return what became of a request of a retired sale. Raises SaleClosed, IdempotencyMismatch, Unavailable."""
        return await self._threads.read(requests.find_asked, request_id, quantity=quantity)

    async def page(self, number: int) -> list[dict[str, object]]:
        """Return one page (from 1) of the sales that are listed no more, as the contract shows them."""
        cards, _more = await self._threads.read(catalogue.list_past, number)
        return [past_answer(card) for card in cards]

    def _remember(self, name: str | int, entry: SaleEntry | None) -> None:
        self._seen[name] = (time.monotonic(), entry)
        self._seen.move_to_end(name)
        if len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)
