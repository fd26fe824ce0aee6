"""Server-sent events of one request or one sale: a message when something changed, a heartbeat when nothing did.
Never holds a store's connection for itself: it reads what the board and the coalesced status know.
Called by the gate's router.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from inventory.exceptions import FairdropError, Unavailable
from inventory.outcomes import WAITING_STATES
from shop.gate.board import SaleEntry
from shop.gate.http import Headers, Receive, Send, buyer_of
from shop.gate.sales import sale_answer
from shop.gate.status import Statuses

LOOK_SECONDS = 1.0
HEARTBEAT_SECONDS = 10.0
LONGEST_SECONDS = 900.0  # then the browser comes back by itself, with Last-Event-ID
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
CHANGING = {"server_time", "poll_after_ms"}  # these differ in every answer and are no news


class Streams:
    """The live door of one process."""

    def __init__(self, statuses: Statuses) -> None:
        self._statuses = statuses
        self._open = 0

    @contextmanager
    def _one_more(self) -> Iterator[None]:
        """Count an open stream. Raises Unavailable when there are as many as this process may hold."""
        if self._open >= settings.GATE_MAX_STREAMS:
            raise Unavailable("Too many are watching; ask again by polling.")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    async def follow_request(self, request_id: str, headers: Headers, receive: Receive, send: Send) -> None:
        """Stream one buyer's request until it is decided. Raises RequestNotFound, Unauthenticated."""
        buyer = buyer_of(headers, unsafe=False)

        async def look() -> dict[str, Any]:
            return await self._statuses.read(request_id, buyer=buyer)

        with self._one_more():
            await stream(look, receive, send, ends=lambda status: status["state"] not in WAITING_STATES)

    async def follow_sale(self, entry: SaleEntry, receive: Receive, send: Send) -> None:
        """Stream one sale's public figures."""

        async def look() -> dict[str, Any]:
            return sale_answer(entry)

        with self._one_more():
            await stream(look, receive, send, ends=lambda sale: sale["state"] == "closed")


async def stream(
    look: Callable[[], Awaitable[dict[str, Any]]],
    receive: Receive,
    send: Send,
    *,
    ends: Callable[[dict[str, Any]], bool],
) -> None:
    """Send what `look` returns whenever it changed, until `ends` says so, the reader left, or 15 minutes passed."""
    value = await look()  # an error here is still an ordinary problem answer
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    gone = asyncio.ensure_future(wait_for_disconnect(receive))
    begun = spoken = time.monotonic()
    last: dict[str, Any] | None = None
    try:
        while not gone.done() and time.monotonic() - begun < LONGEST_SECONDS:
            news = {name: part for name, part in value.items() if name not in CHANGING}
            if news != last:
                last, spoken = news, time.monotonic()
                await send_chunk(send, f"id: {time.time_ns() // 1000}\ndata: {json.dumps(value)}\n\n")
                if ends(value):
                    break
            elif time.monotonic() - spoken >= HEARTBEAT_SECONDS:
                spoken = time.monotonic()
                await send_chunk(send, ": still here\n\n")
            await asyncio.wait([gone], timeout=LOOK_SECONDS)
            again = await look_again(look, value)
            if again is None:
                break  # the answer has begun: all that is left is to end it well; the reader asks anew
            value = again
    finally:
        gone.cancel()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def look_again(look: Callable[[], Awaitable[dict[str, Any]]], before: dict[str, Any]) -> dict[str, Any] | None:
    """Return what `look` says now, what it said before when a store is away, None when there is nothing any more."""
    try:
        return await look()
    except Unavailable:
        return before
    except FairdropError:
        return None


async def send_chunk(send: Send, text: str) -> None:
    """Send a piece of the stream."""
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the reader has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
