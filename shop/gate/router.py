"""The gate: an ASGI application that answers the hot calls itself and hands everything else to Django.
Never lets an error out: each becomes a problem answer. Called by the server through shop/asgi.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import structlog
from django.conf import settings

from inventory import redis
from inventory.exceptions import FairdropError, MethodNotAllowed, Unavailable
from shop.buyers import COOKIE_MAX_AGE_SECONDS, COOKIE_NAME, issue_buyer
from shop.gate import metrics
from shop.gate.board import Board
from shop.gate.front_pages import FrontPages
from shop.gate.http import (
    JSON_HEADERS,
    Headers,
    Receive,
    Scope,
    Send,
    buyer_of,
    check_origin,
    send_answer,
    send_json,
    send_problem,
)
from shop.gate.notices import Notices
from shop.gate.purchase import Purchases
from shop.gate.sales import page_asked, sale_answer
from shop.gate.status import Statuses
from shop.gate.streams import Streams

log = structlog.get_logger(__name__)

Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
API = "/api/v1/"


class Gate:
    """behind: the ASGI application for everything that is not the gate's own."""

    def __init__(self, behind: Application) -> None:
        self._behind = behind
        self._client: redis.AsyncClient | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, or follow the server's start and stop."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if self._client is None:
                self._start()
            path: str = scope["path"]
            if path.startswith(API):
                await self._route_api(path[len(API) :].split("/"), scope, receive, send)
            elif path == "/healthz":
                await send_json(send, 200, {"ok": True})
            elif path == "/metrics":
                await send_answer(send, 200, metrics.HEADERS, metrics.render(self._board.counted()))
            elif not await self._front.answer(scope, headers_of(scope), send):
                await self._behind(scope, receive, send)
        except FairdropError as error:
            metrics.count(error.code)
            await send_problem(send, error)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception:
            log.exception("unexpected error in the gate", action="gate_error", path=scope["path"])
            await send_problem(send, Unavailable())

    async def _route_api(self, parts: list[str], scope: Scope, receive: Receive, send: Send) -> None:
        match parts:
            case ["sales", slug, "requests"]:
                allow(scope, "POST")
                await self._purchases.handle(slug, headers_of(scope), receive, send)
            case ["requests", request_id]:
                allow(scope, "GET")
                buyer = buyer_of(headers_of(scope), unsafe=False)
                await send_json(send, 200, await self._statuses.read(request_id, buyer=buyer))
            case ["requests", request_id, "events"]:
                allow(scope, "GET")
                await self._streams.follow_request(request_id, headers_of(scope), receive, send)
            case ["sales", slug, "events"]:
                allow(scope, "GET")
                await self._streams.follow_sale(await self._board.find(slug), headers_of(scope), receive, send)
            case ["sales"]:
                allow(scope, "GET")
                page = page_asked(scope["query_string"])
                if page is None:
                    await send_json(send, 200, [sale_answer(entry) for entry in self._board.listed()])
                else:
                    await send_json(send, 200, await self._board.past.page(page))
            case ["sales", slug]:
                allow(scope, "GET")
                await send_json(send, 200, sale_answer(await self._board.find(slug)))
            case ["payments", provider_name, "notices"]:
                allow(scope, "POST")
                await self._notices.handle(provider_name, headers_of(scope), receive, send)
            case ["buyers"]:
                allow(scope, "POST")
                await issue(headers_of(scope), send)
            case _:
                await self._behind(scope, receive, send)

    def _start(self) -> None:
        """Open what belongs to this process's event loop."""
        self._client = redis.connect_async()
        self._board = Board(self._client)
        self._board.start()
        self._purchases = Purchases(self._client, self._board)
        self._statuses = Statuses(self._client, self._board)
        self._notices = Notices()
        self._streams = Streams(self._board, self._statuses)
        self._streams.start()
        self._front = FrontPages(self._board, self._behind)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _stop(self) -> None:
        if self._client is not None:
            await self._streams.stop()
            await self._board.stop()
            self._purchases.close()
            self._statuses.close()
            self._notices.close()
            await redis.close_async(self._client)
            self._client = None


def headers_of(scope: Scope) -> Headers:
    """Return the request's headers by lower-case name."""
    pairs = scope["headers"]
    headers = dict(pairs)
    if len(headers) != len(pairs):
        # HTTP/2 may send each cookie as a header of its own.
        headers[b"cookie"] = b"; ".join(value for name, value in pairs if name == b"cookie")
    return headers


def allow(scope: Scope, method: str) -> None:
    """Raise MethodNotAllowed unless the request's method is `method`."""
    if scope["method"] != method:
        raise MethodNotAllowed(f"this address takes {method} only")


async def issue(headers: Headers, send: Send) -> None:
    """POST /api/v1/buyers: give a new buyer a token, in the body and as the cookie."""
    check_origin(headers, required=False)
    buyer, token = issue_buyer()
    secure = "; Secure" if settings.BEHIND_TLS else ""
    cookie = f"{COOKIE_NAME}={token}; Path=/; Max-Age={COOKIE_MAX_AGE_SECONDS}; HttpOnly; SameSite=Lax{secure}"
    body = f'{{"buyer":"{buyer}","token":"{token}"}}'.encode()
    await send_answer(send, 201, [*JSON_HEADERS, (b"set-cookie", cookie.encode())], body)
