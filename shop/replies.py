"""How an answer leaves: at once, when a batch is back, or when a task has found it; and how an error becomes one.
Knows no sale and no server: a server gives each call a Reply.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache
from http import HTTPStatus
from itertools import count, cycle
from typing import Any, Protocol, TypeAlias

import structlog
from django.conf import settings

from inventory.exceptions import FairdropError, RateLimited, Unavailable

log = structlog.get_logger(__name__)

# By code, since this process began. The event loop alone counts: a counter with a lock costs a flood ten times as much.
REFUSED: Counter[str] = Counter()
Header: TypeAlias = tuple[bytes, bytes]
Headers: TypeAlias = Mapping[bytes, bytes]
NO_HEADERS: Headers = {}
# In turns: a crowd that is told the same second comes back as the same crowd.
CROWD_RETRY_SECONDS = (1, 2, 3, 4)
_CROWD_RETRY = cycle(CROWD_RETRY_SECONDS)
OVERLOADED = Unavailable("Too many are asking in this instant; your place, if you have one, is kept.")
JSON_HEADERS: list[Header] = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
PROBLEM_HEADERS: list[Header] = [(b"content-type", b"application/problem+json"), (b"cache-control", b"no-store")]
# What somebody reads for whom there is not even a page: it loads nothing else, and its address again, always by a GET.
BUSY_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Busy / 繁忙</title>
<p>The shop cannot answer in this instant: very many people ask, or very many calls came from your network. Your place
in line, if you have one, is kept. This page loads again by itself. If you pressed a button, nothing presses it again:
look at what the page says then, and press it once more if you still want to.
<p lang="zh-Hans">商店暂时无法回应：来的人非常多，或来自您网络的请求非常多。如果您已有位置，会为您保留。
本页会自行重新加载。您若按过按钮，它不会自动再按一次：请看重新加载后的页面，仍然需要时再按一次。
""".encode()


def security_headers() -> list[Header]:
    """Return what every answer tells a browser, pages and errors too."""
    fields = [
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", settings.SECURE_REFERRER_POLICY.encode()),
        (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ]
    if settings.BEHIND_TLS:
        lifetime = b"max-age=%d; includeSubDomains; preload" % settings.SECURE_HSTS_SECONDS
        fields.append((b"strict-transport-security", lifetime))
    return fields


SECURITY_HEADERS = security_headers()
SECURITY_NAMES = {name for name, _value in SECURITY_HEADERS}
_SECURITY_WIRE = b"".join(b"%b: %b\r\n" % field for field in SECURITY_HEADERS)

# A request's own id, by which an answer is found in the log. One that the sender or a proxy gave is kept.
REQUEST_ID = b"x-request-id"
GIVEN_ID = re.compile(rb"[\w.-]{1,64}", re.ASCII)
ID_PREFIX = b"%b-" % secrets.token_hex(4).encode()
ID_NUMBERS = count(1)


def request_id_of(headers: Headers, own: bytes = b"") -> bytes:
    """Return the id that came with a request if it is well-formed, else `own`, and without that a new one."""
    given = headers.get(REQUEST_ID)
    if given is not None and GIVEN_ID.fullmatch(given):
        return given
    return own or b"%b%x" % (ID_PREFIX, next(ID_NUMBERS))


class Head:
    """Status and headers of an answer, also as they go over the wire: all but date, id, length and connection.

    `headers` are without those of SECURITY_HEADERS, which every answer has.
    """

    __slots__ = ("headers", "status", "wire")

    def __init__(self, status: int, headers: list[Header]) -> None:
        self.status = status
        self.headers = headers
        fields = b"".join(b"%b: %b\r\n" % field for field in headers)
        self.wire = b"HTTP/1.1 %d %b\r\n%b%b" % (status, HTTPStatus(status).phrase.encode(), _SECURITY_WIRE, fields)


OK = Head(200, JSON_HEADERS)
ACCEPTED = Head(202, JSON_HEADERS)


class Reply(Protocol):
    """Where the answer to one call goes."""

    def send(self, head: Head, body: bytes, own_id: bytes = b"") -> None:
        """Send the whole answer. Does nothing when the caller has left. Call it once.

        own_id: the X-Request-ID of the answer to a call that brought none; b"" for a new one.
        """


# Answers a call: gets the reply, what was found for it, the headers by lower-case name, and the body.
Handler: TypeAlias = Callable[[Reply, Any, Headers, bytes], None]
HotCall: TypeAlias = tuple[Handler, Any]


class AwaitedReply:
    """The reply to a call that came through ASGI."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[tuple[Head, bytes]] = asyncio.get_running_loop().create_future()

    def send(self, head: Head, body: bytes, own_id: bytes = b"") -> None:
        """Send the whole answer."""
        if own_id:
            head = Head(head.status, [*head.headers, (REQUEST_ID, own_id)])
        if not self._answer.done():
            self._answer.set_result((head, body))

    async def answer(self) -> tuple[Head, bytes]:
        """Return the answer as soon as it is there."""
        return await self._answer


class LateAnswers:
    """The tasks of one process that look for an answer: for the few calls that neither memory nor a batch answers."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, reply: Reply, work: Coroutine[Any, Any, None], headers: Headers) -> None:
        """Run `work`, which answers a call that has `headers`; an error that it raises is the answer instead."""
        task = asyncio.get_running_loop().create_task(_answered(reply, work, headers))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _answered(reply: Reply, work: Coroutine[Any, Any, None], headers: Headers) -> None:
    try:
        await work
    except Exception as error:
        refuse(reply, error, headers)


def refuse(reply: Reply, error: Exception, headers: Headers = NO_HEADERS) -> None:
    """Answer with `error` as a problem, and count it; one that is not ours is logged and shown as Unavailable.

    headers: those of the call, by lower-case name. What is logged has the id that the answer has.
    """
    own_id = b""
    if not isinstance(error, FairdropError):
        # A call that came through ASGI has one already, and every line about it.
        bound = structlog.contextvars.get_contextvars().get("request_id")
        own_id = bound.encode() if bound else request_id_of(headers)
        log.error("unexpected error in the gate", action="gate_error", exc_info=error, request_id=own_id.decode())
        error = Unavailable()
    REFUSED[error.code] += 1
    reply.send(*problem_answer(error), own_id)


def refuse_crowd(reply: Reply, error: FairdropError) -> None:
    """Refuse one of many callers who are refused in the same moment, and ask each to come back at another one."""
    REFUSED[error.code] += 1
    reply.send(*plain_problem(error.code, error.status, error.detail, next(_CROWD_RETRY)))


def refuse_reader(reply: Reply, error: FairdropError) -> None:
    """Refuse somebody at a browser, as refuse_crowd does, with a page that loads its address again by itself."""
    REFUSED[error.code] += 1
    reply.send(busy_head(error.status, max(error.retry_after_seconds or 0, next(_CROWD_RETRY))), BUSY_PAGE)


async def refusal(error: Exception, *, to_reader: bool) -> tuple[Head, bytes]:
    """Return what a call is answered that ended with `error`. to_reader: a browser shows it as a page."""
    reply = AwaitedReply()
    if to_reader and isinstance(error, RateLimited | Unavailable):
        refuse_reader(reply, error)
    else:
        refuse(reply, error)
    return await reply.answer()


@lru_cache(maxsize=256)
def busy_head(status: int, seconds: int) -> Head:
    """Return the head of BUSY_PAGE. A browser heeds Refresh, and ignores Retry-After."""
    again = [(name, b"%d" % seconds) for name in (b"retry-after", b"refresh")]
    return Head(status, [(b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"), *again])


def problem_answer(error: FairdropError) -> tuple[Head, bytes]:
    """Return `error` as application/problem+json with its code, status and Retry-After."""
    if not error.extra:
        return plain_problem(error.code, error.status, error.detail, error.retry_after_seconds)
    return problem_head(error.status, error.retry_after_seconds), json.dumps(problem(error)).encode()


@lru_cache(maxsize=256)
def plain_problem(code: str, status: int, detail: str, retry_after_seconds: int | None = None) -> tuple[Head, bytes]:
    """Return a problem that is text alone: in a flood the same one goes out again and again."""
    body = json.dumps(problem_object(code, status=status, detail=detail)).encode()
    return problem_head(status, retry_after_seconds), body


def problem_head(status: int, retry_after_seconds: int | None) -> Head:
    """Return the head of a problem; with Retry-After when the caller shall wait so long."""
    retry = [] if retry_after_seconds is None else [(b"retry-after", b"%d" % retry_after_seconds)]
    return Head(status, [*PROBLEM_HEADERS, *retry])


def problem(error: FairdropError) -> dict[str, Any]:
    """Return the problem object of `error`."""
    return {**problem_object(error.code, status=error.status, detail=error.detail), **error.extra}


def problem_object(code: str, *, status: int, detail: str) -> dict[str, Any]:
    """Return a problem object without members of its own."""
    return {
        "type": f"/problems/{code}",
        "title": code.replace("_", " "),
        "status": status,
        "code": code,
        "detail": detail,
    }


def send_json(reply: Reply, value: Mapping[str, Any] | list[Any]) -> None:
    """Answer 200 with `value` as JSON."""
    reply.send(OK, json.dumps(value).encode())
