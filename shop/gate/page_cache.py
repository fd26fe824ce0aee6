"""Answers the list of sales and the page of one sale from rendered bytes, the same for every reader who has no ticket.
Never renders itself: Django does, when what the page shows has changed, once for all who read.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

import structlog
from django.conf import settings

from inventory.exceptions import SaleNotFound, Unavailable
from inventory.redis import clocks
from shop.buyers import issue_buyer, set_cookie_header, token_sent, token_to_set
from shop.client_address import Origin, origin_of
from shop.gate.pages import Pages
from shop.gate.sales.cache import Board
from shop.gate.sales.state import SaleEntry
from shop.gate.server.rates import Rates
from shop.http import NOT_MODIFIED, Scope, Send, cookie, headers_of, origin_of_scope, send_answer
from shop.replies import SECURITY_NAMES, Head, Header, Headers, Reply
from shop.web.languages import LANGUAGE_COOKIE, best_language
from shop.web.pages import NO_TOKEN, TICKET_COOKIE

log = structlog.get_logger(__name__)

SALE_PATH = re.compile(r"/sales/([-\w]{1,60})/", re.ASCII)
# Of the pages that give a token to a reader who has none.
TOKEN_PATH = re.compile(r"/sales/[-\w]{1,60}/(?:(?:pass|email)/)?", re.ASCII)
# The moment in the page, put in again for every reader: the page's clock begins with it.
MOMENT = re.compile(rb'data-server-ms="(\d+)"')
# A page in a sale that moves is made again this often at most; a new state is shown at once.
MIN_SECONDS = 0.25
# The one before is shown while the new one is made, if it is no older than this.
STALE_SECONDS = 1.0
COUNTING_SECONDS = 30
# What Django says of one reader, or what is said again for each.
OWN_HEADERS = {b"set-cookie", b"cache-control", b"expires", b"vary", b"content-length", *SECURITY_NAMES}
# Begins the query of a reader who chose a quantity and then another language.
CHOSEN = b"quantity="
# Stands for a token that would be given.
NEW = "new"
# Returns the token of a new buyer, '' when their address gets none.
Issue = Callable[[], str]
CACHING: list[Header] = [(b"cache-control", b"private, no-cache"), (b"vary", b"Accept-Language, Cookie")]


@dataclass(slots=True)
class Page:
    """A rendered page, split where the moment stands. key: what it shows; made_at: monotonic seconds."""

    key: Hashable
    state: str
    head: Head
    before: bytes
    after: bytes
    etag: bytes
    made_at: float


class FrontPages:
    """The front pages of one process. behind: Django's pages; tokens: counts those that pages give to new buyers."""

    def __init__(self, board: Board, behind: Pages, *, tokens: Rates) -> None:
        self._tokens = tokens
        self._board = board
        self._behind = behind
        self._pages: dict[tuple[str, str], Page] = {}
        self._making: dict[tuple[str, str], asyncio.Task[Page | None]] = {}

    def ready(self, path: str, headers: Headers, connection: str) -> tuple[Page, Issue | None] | None:
        """Return a front page that is in memory and may be shown now, and what gives its reader a buyer, or None.

        connection: the address at its other end.
        """
        found = SALE_PATH.fullmatch(path)
        if not (found or path == "/") or not may_be_shared(headers):
            return None
        entry = self._board.known(found[1]) if found else None
        if found and entry is None:
            return None
        page = self._pages.get((path, language_of(headers)))
        if page is None:
            return None
        key, state = what_is_shown(entry)
        if not self._may_be_shown(page, key, state):
            return None
        return page, partial(self._issue, headers, connection) if entry is not None else None

    def _issue(self, headers: Headers, connection: str) -> str:
        return self._token_for(origin_of(headers.get(b"x-forwarded-for"), connection=connection))

    def _token_for(self, origin: Origin) -> str:
        """Return the token of a new buyer, '' when too many went there: a page is shown all the same, and a press
        makes the token."""
        return "" if self._tokens.take(origin) else issue_buyer(origin[1])[1]

    def counted(self, scope: Scope) -> Scope:
        """Return the call of a reader whom Django answers; where too many tokens went, it says that none is given."""
        would_issue = token_to_set(token_sent(partial(cookie, headers_of(scope))), issue=lambda: NEW) == NEW
        if not would_issue or not self._tokens.take(origin_of_scope(scope)):
            return scope
        return {**scope, "headers": [*scope["headers"], (NO_TOKEN.encode(), b"1")]}

    async def answer(self, scope: Scope, headers: Headers, send: Send) -> bool:
        """Answer a reader of a front page; say False when it is not one, or when Django must answer it."""
        path: str = scope["path"]
        found = SALE_PATH.fullmatch(path)
        if scope["method"] not in ("GET", "HEAD") or not (found or path == "/") or not may_be_shared(headers):
            return False
        if scope["query_string"].startswith(CHOSEN):
            return False
        entry = None
        if found:
            try:
                entry = await self._board.find(found[1])
            except (SaleNotFound, Unavailable):
                return False
        page = await self._page(path, language_of(headers), entry, scope)
        if page is None:
            return False
        issue = partial(self._token_for, origin_of_scope(scope)) if entry is not None else None
        await send_answer(send, *page_answer(page, headers, issue=issue))
        return True

    def _may_be_shown(self, page: Page, key: Hashable, state: str) -> bool:
        return page.state == state and (page.key == key or time.monotonic() - page.made_at < MIN_SECONDS)

    async def _page(self, path: str, language: str, entry: SaleEntry | None, scope: Scope) -> Page | None:
        key, state = what_is_shown(entry)
        name, now = (path, language), time.monotonic()
        page = self._pages.get(name)
        if page is not None and self._may_be_shown(page, key, state):
            return page
        making = self._making.get(name)
        if making is None:
            making = asyncio.get_running_loop().create_task(self._make(name, key, state, scope))
            self._making[name] = making
            making.add_done_callback(lambda _done: self._making.pop(name, None))
        if page is not None and page.state == state and now - page.made_at < STALE_SECONDS:
            return page  # a moment old, and the new one is on its way
        # Somebody who leaves while it is made does not take it from those who wait alongside them.
        return await asyncio.shield(making)

    async def _make(self, name: tuple[str, str], key: Hashable, state: str, scope: Scope) -> Page | None:
        """Let Django render a page for nobody in particular; None when it cannot. The one before is then shown on."""
        before = self._pages.get(name)
        try:
            asked = shared_scope(scope, path=name[0], language=name[1])
            status, headers, body, _no_parts = await self._behind.make_shared(asked)
        except Exception as error:
            log.warning("front page not rendered", action="page_retry", path=name[0], error=repr(error))
            return before
        parts = MOMENT.search(body)
        if status != 200 or parts is None:
            if before is not None:
                before.made_at = time.monotonic() + 1 - MIN_SECONDS  # a database that is away is not asked at once
            return before
        head, tail = body[: parts.start(1)], body[parts.end(1) :]
        etag = b'W/"%s"' % blake2b(head + tail, digest_size=9).hexdigest().encode()
        kept = [(n, v) for n, v in headers if n.lower() not in OWN_HEADERS]
        page = Page(
            key=key,
            state=state,
            head=Head(200, [*kept, *CACHING, (b"etag", etag)]),
            before=head,
            after=tail,
            etag=etag,
            made_at=time.monotonic(),
        )
        if len(self._pages) > 4 * len(self._board.entries()) + 8:
            self._pages.clear()  # sales that are gone
        self._pages[name] = page
        return page


def what_is_shown(entry: SaleEntry | None) -> tuple[Hashable, str]:
    """Return what a page shows, and its state: a page of another state is not shown any more."""
    now = clocks.seconds()
    if entry is None:
        return int(2 * now), ""
    state = entry.state_at(now)
    left = int(entry.opens - now) if state == "scheduled" else 0
    public_us = entry.card.public_us
    return (entry.shown, state, min(left, COUNTING_SECONDS), bool(public_us) and now >= public_us / 1e6), state


def is_shared(path: str, headers: Headers) -> bool:
    """Say whether this reader may be shown the front page `path` that everybody is shown."""
    return (path == "/" or SALE_PATH.fullmatch(path) is not None) and may_be_shared(headers)


def may_be_shared(headers: Headers) -> bool:
    """Say whether this reader may be shown what everybody is shown: no ticket, no redirect to TLS."""
    if headers.get(b"cookie") is not None and cookie(headers, TICKET_COOKIE):
        return False
    return not getattr(settings, "SECURE_SSL_REDIRECT", False) or headers.get(b"x-forwarded-proto") == b"https"


def language_of(headers: Headers) -> str:
    """Return the language that this reader is shown."""
    return best_language(cookie(headers, LANGUAGE_COOKIE), headers.get(b"accept-language", b"").decode("latin-1"))


def send_page(reply: Reply, shown: tuple[Page, Issue | None], headers: Headers, _body: bytes) -> None:
    """Answer with a page that is ready."""
    page, issue = shown
    reply.send(*page_answer(page, headers, issue=issue))


def page_answer(page: Page, headers: Headers, *, issue: Issue | None) -> tuple[Head, bytes]:
    """Return a page, or 304 for a reader who has it. issue: gives a token to readers who need one."""
    head = page.head
    is_known = page.etag in headers.get(b"if-none-match", b"")
    token = token_to_set(token_sent(partial(cookie, headers)), issue=issue) if issue else ""
    if is_known or token:
        fields = [*head.headers, (b"set-cookie", set_cookie_header(token))] if token else head.headers
        head = Head(NOT_MODIFIED if is_known else head.status, fields)
    if is_known:
        return head, b""
    return head, b"%b%d%b" % (page.before, int(clocks.seconds() * 1000), page.after)


def shared_scope(scope: Scope, *, path: str, language: str) -> Scope:
    """Return the call of a reader without cookies for `path`, made from that of any reader."""
    wanted = [(n, v) for n, v in scope["headers"] if n in (b"host", b"x-forwarded-proto")]
    return {
        **scope,
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [*wanted, (b"accept-language", language.encode())],
    }
