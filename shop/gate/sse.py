"""Server-sent events of one request or one sale: a message when something changed, a heartbeat when nothing did.
Never asks a store: the followers' rounds do, for all streams together. A reader that does not read is dropped.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from inventory.exceptions import Unavailable
from shop.gate.broadcaster import HEARTBEAT_SECONDS, Followers
from shop.gate.sales.cache import Board
from shop.gate.sales.listing import sale_answer
from shop.gate.sales.state import SaleEntry
from shop.gate.server.limits import AddressLimit
from shop.gate.status import Statuses
from shop.gate.subscriber import Follower, seen_of, send_sale, send_status
from shop.http import Receive, Scope, Send, buyer_of, headers_of, origin_of_scope
from shop.replies import Headers

MAX_SECONDS = 900.0  # then the browser comes back by itself, with Last-Event-ID
SLOW_SECONDS = 10.0  # who takes longer to read a message is dropped, and comes back the same way
RETRY_MS = (1000, 3000)  # scattered, so that a crowd that lost its server does not come back in step
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Streams(Followers):
    """The live streams of one process: its followers, and how a reader becomes one."""

    def __init__(self, board: Board, statuses: Statuses) -> None:
        super().__init__(board, statuses)
        self._addresses = AddressLimit(settings.GATE_MAX_STREAMS_PER_ADDRESS)

    @contextmanager
    def _one_more(self, follower: Follower, *, address: str) -> Iterator[None]:
        """Keep a stream among the open ones. Raises Unavailable when there are, or `address` has, as many as may be."""
        if len(self) >= settings.GATE_MAX_STREAMS or not self._addresses.take(address):
            raise Unavailable("Too many are watching; ask again by polling.")
        self.add(follower)
        try:
            yield
        finally:
            self.discard(follower)
            self._addresses.give_back(address)

    async def follow_request(self, request_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream one buyer's request until it is decided. Raises RequestNotFound, Unauthenticated, Unavailable."""
        headers = headers_of(scope)
        buyer = buyer_of(headers, unsafe=False)
        entry = await self._statuses.entry_of(request_id)  # an error here and below is still an ordinary answer
        seen = seen_of(entry)
        status = await self._statuses.read(request_id, buyer=buyer)
        follower = Follower(entry, request_id=request_id, buyer=buyer, name=last_event_id(headers))
        with self._one_more(follower, address=origin_of_scope(scope)[0]):
            send_status(follower, status, time.monotonic(), seen=seen)
            await stream(follower, receive, send)

    async def follow_sale(self, entry: SaleEntry, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream one sale's public figures until it closes. Raises Unavailable."""
        follower = Follower(entry, name=last_event_id(headers_of(scope)))
        with self._one_more(follower, address=origin_of_scope(scope)[0]):
            send_sale(follower, sale_answer(entry), time.monotonic())
            await stream(follower, receive, send)


def last_event_id(headers: Headers) -> str:
    """Return the name of the state that a reader who comes back has, '' when it has none."""
    return headers.get(b"last-event-id", b"").decode("latin-1")


async def stream(follower: Follower, receive: Receive, send: Send) -> None:
    """Send what is left for `follower`, until it ends, the reader left or does not read, or 15 minutes passed."""
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    gone = asyncio.ensure_future(wait_for_disconnect(receive))
    gone.add_done_callback(lambda _done: follower.wake())
    ends_at = time.monotonic() + MAX_SECONDS
    text = b"retry: %d\n\n" % random.randint(*RETRY_MS)  # noqa: S311 - scatters a crowd, guards nothing
    try:
        while True:
            text += follower.take() or b""
            if not text and time.monotonic() - follower.spoken_at >= HEARTBEAT_SECONDS:
                text = b": still here\n\n"
            if text:
                follower.spoken_at = time.monotonic()
                async with asyncio.timeout(SLOW_SECONDS):
                    await send({"type": "http.response.body", "body": text, "more_body": True})
                text = b""
                continue  # something may have come while this was sent
            if follower.ended or gone.done() or time.monotonic() >= ends_at:
                break
            await follower.wait()
    except TimeoutError:
        return
    finally:
        gone.cancel()
    if not gone.done() or gone.cancelled():
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the reader has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
