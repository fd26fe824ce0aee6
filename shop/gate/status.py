"""GET /api/v1/requests/<id>: where one request stands, asked of the line and, when it forgot, of the database.
Never shows one buyer another's request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from django.conf import settings

from inventory.exceptions import FairdropError, RequestNotFound, SaleNotFound
from inventory.line import reading
from inventory.line.reading import Place
from inventory.records import sale_id_of
from inventory.redis import AsyncClient
from shop.gate.sales.cache import Board
from shop.gate.sales.state import SaleEntry
from shop.gate.server.coalescer import Coalescer
from shop.gate.server.threads import ThreadPool
from shop.http import buyer_of
from shop.models import Order
from shop.orders import requests
from shop.orders.requests import RequestView
from shop.orders.status import status_answer
from shop.replies import Headers, LateAnswers, Reply, refuse, send_json


def look_up_forgotten(request_id: str, *, buyer: str) -> RequestView:
    """Return a request that the line does not know. Raises RequestNotFound; with restore=true when nobody knows it.

    Then Redis may have lost it, and anyone who has its ticket gets the place back.
    """
    try:
        return requests.look_up(request_id, buyer=buyer)
    except RequestNotFound:
        if Order.objects.filter(request_id=request_id).exists():
            raise
        raise RequestNotFound("Nothing is known of this request; its ticket brings it back.", restore=True) from None


# A request id, and who gets its place, None when the line does not know it, or the error that came instead.
Asked: TypeAlias = tuple[str, Callable[[Place | FairdropError | None], None]]


def _deliver(asked: Asked, place: Place | FairdropError | None) -> None:
    asked[1](place)


class Statuses:
    """The status calls of one process: a coalescer for each SKU."""

    def __init__(self, client: AsyncClient, board: Board, late: LateAnswers) -> None:
        self._client = client
        self._board = board
        self._late = late
        # Requests that the line forgot are few; somebody who asks for thousands must not hold up priming.
        self._threads = ThreadPool("status", threads=2, max_waiting=64)
        self._coalescers: dict[str, Coalescer[Asked, Place | None]] = {}

    async def entry_of(self, request_id: str) -> SaleEntry:
        """Return the sale that a request is of. Raises RequestNotFound, Unavailable."""
        sale_id = sale_id_of(request_id)
        if sale_id is None:
            raise RequestNotFound
        try:
            return await self._board.find_by_id(sale_id)
        except SaleNotFound as error:
            raise RequestNotFound from error

    def handle(self, reply: Reply, asked: tuple[SaleEntry, str], headers: Headers, _body: bytes) -> None:
        """Answer one GET of a request of a sale that the board keeps; an error is answered as a problem."""
        entry, request_id = asked
        try:
            buyer = buyer_of(headers, unsafe=False)

            def deliver(place: Place | FairdropError | None) -> None:
                if isinstance(place, FairdropError):
                    refuse(reply, place)
                elif place is None:
                    self._late.find(reply, self._answer_forgotten(reply, entry, request_id, buyer), headers)
                elif place.record.buyer != buyer:
                    refuse(reply, RequestNotFound())
                else:
                    send_json(reply, self.answer_of(entry, request_id, place))

            self._coalescer(entry.card.sku).submit((request_id, deliver))
        except Exception as error:
            refuse(reply, error, headers)

    async def _answer_forgotten(self, reply: Reply, entry: SaleEntry, request_id: str, buyer: str) -> None:
        send_json(reply, await self._look_up(look_up_forgotten, entry, request_id, buyer=buyer))

    async def read(self, request_id: str, *, buyer: str) -> dict[str, Any]:
        """Return the status answer of `buyer`'s request. Raises RequestNotFound, Unavailable."""
        entry = await self.entry_of(request_id)
        if entry.card.retired_at is not None:
            return await self._look_up(requests.look_up, entry, request_id, buyer=buyer)
        place = await self._place(entry.card.sku, request_id)
        if place is None:
            return await self._look_up(look_up_forgotten, entry, request_id, buyer=buyer)
        if place.record.buyer != buyer:
            raise RequestNotFound
        return self.answer_of(entry, request_id, place)

    async def _place(self, sku: str, request_id: str) -> Place | None:
        found: asyncio.Future[Place | FairdropError | None] = asyncio.get_running_loop().create_future()
        # Anyone who waited may have left.
        self._coalescer(sku).submit((request_id, lambda place: None if found.done() else found.set_result(place)))
        place = await found
        if isinstance(place, FairdropError):
            raise place
        return place

    async def _look_up(
        self, look_up: Callable[..., RequestView], entry: SaleEntry, request_id: str, *, buyer: str
    ) -> dict[str, Any]:
        return self._of_view(entry, await self._threads.read(look_up, request_id, buyer=buyer))

    async def places(self, sku: str, request_ids: Sequence[str]) -> Sequence[Place | None]:
        """Return where some requests of one SKU stand, None for one that the line does not know. Raises Unavailable.

        Alongside the coalescer: anyone who asks for one request must not wait behind a round of many.
        """
        return await reading.places_async(self._client, sku, request_ids)

    def answer_of(self, entry: SaleEntry, request_id: str, place: Place) -> dict[str, Any]:
        """Return the status answer of a request that stands at `place`."""
        return self._of_view(entry, requests.view_of_place(request_id, place, sale_slug=entry.card.slug))

    def _of_view(self, entry: SaleEntry, view: RequestView) -> dict[str, Any]:
        return status_answer(view, entry.card, figures=entry.figures, decided_per_second=entry.decided_per_second)

    def _coalescer(self, sku: str) -> Coalescer[Asked, Place | None]:
        coalescer = self._coalescers.get(sku)
        if coalescer is None:

            async def read_places(batch: Sequence[Asked]) -> Sequence[Place | None]:
                return await reading.places_async(self._client, sku, [request_id for request_id, _ in batch])

            coalescer = self._coalescers[sku] = Coalescer(
                read_places, _deliver, max_per_call=settings.GATE_BATCH, max_waiting=settings.GATE_MAX_WAITING
            )
        return coalescer
