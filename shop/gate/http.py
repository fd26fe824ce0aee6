"""Reads what the gate needs of an HTTP request and writes its answers. Knows nothing of sales.
Called by the handlers.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, TypeAlias

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from inventory.exceptions import FairdropError, ForbiddenOrigin, InvalidRequest, TooLarge, Unauthenticated
from shop.buyers import COOKIE_NAME, verify_token
from shop.gate.deadlines import Deadlines

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = Mapping[bytes, bytes]

MOST_BODY_BYTES = 4096
BODY_SECONDS = 5.0
BODY_DEADLINES = Deadlines(seconds=BODY_SECONDS)
# Longer ones are nobody's; they must not fill the memory of what was checked before.
LONGEST_ORIGIN = 300
JSON_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
PROBLEM_HEADERS = [(b"content-type", b"application/problem+json"), (b"cache-control", b"no-store")]


async def send_answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    """Send a whole answer of `body`."""
    for message in messages_of(status, headers, body):
        await send(message)


def messages_of(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> tuple[Message, Message]:
    """Return what the server must be sent for a whole answer of `body`."""
    length = (b"content-length", b"%d" % len(body))
    start = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    return start, {"type": "http.response.body", "body": body}


async def send_json(send: Send, status: int, value: Any) -> None:
    """Send `value` as JSON."""
    await send_answer(send, status, JSON_HEADERS, json.dumps(value).encode())


async def send_problem(send: Send, error: FairdropError) -> None:
    """Send `error` as application/problem+json with its code, status and Retry-After."""
    if not error.extra:
        for message in plain_problem(error.code, error.status, error.detail, error.retry_after_seconds):
            await send(message)
        return
    headers = problem_headers(error.retry_after_seconds)
    await send_answer(send, error.status, headers, json.dumps(problem(error)).encode())


@lru_cache(maxsize=64)
def plain_problem(
    code: str, status: int, detail: str, retry_after_seconds: int | None = None
) -> tuple[Message, Message]:
    """Return both messages of a problem that is text alone: in a flood the same one goes out again and again."""
    body = json.dumps(problem_object(code, status=status, detail=detail)).encode()
    return messages_of(status, problem_headers(retry_after_seconds), body)


def problem_headers(retry_after_seconds: int | None) -> list[tuple[bytes, bytes]]:
    """Return the headers of a problem; with Retry-After when the caller shall wait so long."""
    if retry_after_seconds is None:
        return PROBLEM_HEADERS
    return [*PROBLEM_HEADERS, (b"retry-after", b"%d" % retry_after_seconds)]


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


async def read_body(receive: Receive, headers: Headers, *, most_bytes: int = MOST_BODY_BYTES) -> bytes:
    """Return the body. Raises TooLarge as soon as it is known to pass `most_bytes`.

    Raises InvalidRequest when it breaks off or takes longer than BODY_SECONDS: a slow sender must not hold a place.
    """
    declared = headers.get(b"content-length")
    if declared is not None and (not declared.isdigit() or int(declared[:12]) > most_bytes):
        raise TooLarge(f"The body is larger than {most_bytes // 1024} KiB.")
    try:
        with BODY_DEADLINES.kept():
            message = await receive()
            body: bytes = message.get("body", b"")
            while message.get("more_body") and len(body) <= most_bytes:
                message = await receive()
                body += message.get("body", b"")
    except TimeoutError as error:
        raise InvalidRequest(f"the body did not arrive within {BODY_SECONDS:.0f} s") from error
    if message["type"] != "http.request":
        raise InvalidRequest("the body broke off")
    if len(body) > most_bytes:
        raise TooLarge(f"The body is larger than {most_bytes // 1024} KiB.")
    return body


def buyer_of(headers: Headers, *, unsafe: bool) -> str:
    """Return the buyer who calls, by bearer token or cookie. unsafe: the call changes something.

    Raises Unauthenticated, ForbiddenOrigin (an unsafe call with the cookie from another site).
    """
    authorization = headers.get(b"authorization")
    if authorization is not None:
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthenticated
        return verify_token(token.decode("latin-1"))
    token_text = cookie(headers, COOKIE_NAME)
    if unsafe and token_text:
        check_origin(headers, required=True)
    return verify_token(token_text)


def cookie(headers: Headers, name: str) -> str:
    """Return the cookie `name`, or ''."""
    for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value
    return ""


def check_origin(headers: Headers, *, required: bool) -> None:
    """Raise ForbiddenOrigin unless the call comes from our own pages. required: a call that does not say is refused."""
    site = headers.get(b"sec-fetch-site")
    origin = headers.get(b"origin")
    if site is None and origin is None:
        if required:
            raise ForbiddenOrigin("say where this call comes from: Origin or Sec-Fetch-Site is missing")
        return
    if site is not None and site not in (b"same-origin", b"none") and origin is None:
        raise ForbiddenOrigin
    if origin is None:
        return
    host = headers.get(b"host", b"")
    if len(origin) + len(host) > LONGEST_ORIGIN:
        raise ForbiddenOrigin
    if not is_own_origin(origin.decode("latin-1"), host.decode("latin-1")):
        raise ForbiddenOrigin


@lru_cache(maxsize=256)
def is_own_origin(origin: str, host: str) -> bool:
    """Say whether `origin` is this shop under an allowed `host`, or a trusted origin."""
    if origin in settings.TRUSTED_ORIGINS:
        return True
    domain, _port = split_domain_port(host)
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest == host and validate_host(domain, settings.ALLOWED_HOSTS)


def refuse_constant(name: str) -> Any:
    """Refuse NaN and the infinities, which Python's reader would let through."""
    raise InvalidRequest(f"{name} is not JSON")


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as an object. Raises InvalidRequest when a name stands twice."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise InvalidRequest("a name stands twice in the body")
    return value


def read_json_object(body: bytes) -> dict[str, Any]:
    """Return the object in `body`. Raises InvalidRequest for anything else, however deep or odd."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=refuse_constant, object_pairs_hook=unique_pairs)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("the body must be one JSON object in UTF-8") from error
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be one JSON object")
    return value


def check_json_content_type(headers: Headers) -> None:
    """Raise InvalidRequest unless the body says it is JSON: a plain form of another site cannot."""
    kind = headers.get(b"content-type", b"")
    if kind != b"application/json" and kind.partition(b";")[0].strip().lower() != b"application/json":
        raise InvalidRequest("Content-Type must be application/json")
