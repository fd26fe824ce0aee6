"""GET /api/v1/requests/<id>: where one request stands, asked of the line and, when it forgot, of the database.
Never shows one buyer another's request. Called by the gate's router and by the live stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from inventory import line
from inventory.exceptions import RequestNotFound, SaleNotFound
from inventory.line import Place
from inventory.outcomes import WAITING_STATES
from inventory.redis import AsyncClient
from inventory.tickets import sale_id_of
from shop import requests
from shop.gate.board import Board, SaleEntry
from shop.gate.coalescer import Coalescer
from shop.gate.pace import poll_after_ms
from shop.gate.threads import ReaderThreads


def iso(moment: datetime | None) -> str | None:
    """Return an aware datetime as ISO 8601, or None."""
    return None if moment is None else moment.isoformat()


class Statuses:
    """The status door of one process: a coalescer for each SKU."""

    def __init__(self, client: AsyncClient, board: Board) -> None:
        self._client = client
        self._board = board
        # Requests that the line forgot are few; somebody who asks for thousands must not hold up priming.
        self._threads = ReaderThreads("status", threads=2, most_waiting=64)
        self._coalescers: dict[str, Coalescer[str, Place | None]] = {}

    async def read(self, request_id: str, *, buyer: str) -> dict[str, Any]:
        """Return the status answer of `buyer`'s request. Raises RequestNotFound, Unavailable."""
        sale_id = sale_id_of(request_id)
        if sale_id is None:
            raise RequestNotFound
        try:
            entry = await self._board.find_by_id(sale_id)
        except SaleNotFound as error:
            raise RequestNotFound from error
        place = await self._coalescer(entry.card.sku).submit(request_id)
        if place is None:
            view = await self._threads.read(requests.look_up, request_id, buyer=buyer)
            return self._of_view(entry, view)
        if place.record.buyer != buyer:
            raise RequestNotFound
        return self._of_place(entry, request_id, place)

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def _of_place(self, entry: SaleEntry, request_id: str, place: Place) -> dict[str, Any]:
        record = place.record
        ends = record.hold_expires_ms
        return self._answer(
            entry,
            request_id=request_id,
            quantity=record.quantity,
            state=record.state,
            seq=record.seq,
            position=place.position,
            hold_expires_at=None if ends is None else datetime.fromtimestamp(ends / 1000, UTC),
        )

    def _of_view(self, entry: SaleEntry, view: requests.RequestView) -> dict[str, Any]:
        return self._answer(
            entry,
            request_id=view.request_id,
            quantity=view.quantity,
            state=view.state,
            seq=view.seq,
            position=view.position or 0,
            hold_expires_at=view.hold_expires_at,
        )

    def _answer(
        self,
        entry: SaleEntry,
        *,
        request_id: str,
        quantity: int,
        state: str,
        seq: int,
        position: int,
        hold_expires_at: datetime | None,
    ) -> dict[str, Any]:
        waiting = state in WAITING_STATES
        rate = entry.decided_per_second
        return {
            "request_id": request_id,
            "sale": entry.card.slug,
            "quantity": quantity,
            "state": state,
            "seq": seq,
            "position": position if waiting else None,
            "ahead": max(position - 1, 0) if waiting else None,
            "eta_seconds": math.ceil(position / rate) if waiting and rate > 0 else None,
            "hold_expires_at": iso(hold_expires_at),
            "order_url": f"/requests/{request_id}/",
            "poll_after_ms": poll_after_ms(position if waiting else 0, seq),
            "server_time": datetime.now(UTC).isoformat(),
        }

    def _coalescer(self, sku: str) -> Coalescer[str, Place | None]:
        coalescer = self._coalescers.get(sku)
        if coalescer is None:

            async def read_places(request_ids: Sequence[str]) -> Sequence[Place | None]:
                return await line.places_async(self._client, sku, request_ids)

            coalescer = self._coalescers[sku] = Coalescer(
                read_places, most_per_call=settings.GATE_BATCH, most_waiting=settings.GATE_MAX_WAITING
            )
        return coalescer
