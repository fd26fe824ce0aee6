"""Reads what the gate needs of an HTTP request: body, buyer, origin, cookies. Knows nothing of sales."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache, partial
from typing import Any, TypeAlias

import structlog
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from inventory.exceptions import ForbiddenOrigin, InvalidRequest, TooLarge, Unauthenticated
from shop.buyers import token_sent, verify_token
from shop.client_address import Origin, origin_of
from shop.replies import Head, Headers

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

MAX_BODY_BYTES = 4096
# A form of the admin with a long description; the API itself takes 4 KiB.
MAX_PAGE_BYTES = 64 * 1024
BODY_SECONDS = 5.0
# A picture that staff upload, and how long that may take.
MAX_UPLOAD_BYTES = settings.MAX_UPLOAD_BYTES
UPLOAD_SECONDS = 60.0
# The name of the extension of a scope with which the server lets a body be an upload.
UPLOAD = "fairdrop.upload"
NOT_MODIFIED = 304
# In the state of a scope: its answer has an end, so a connection that ends before it must not look as if it had come.
HAS_END = "has_end"
# Longer ones are nobody's; they must not fill the memory of what was checked before.
MAX_ORIGIN_LENGTH = 300

log = structlog.get_logger(__name__)
# A page of a long list, as an address names it.
PAGE_NUMBER = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)


def headers_of(scope: Scope) -> Headers:
    """Return the request's headers by lower-case name."""
    pairs = scope["headers"]
    headers = dict(pairs)
    if len(headers) != len(pairs):
        # A proxy may hand the cookies of HTTP/2 on as a header each.
        headers[b"cookie"] = b"; ".join(value for name, value in pairs if name == b"cookie")
    return headers


def wants_page(headers: Headers) -> bool:
    """Say whether a browser asks for what it will show; scripts and programs ask for anything else."""
    return b"text/html" in headers.get(b"accept", b"")


def shows_pages(scope: Scope) -> bool:
    """Say whether a browser shows the answer as a page: never at an address of the API."""
    return not scope["path"].startswith(("/api/", "/.well-known/")) and wants_page(headers_of(scope))


async def send_answer(send: Send, head: Head, body: bytes) -> None:
    """Send a whole answer through ASGI."""
    length = [] if head.status == NOT_MODIFIED else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": head.status, "headers": [*head.headers, *length]})
    await send({"type": "http.response.body", "body": body})


async def read_body(receive: Receive, headers: Headers, *, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the body. Raises TooLarge as soon as it is known to pass `max_bytes`, InvalidRequest when it breaks off.

    The server ends a body that takes longer than BODY_SECONDS.
    """
    declared = headers.get(b"content-length")
    if declared is not None and (not declared.isdigit() or int(declared[:12]) > max_bytes):
        raise TooLarge(f"The body is larger than {max_bytes // 1024} KiB.")
    message = await receive()
    body = bytearray(message.get("body", b""))
    while message.get("more_body") and len(body) <= max_bytes:
        message = await receive()
        body += message.get("body", b"")
    if message["type"] != "http.request":
        raise InvalidRequest("request body was truncated")
    if len(body) > max_bytes:
        raise TooLarge(f"The body is larger than {max_bytes // 1024} KiB.")
    return bytes(body)


def buyer_of(headers: Headers, *, unsafe: bool) -> str:
    """Return the buyer who calls, by bearer token or cookie. unsafe: the call changes something.

    Raises Unauthenticated, ForbiddenOrigin (an unsafe call with the cookie from another site).
    """
    token = token_in(headers)
    if unsafe and token and b"authorization" not in headers:
        check_origin(headers, required=True)
    return verify_token(token)


def token_in(headers: Headers) -> str:
    """Return the token that a call shows, by bearer token or cookie; '' for none. Raises Unauthenticated."""
    authorization = headers.get(b"authorization")
    if authorization is None:
        return token_sent(partial(cookie, headers))
    scheme, _, token = authorization.partition(b" ")
    if scheme.lower() != b"bearer":
        raise Unauthenticated
    return token.decode("latin-1")


def origin_of_scope(scope: Scope) -> Origin:
    """Return by what a call that came through ASGI is counted."""
    forwarded_for = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    connection = scope["client"][0] if scope.get("client") else ""
    return origin_of(b",".join(forwarded_for) if forwarded_for else None, connection=connection)


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
    if len(origin) + len(host) > MAX_ORIGIN_LENGTH:
        raise ForbiddenOrigin
    if not is_own_origin(origin.decode("latin-1"), host.decode("latin-1")):
        raise ForbiddenOrigin


@lru_cache(maxsize=64)
def is_own_host(host: bytes) -> bool:
    """Say whether `host` is a name of this shop, by Django's rule for ALLOWED_HOSTS."""
    domain, _port = split_domain_port(host.decode("latin-1"))
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


def check_host(headers: Headers) -> None:
    """Raise InvalidRequest unless the call is to a host of this shop."""
    host = headers.get(b"host", b"")
    if is_own_host(host):
        return
    log.warning("host not allowed", action="host_refused", host=host[:100].decode("latin-1"))
    raise InvalidRequest("This shop has no such host.")


@lru_cache(maxsize=256)
def is_own_origin(origin: str, host: str) -> bool:
    """Say whether `origin` is this shop under an allowed `host`, or a trusted origin."""
    if origin in settings.TRUSTED_ORIGINS:
        return True
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest == host and is_own_host(host.encode("latin-1"))


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


def without_charset(content_type: bytes) -> bytes:
    """Return `content_type` without its charset: text is read as UTF-8. Raises InvalidRequest for another charset.

    Django reads the query again as soon as a charset is named, outside of what turns its errors into answers.
    """
    kept = []
    for part in content_type.decode("latin-1").split(";"):
        name, _, value = part.partition("=")
        name = name.strip().lower()
        if name.endswith("*") or (name.startswith("charset") and value.strip('" ').lower() != "utf-8"):
            raise InvalidRequest("text must be in UTF-8")
        if not name.startswith("charset"):
            kept.append(part)
    return ";".join(kept).encode("latin-1")
