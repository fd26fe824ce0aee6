"""The gate: an ASGI application that answers the shop's own API and hands everything else to Django.
Never lets an error out: each becomes a problem answer. It also names the hot calls, which a server that knows
`hot_call` gives to their handlers without ASGI; the answers are the same on both paths.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import structlog
from django.conf import settings

from inventory import redis
from inventory.exceptions import MethodNotAllowed, RateLimited
from inventory.records import sale_id_of
from inventory.telemetry import traces
from inventory.telemetry.page import serve as serve_metrics
from shop.access.rush import RUSHES
from shop.buyers import issue_buyer, set_cookie_header
from shop.client_address import Origin, origin_of
from shop.gate import metrics
from shop.gate.page_cache import SALE_PATH, TOKEN_PATH, FrontPages, is_shared, send_page
from shop.gate.pages import Pages
from shop.gate.passes import Passes
from shop.gate.purchase import Purchases
from shop.gate.readiness import Readiness
from shop.gate.sales.cache import Board
from shop.gate.sales.listing import page_asked, sale_answer
from shop.gate.sales.state import SaleEntry
from shop.gate.server.draining import LEAVING
from shop.gate.server.rates import Rates
from shop.gate.server.threads import close_pools
from shop.gate.sse import Streams
from shop.gate.status import Statuses
from shop.gate.webhooks import Notices
from shop.http import (
    Message,
    Receive,
    Scope,
    Send,
    buyer_of,
    check_host,
    check_json_content_type,
    check_origin,
    headers_of,
    is_own_host,
    origin_of_scope,
    read_body,
    send_answer,
    shows_pages,
    wants_page,
)
from shop.orders.requests import ASKS, counting_refusals
from shop.replies import (
    JSON_HEADERS,
    OK,
    OVERLOADED,
    REQUEST_ID,
    SECURITY_HEADERS,
    AwaitedReply,
    Head,
    Headers,
    HotCall,
    LateAnswers,
    Reply,
    refusal,
    refuse,
    refuse_crowd,
    refuse_reader,
    request_id_of,
    send_json,
)

API = "/api/v1/"
CREATED = Head(201, JSON_HEADERS)
SALES, REQUESTS_OF_SALE, REQUESTS, ALL_SALES = b"/api/v1/sales/", b"/requests", b"/api/v1/requests/", b"/api/v1/sales"


class Gate:
    """behind: Django's pages, for everything that is not the gate's own."""

    def __init__(self, behind: Pages) -> None:
        self._behind = behind
        self._client: redis.AsyncClient | None = None

    def hot_call(self, method: bytes, target: bytes, headers: Headers, connection: str) -> HotCall | None:
        """Return who answers this call without waiting, None when it must go through __call__.

        connection: the address at its other end. What comes too often is refused before its body is read.
        """
        if self._client is None or not is_own_host(headers.get(b"host", b"")):
            return None
        if method == b"POST":
            if target.startswith(SALES) and target.endswith(REQUESTS_OF_SALE):
                entry = self._board.known(target[len(SALES) : -len(REQUESTS_OF_SALE)].decode("latin-1"))
                if entry is None:
                    return None
                origin = origin_of(headers.get(b"x-forwarded-for"), connection=connection, proxies=self._proxies)
                wait_seconds = self._asks.take(origin)
                if wait_seconds:
                    return refuse_often, wait_seconds
                return self._purchases.handle, (entry, origin)
        elif method == b"GET":
            if target.startswith(REQUESTS):
                request_id = target[len(REQUESTS) :].decode("latin-1")
                entry = self._board.known_by_id(sale_id_of(request_id))
                return (self._statuses.handle, (entry, request_id)) if entry is not None else None
            if target.startswith(SALES):
                entry = self._board.known(target[len(SALES) :].decode("latin-1"))
                return (show_sale, entry) if entry is not None else None
            if target == ALL_SALES and self._board.is_read:
                return show_sales, self._board
            path = target.decode("latin-1")
            page = self._front.ready(path, headers, connection)
            if page is not None:
                return send_page, page
            if self._behind.is_full and is_page(path) and not is_shared(path, headers):
                return turn_away, None
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, or follow the server's start and stop."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope, send = with_request_id(scope, send)
        try:
            if self._client is None:
                self._start()
            path: str = scope["path"]
            if path == "/healthz":
                return await send_value(send, {"ok": True})
            if path == "/readyz":
                leaving = LEAVING in scope.get("state", ())
                return await send_answer(send, *await self._readiness.answer(leaving=leaving))
            if path == "/metrics":
                return await send_answer(send, metrics.HEAD, metrics.render(self._board, self._streams))
            check_host(headers_of(scope))  # probes, above, call by address
            if path.startswith(API):
                await self._route_api(path[len(API) :].split("/"), scope, receive, send)
            elif not await self._front.answer(scope, headers_of(scope), send):
                if scope["method"] == "POST" and SALE_PATH.fullmatch(path):
                    counting_refusals(limit)(self._asks, origin_of_scope(scope))
                elif TOKEN_PATH.fullmatch(path):
                    scope = self._front.counted(scope)
                await self._behind(scope, receive, send)
        except Exception as error:
            await send_answer(send, *await refusal(error, to_reader=shows_pages(scope)))

    async def _route_api(self, parts: list[str], scope: Scope, receive: Receive, send: Send) -> None:
        match parts:
            case ["sales", slug, "requests"]:
                allow(scope, "POST")
                origin = origin_of_scope(scope)
                counting_refusals(limit)(self._asks, origin)
                await self._ask((await self._board.find(slug), origin), headers_of(scope), receive, send)
            case ["requests", request_id]:
                allow(scope, "GET")
                buyer = buyer_of(headers_of(scope), unsafe=False)
                await send_value(send, await self._statuses.read(request_id, buyer=buyer))
            case ["requests", request_id, "events"]:
                allow(scope, "GET")
                limit(self._openings, origin_of_scope(scope))
                await self._streams.follow_request(request_id, scope, receive, send)
            case ["sales", slug, "events"]:
                allow(scope, "GET")
                limit(self._openings, origin_of_scope(scope))
                await self._streams.follow_sale(await self._board.find(slug), scope, receive, send)
            case ["sales"]:
                allow(scope, "GET")
                page = page_asked(scope["query_string"])
                if page is None:
                    await send_value(send, [sale_answer(entry) for entry in await self._board.read_listed()])
                else:
                    await send_value(send, await self._board.past.page(page))
            case ["sales", slug]:
                allow(scope, "GET")
                await send_value(send, sale_answer(await self._board.find(slug)))
            case ["sales", slug, "challenge" | "passes" as wanted]:
                await self._give_pass(wanted, slug, scope, receive, send)
            case ["payments", provider_name, "notices"]:
                allow(scope, "POST")
                await send_value(send, await self._notices.handle(provider_name, headers_of(scope), receive))
            case ["buyers"]:
                allow(scope, "POST")
                limit(self._tokens, origin_of_scope(scope))
                await issue(headers_of(scope), send, network=origin_of_scope(scope)[1])
            case _:
                await self._behind(scope, receive, send)

    async def _give_pass(self, wanted: str, slug: str, scope: Scope, receive: Receive, send: Send) -> None:
        """GET /challenge and POST /passes of a sale; both are counted with new tokens, because they cost as little."""
        allow(scope, "GET" if wanted == "challenge" else "POST")
        limit(self._tokens, origin_of_scope(scope))
        headers = headers_of(scope)
        buyer = buyer_of(headers, unsafe=wanted == "passes")
        card = (await self._board.find(slug)).card
        if wanted == "challenge":
            return await send_value(send, await self._passes.challenge(card, buyer=buyer))
        check_json_content_type(headers)
        given = await self._passes.redeem(card, await read_body(receive, headers), buyer=buyer)
        return await send_answer(send, CREATED, json.dumps(given.shown()).encode())

    async def _ask(self, asked: tuple[SaleEntry, Origin], headers: Headers, receive: Receive, send: Send) -> None:
        """Answer a purchase that takes the ordinary path: word for word as a hot one."""
        buyer_of(headers, unsafe=True)  # nobody's body is read
        check_json_content_type(headers)
        reply = AwaitedReply()
        self._purchases.handle(reply, asked, headers, await read_body(receive, headers))
        await send_answer(send, *await reply.answer())

    def _start(self) -> None:
        """Open what belongs to this process's event loop."""
        self._client = redis.connect_async()
        # What looks by itself, again and again, has a client of its own: no purchase is on a connection that it cuts.
        self._looking = redis.connect_async()
        self._board = Board(self._looking)
        self._board.start()
        late = LateAnswers()
        self._proxies = settings.TRUSTED_PROXIES
        self._tokens = Rates(*settings.RATE_OF_BUYERS)
        self._asks = Rates(*settings.RATE_OF_ASKS)
        self._openings = Rates(*settings.RATE_OF_STREAMS)
        self._purchases = Purchases(self._client, self._board, late, rates=self._asks)
        self._statuses = Statuses(self._client, self._board, late)
        self._notices = Notices()
        self._passes = Passes()
        self._streams = Streams(self._board, self._statuses)
        self._streams.start()
        serve_metrics(settings.METRICS_ADDRESS, metrics.PROCESS, lambda: metrics.families(self._board, self._streams))
        traces.start(metrics.PROCESS)
        self._readiness = Readiness(self._looking)
        self._readiness.start()
        self._front = FrontPages(self._board, self._behind, tokens=self._tokens)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._start()
                with suppress(Exception):  # the database is away: who comes first waits for the sales, or gets 503
                    await self._board.read_listed()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _stop(self) -> None:
        if self._client is not None:
            await self._streams.stop()
            await self._purchases.stop()
            await self._board.stop()
            self._readiness.close()
            close_pools()
            await redis.close_async(self._looking)
            await redis.close_async(self._client)
            self._client = None
            traces.end()


def with_request_id(scope: Scope, send: Send) -> tuple[Scope, Send]:
    """Give the request its id, for the log and for Django, and have every answer bear an id and SECURITY_HEADERS.

    The answer to a request that brought no id may have one of its own: the id of what was asked.
    """
    given = dict(scope["headers"])
    name = request_id_of(given)
    structlog.contextvars.bind_contextvars(request_id=name.decode())
    fields = [field for field in scope["headers"] if field[0] != REQUEST_ID]

    def send_marked(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            own = {field[0].lower(): field for field in message["headers"]}
            own_id = own.pop(REQUEST_ID, (REQUEST_ID, name))
            marks = [*SECURITY_HEADERS, (REQUEST_ID, request_id_of(given, own_id[1]))]
            kept = [field for field in message["headers"] if field[0].lower() != REQUEST_ID]
            message["headers"] = [*kept, *(field for field in marks if field[0] not in own)]
        return send(message)

    return {**scope, "headers": [*fields, (REQUEST_ID, name)]}, send_marked


def allow(scope: Scope, method: str) -> None:
    """Raise MethodNotAllowed unless the request's method is `method`."""
    if scope["method"] != method:
        raise MethodNotAllowed(f"this address takes {method} only")


def limit(rates: Rates, origin: Origin) -> None:
    """Count one call of `origin`. Raises RateLimited when there were too many."""
    wait_seconds = rates.take(origin)
    if wait_seconds:
        raise too_often(wait_seconds)


def too_often(wait_seconds: int) -> RateLimited:
    """Return the refusal of a call that may be made again in `wait_seconds`."""
    error = RateLimited("Too many of these calls came from your address or network.")
    error.retry_after_seconds = wait_seconds
    return error


async def issue(headers: Headers, send: Send, *, network: str) -> None:
    """POST /api/v1/buyers: give a new buyer of `network` a token, in the body and as the cookie."""
    check_origin(headers, required=False)
    RUSHES.note_token()
    buyer, token = issue_buyer(network)
    body = f'{{"buyer":"{buyer}","token":"{token}"}}'.encode()
    await send_answer(send, Head(201, [*JSON_HEADERS, (b"set-cookie", set_cookie_header(token))]), body)


async def send_value(send: Send, value: Any) -> None:
    """Answer 200 with `value` as JSON."""
    await send_answer(send, OK, json.dumps(value).encode())


def is_page(path: str) -> bool:
    """Say whether Django answers a GET of `path` with a page of the shop."""
    return path == "/" or path.startswith(("/sales/", "/requests/"))


def turn_away(reply: Reply, _nothing: None, headers: Headers, _body: bytes) -> None:
    """Answer a reader for whom no thread is free: at once, because a crowd of them must cost little."""
    (refuse_reader if wants_page(headers) else refuse_crowd)(reply, OVERLOADED)


def refuse_often(reply: Reply, wait_seconds: int, _headers: Headers, _body: bytes) -> None:
    """Answer a purchase whose address or network makes too many."""
    ASKS.add(RateLimited.code)
    refuse(reply, too_often(wait_seconds))


def show_sale(reply: Reply, entry: SaleEntry, _headers: Headers, _body: bytes) -> None:
    """GET /api/v1/sales/<slug> of a sale that the board keeps."""
    send_json(reply, sale_answer(entry))


def show_sales(reply: Reply, board: Board, _headers: Headers, _body: bytes) -> None:
    """GET /api/v1/sales."""
    send_json(reply, [sale_answer(entry) for entry in board.listed()])
