"""Runs Django's WSGI application behind the gate, in a bounded pool of threads. Never serves a hot call.
Called by the router for every address that is not the gate's own.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, cast

from a2wsgi import WSGIMiddleware

from shop.gate.http import Receive, Scope, Send

# Django's WSGI handler is several times faster than its ASGI one for ordinary views, and these views block.
DJANGO_THREADS = 8


class Pages:
    """wsgi: Django's application."""

    def __init__(self, wsgi: Callable[..., Any]) -> None:
        self._application = WSGIMiddleware(wsgi, workers=DJANGO_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request by a view."""

        async def receive_as_coroutine() -> MutableMapping[str, Any]:
            # a2wsgi hands this to another thread's loop call, which takes coroutines only; granian's is an awaitable.
            return await receive()

        await self._application(cast(Any, scope), cast(Any, receive_as_coroutine), cast(Any, send))
