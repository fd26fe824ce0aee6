"""Runs Django's WSGI application behind the gate, in a bounded pool of threads. Never serves a hot call.
Called by the router for every address that is not the gate's own.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, cast

from a2wsgi import WSGIMiddleware

from inventory.exceptions import InvalidRequest
from shop.gate.http import MOST_PAGE_BYTES, Receive, Scope, Send, read_body, without_charset
from shop.gate.replies import Header

# Django's WSGI handler is several times faster than its ASGI one for ordinary views, and these views block.
DJANGO_THREADS = 8


class Pages:
    """wsgi: Django's application."""

    def __init__(self, wsgi: Callable[..., Any]) -> None:
        self._application = WSGIMiddleware(wsgi, workers=DJANGO_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request by a view."""

        # Read here, with a limit of size and time: in a thread, eight slow senders would stop every page.
        body = await read_body(receive, dict(scope["headers"]), most_bytes=MOST_PAGE_BYTES)
        scope = {**scope, "headers": [_understood(name, value) for name, value in scope["headers"]]}
        if b"%00" in scope["query_string"] or b"\0" in scope["query_string"]:
            raise InvalidRequest("a query must not contain NUL")  # PostgreSQL cannot compare with it
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_read() -> MutableMapping[str, Any]:
            return parts.pop() if parts else {"type": "http.disconnect"}

        await self._application(cast(Any, scope), cast(Any, receive_read), cast(Any, send))


def _understood(name: bytes, value: bytes) -> Header:
    return (name, without_charset(value)) if name == b"content-type" else (name, value)
