"""Runs Django's WSGI application in threads: payments, pages and staff in a bounded pool each, so that a crowd in one
keeps nobody waiting in another. Never serves a hot call, never begins work whose caller has left, never keeps a thread
for a slow reader.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any, NamedTuple, cast

from a2wsgi.wsgi import build_environ

from inventory.exceptions import InvalidRequest
from shop.gate.server.threads import ThreadPool
from shop.http import (
    HAS_END,
    MAX_PAGE_BYTES,
    MAX_UPLOAD_BYTES,
    UPLOAD,
    Receive,
    Scope,
    Send,
    read_body,
    without_charset,
)
from shop.replies import Header

PAYMENTS, CHANGES, PAGES, FILES, STAFF, SHARED = "payments", "changes", "pages", "files", "staff", "shared"
# (threads, calls that may be under way or wait). Pages cost this process's own time, so more threads would not make
# them quicker. A login costs a third of a second of a core. A payment waits for its provider; a change never does.
# Files are quick, ask no store, and each newcomer wants some ten: a page without its scripts is a dead one.
SIZES = {PAYMENTS: (6, 512), CHANGES: (2, 512), PAGES: (4, 256), FILES: (2, 4096), STAFF: (2, 32), SHARED: (2, 512)}


# Forms of the admin with a picture in them, and where Django says whether somebody may send one.
UPLOAD_PATH = re.compile(r"/admin/shop/(?:product/(?:add|[0-9]+/change)|sale/add(?:/preview)?|sale/[0-9]+/list)/")
MAY_UPLOAD, NO_CONTENT = "/admin/uploads/", 204
# How many of them a process reads and answers at a time; the next one waits unread.
MAX_UPLOADS = 2


class PageAnswer(NamedTuple):
    """What a view answered. parts: Django's answer whose body is still to be made; None: body is all of it."""

    status: int
    headers: list[Header]
    body: bytes
    parts: Any = None


class Pages:
    """wsgi: Django's application."""

    def __init__(self, wsgi: Callable[..., Any]) -> None:
        # Django's WSGI handler is several times faster than its ASGI one for ordinary views, and these views block.
        self._wsgi = wsgi
        # Each may have MAX_UPLOAD_BYTES here, and a decoded picture in its thread.
        self._uploads = asyncio.Semaphore(MAX_UPLOADS)
        self._pools = {
            name: ThreadPool(name, threads=threads, max_waiting=max_waiting)
            for name, (threads, max_waiting) in SIZES.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request by a view. Raises Unavailable when its pool is full, or its caller left."""
        if UPLOAD in scope.get("extensions", {}) and await self._may_upload(scope):
            async with self._uploads:
                scope["extensions"][UPLOAD]["allow"]()
                return await self._serve(scope, receive, send, max_bytes=MAX_UPLOAD_BYTES)
        return await self._serve(scope, receive, send, max_bytes=MAX_PAGE_BYTES)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, *, max_bytes: int) -> None:
        # Read here, with a limit of size and time: in a thread, a few slow senders would stop every page.
        body = await read_body(receive, dict(scope["headers"]), max_bytes=max_bytes)
        if b"%00" in scope["query_string"] or b"\0" in scope["query_string"]:
            raise InvalidRequest("a query must not contain NUL")  # PostgreSQL cannot compare with it
        name = pool_of(scope)
        work = partial(self._answer, scope, body, in_parts=name == STAFF)
        # After the body only one thing can come: that the caller has hung up, or will send nothing more.
        left = asyncio.ensure_future(receive())
        try:
            answer = await self._pools[name].run(work, left=left)
            await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
            if answer.parts is not None:
                scope["state"][HAS_END] = True
                await self._send_parts(answer.parts, send, pool=self._pools[name], left=left)
        finally:
            left.cancel()
        await send({"type": "http.response.body", "body": answer.body})

    async def _send_parts(self, parts: Any, send: Send, *, pool: ThreadPool, left: asyncio.Future[Any]) -> None:
        """Send a body as it is made: a thread makes one part, and the next when the reader has taken it.

        What fails in between ends the connection: the reader must not take a piece for the whole.
        """
        made = iter(parts)
        try:
            while not left.done() and (part := await pool.read(next, made, None)) is not None:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        finally:
            await pool.read(parts.close)

    async def _may_upload(self, scope: Scope) -> bool:
        """Ask Django whether this caller may send a large body here: somebody of the staff, for a picture.

        Nothing of the body is read until then but what fits into the buffers of the connection.
        """
        if scope["method"] != "POST" or not UPLOAD_PATH.fullmatch(scope["path"]):
            return False
        kept = [field for field in scope["headers"] if field[0] in (b"host", b"cookie", b"x-forwarded-proto")]
        asked = {**scope, "method": "GET", "path": MAY_UPLOAD, "raw_path": MAY_UPLOAD.encode(), "headers": kept}
        answer = await self._pools[STAFF].run(partial(self._answer, {**asked, "query_string": b""}, b""))
        return answer.status == NO_CONTENT

    @property
    def is_full(self) -> bool:
        """Say whether nobody else may wait for a page."""
        return self._pools[PAGES].is_full

    async def make_shared(self, scope: Scope) -> PageAnswer:
        """Return a page that is shown to many, from a pool that no single reader can fill. Raises Unavailable."""
        return await self._pools[SHARED].run(partial(self._answer, scope, b""))

    def _answer(self, scope: Scope, body: bytes, *, in_parts: bool = False) -> PageAnswer:
        """Call Django in a thread. The whole answer is taken at once, unless it streams and the caller takes parts."""
        heads: list[tuple[str, list[tuple[str, str]]]] = []
        asked = {**scope, "headers": for_django(scope["headers"])}
        environ = build_environ(cast(Any, asked), cast(Any, BytesIO(body)))
        parts = self._wsgi(environ, lambda *head: heads.append(head))
        streams = in_parts and getattr(parts, "streaming", False)
        try:
            whole = b"" if streams else b"".join(parts)
        finally:
            if not streams:
                getattr(parts, "close", lambda: None)()
        status, pairs = heads[0]
        headers = [(name.lower().encode("latin-1"), text.strip().encode("latin-1")) for name, text in pairs]
        return PageAnswer(int(status[:3]), headers, whole, parts if streams else None)


def pool_of(scope: Scope) -> str:
    """Return the name of the pool that a request belongs to."""
    path: str = scope["path"]
    # The proxy bounds these calls by the path that dots lead to (docker/nginx/limits.conf); none of staff's has any.
    if "/." not in path and (path.startswith("/admin") or (path.startswith("/api/") and path.endswith("/audit"))):
        return STAFF
    if path.startswith(("/static/", "/pictures/")):
        return FILES
    if path.startswith("/sandbox/"):
        return PAYMENTS
    if scope["method"] == "POST" and path.startswith(("/api/", "/requests/")):
        return PAYMENTS if path.rstrip("/").endswith("/payment") else CHANGES
    return PAGES


def for_django(headers: Sequence[Header]) -> list[Header]:
    """Return the headers of a call as Django's environ must have them.

    There "X_Forwarded_For" would be the same as the header that proxies of ours write, so no name with a "_" goes on.
    """
    known = [
        (name, without_charset(value) if name == b"content-type" else value)
        for name, value in headers
        if b"_" not in name
    ]
    cookies = [value for name, value in known if name == b"cookie"]
    if len(cookies) > 1:
        # A proxy may hand the cookies of HTTP/2 on as a header each, and the environ would join them by a comma.
        known = [*(each for each in known if each[0] != b"cookie"), (b"cookie", b"; ".join(cookies))]
    return known
