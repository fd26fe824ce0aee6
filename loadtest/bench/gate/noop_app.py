"""An ASGI application that reads the body and answers 202 {}: what the server itself can do, and no more.
Never looks at the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shop.http import Receive, Scope, Send

HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"2")]


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request, or follow the server's start and stop."""
    while scope["type"] == "lifespan":
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
    await receive()
    await send({"type": "http.response.start", "status": 202, "headers": HEADERS})
    await send({"type": "http.response.body", "body": b"{}"})
