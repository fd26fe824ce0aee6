"""Answers the list of sales and the page of one sale from rendered bytes, the same for every reader who has no ticket.
Never renders itself: Django does, when what the page shows has changed, once for all who read. Called by the router.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Hashable, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

import structlog
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from inventory.exceptions import SaleNotFound, Unauthenticated, Unavailable
from shop.buyers import COOKIE_MAX_AGE_SECONDS, COOKIE_NAME, issue_buyer, verify_token
from shop.gate.board import Board
from shop.gate.entries import SaleEntry
from shop.gate.http import Headers, Receive, Scope, Send, cookie, send_answer
from shop.languages import LANGUAGE_COOKIE, best_language
from shop.views import TICKET_COOKIE

log = structlog.get_logger(__name__)

Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

SALE_PATH = re.compile(r"/sales/([-\w]{1,60})/", re.ASCII)
# The moment in the page, put in anew for every reader: the page's clock begins with it.
MOMENT = re.compile(rb'data-server-ms="(\d+)"')
# A page in a sale that moves is made again this often at most; a new state is shown at once.
LEAST_SECONDS = 0.25
# The one before is shown while the new one is made, if it is no older than this.
STALE_SECONDS = 1.0
COUNTING_SECONDS = 30
# What Django says of one reader, or what is said anew for each.
OWN_HEADERS = {b"set-cookie", b"cache-control", b"expires", b"vary", b"content-length", b"date", b"server"}
CACHING: list[Header] = [(b"cache-control", b"private, no-cache"), (b"vary", b"Accept-Language, Cookie")]


@dataclass(slots=True)
class Page:
    """A rendered page, split where the moment stands. key: what it shows; made_at: monotonic seconds."""

    key: Hashable
    state: str
    headers: list[Header]
    before: bytes
    after: bytes
    etag: bytes
    made_at: float


class FrontPages:
    """The front door of one process. behind: Django's pages."""

    def __init__(self, board: Board, behind: Application) -> None:
        self._board = board
        self._behind = behind
        self._pages: dict[tuple[str, str], Page] = {}
        self._making: dict[tuple[str, str], asyncio.Task[Page | None]] = {}

    async def answer(self, scope: Scope, headers: Headers, send: Send) -> bool:
        """Answer a reader of a front page; say False when it is not one, or when Django must answer it."""
        path: str = scope["path"]
        found = SALE_PATH.fullmatch(path)
        if scope["method"] not in ("GET", "HEAD") or not (found or path == "/") or not may_be_shared(headers):
            return False
        entry = None
        if found:
            try:
                entry = await self._board.find(found[1])
            except (SaleNotFound, Unavailable):
                return False
        language = best_language(
            cookie(headers, LANGUAGE_COOKIE), headers.get(b"accept-language", b"").decode("latin-1")
        )
        page = await self._page(path, language, entry, scope)
        if page is None:
            return False
        await send_page(page, headers, send, with_buyer=entry is not None, with_body=scope["method"] == "GET")
        return True

    async def _page(self, path: str, language: str, entry: SaleEntry | None, scope: Scope) -> Page | None:
        key, state = what_is_shown(entry)
        name, now = (path, language), time.monotonic()
        page = self._pages.get(name)
        if page is not None and page.state == state and (page.key == key or now - page.made_at < LEAST_SECONDS):
            return page
        making = self._making.get(name)
        if making is None:
            making = asyncio.get_running_loop().create_task(self._make(name, key, state, scope))
            self._making[name] = making
            making.add_done_callback(lambda _done: self._making.pop(name, None))
        if page is not None and page.state == state and now - page.made_at < STALE_SECONDS:
            return page  # a moment old, and the new one is on its way
        # Somebody who leaves while it is made does not take it from those who wait beside them.
        return await asyncio.shield(making)

    async def _make(self, name: tuple[str, str], key: Hashable, state: str, scope: Scope) -> Page | None:
        """Let Django render a page for nobody in particular; None when it cannot. The one before is then shown on."""
        before = self._pages.get(name)
        try:
            status, headers, body = await call(self._behind, path=name[0], language=name[1], scope=scope)
        except Exception as error:
            log.warning("front page not rendered", action="page_retry", path=name[0], error=repr(error))
            return before
        parts = MOMENT.search(body)
        if status != 200 or parts is None:
            if before is not None:
                before.made_at = time.monotonic() + 1 - LEAST_SECONDS  # a database that is away is not asked at once
            return before
        head, tail = body[: parts.start(1)], body[parts.end(1) :]
        page = Page(
            key=key,
            state=state,
            headers=[(n, v) for n, v in headers if n.lower() not in OWN_HEADERS] + CACHING,
            before=head,
            after=tail,
            etag=b'W/"%s"' % blake2b(head + tail, digest_size=9).hexdigest().encode(),
            made_at=time.monotonic(),
        )
        if len(self._pages) > 4 * len(self._board.entries()) + 8:
            self._pages.clear()  # sales that are gone
        self._pages[name] = page
        return page


def what_is_shown(entry: SaleEntry | None) -> tuple[Hashable, str]:
    """Return what a page shows, and its state: a page of another state is not shown any more."""
    now = time.time()
    if entry is None:
        return int(2 * now), ""
    state = entry.state_at(now)
    left = int(entry.opens - now) if state == "scheduled" else 0
    return (entry.shown, state, min(left, COUNTING_SECONDS)), state


def may_be_shared(headers: Headers) -> bool:
    """Say whether this reader may be shown what everybody is shown: our host, no ticket, no redirect to TLS."""
    if headers.get(b"cookie") is not None and cookie(headers, TICKET_COOKIE):
        return False
    if getattr(settings, "SECURE_SSL_REDIRECT", False) and headers.get(b"x-forwarded-proto") != b"https":
        return False
    return is_own_host(headers.get(b"host", b""))


@lru_cache(maxsize=64)
def is_own_host(host: bytes) -> bool:
    """Say whether `host` is a name of this shop."""
    domain, _port = split_domain_port(host.decode("latin-1"))
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


async def send_page(page: Page, headers: Headers, send: Send, *, with_buyer: bool, with_body: bool) -> None:
    """Send a page, or 304 to a reader who has it; a sale's page gives a buyer to who is none yet."""
    fields = [*page.headers, (b"etag", page.etag)]
    if with_buyer and not is_buyer(cookie(headers, COOKIE_NAME)):
        fields.append((b"set-cookie", buyer_cookie()))
    if page.etag in headers.get(b"if-none-match", b""):
        await send({"type": "http.response.start", "status": 304, "headers": fields})
        await send({"type": "http.response.body", "body": b""})
        return
    body = b"%s%d%s" % (page.before, time.time_ns() // 1_000_000, page.after)
    if with_body:
        await send_answer(send, 200, fields, body)
    else:
        fields.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": b""})


def is_buyer(token: str) -> bool:
    if not token:
        return False
    try:
        verify_token(token)
    except Unauthenticated:
        return False
    return True


def buyer_cookie() -> bytes:
    """Return the cookie of a new buyer, as the pages set it."""
    secure = "; Secure" if settings.BEHIND_TLS else ""
    _buyer, token = issue_buyer()
    return f"{COOKIE_NAME}={token}; HttpOnly; Max-Age={COOKIE_MAX_AGE_SECONDS}; Path=/; SameSite=Lax{secure}".encode()


async def call(behind: Application, *, path: str, language: str, scope: Scope) -> tuple[int, list[Header], bytes]:
    """Ask Django for a page as a reader without cookies does; return status, headers, body."""
    wanted = [(n, v) for n, v in scope["headers"] if n in (b"host", b"x-forwarded-proto")]
    inner = {
        **scope,
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [*wanted, (b"accept-language", language.encode())],
    }
    status, headers, body = 0, [], bytearray()

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message["headers"])
        else:
            body.extend(message.get("body", b""))

    await behind(inner, receive, send)
    return status, headers, bytes(body)
