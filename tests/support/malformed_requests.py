"""Makes malformed HTTP requests to every route, sends them over a few connections, and counts the answers.
The same seed makes the same requests, but for the words that name this run's sale, buyer and staff. Knows no server.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote_from_bytes

CONNECTIONS = 12
ANSWER_SECONDS = 240.0
TIMES_AGAIN = 5
MAX_KEPT = 20  # answers of 5xx that are kept with their requests

# {slug}, {id}, {sale}, {sale_id}: words of the run. * is replaced by something odd. Those of the gate are cheap.
GATE_PATHS = (
    "/api/v1/sales", "/api/v1/sales/{slug}", "/api/v1/sales/*", "/api/v1/sales/{slug}/requests",
    "/api/v1/sales/{slug}/requests", "/api/v1/sales/*/requests", "/api/v1/sales/{slug}/events",
    "/api/v1/sales/*/events",
    "/api/v1/requests/{id}", "/api/v1/requests/*", "/api/v1/requests/{sale}-*", "/api/v1/requests/{id}/events",
    "/api/v1/requests/*/events", "/api/v1/buyers", "/api/v1/payments/sandbox/notices",
    "/api/v1/payments/sandbox/notices", "/api/v1/payments/*/notices", "/healthz", "/metrics", "/", "/sales/{slug}/",
)  # fmt: skip
API_PATHS = (
    "/api/v1/sales/{slug}/audit", "/api/v1/sales/*/audit", "/api/v1/requests/{id}/payment", "/api/v1/*", "/api/*",
    "/api/v1/requests/*/payment", "/api/v1/requests/{id}/cancel", "/api/v1/requests/*/cancel",
    "/api/v1/tickets/restore",
    "/api/v1/requests/{sale}-*/cancel", "/api/v1/tickets/restore", "/api/v1/about", "/readyz",
)  # fmt: skip
PAGE_PATHS = (
    "/past/", "/sales/{slug}/", "/sales/*/", "/requests/{id}/", "/requests/*/", "/requests/{sale}-*/", "//*", "/../*",
    "/requests/{id}/payment/", "/requests/*/payment/", "/requests/{id}/cancel/", "/requests/{sale}-*/cancel/",
    "/requests/{id}/delivery/", "/requests/{sale}-*/delivery/",
    "/tickets/", "/links/{id}/*/", "/links/*/*/", "/requests/*/link/", "/language/", "/sandbox/pay/*/",
    "/static/shop/*", "/static/*", "/favicon.ico", "/*", "*",
)  # fmt: skip
ADMIN_PATHS = (
    "/admin/", "/admin/login/", "/admin/logout/", "/admin/password_change/", "/admin/jsi18n/", "/admin/*",
    "/admin/shop/sale/", "/admin/shop/sale/add/", "/admin/shop/sale/*/change/", "/admin/shop/sale/*/room/",
    "/admin/shop/sale/{sale_id}/room/", "/admin/shop/sale/{sale_id}/change/", "/admin/shop/sale/{sale_id}/*/",
    "/admin/shop/order/", "/admin/shop/order/*/change/", "/admin/shop/staffact/", "/admin/shop/product/",
    "/admin/shop/product/add/", "/admin/auth/user/", "/admin/auth/user/*/change/", "/admin/auth/group/*/history/",
    "/admin/inventory/stock/", "/admin/inventory/stock/live/", "/admin/inventory/stock/*/change/",
    "/admin/inventory/stockmovement/", "/admin/autocomplete/", "/admin/r/*/*/",
)  # fmt: skip
METHODS = ("GET", "GET", "GET", "POST", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND")
ODD_BYTES = (
    b"", b"\x00", b"a\x00b", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf0\x9f\x92\xa9", b"..", b"../../etc/passwd",
    b"%", b"%zz", b"'", b'"', b"' OR 1=1--", b"<script>", b"{}", b"{slug}", b"*", b"\\", b"\r\nX-Odd: 1", b"\t", b" ",
    b"0", b"-1", b"1", b"1e400", b"NaN", b"99999999999999999999", b"9" * 400, b"-9223372036854775809", b"2147483648",
    b"1" * 5000, b"a" * 700, b"\xd9\xa1", b"\xef\xbc\x91", b"1-" + b"a" * 22, b"ffffffffffff-" + b"a" * 22,
    b"0-" + b"A" * 22, b"sandbox", b"null", b"true", b"_id", b"id__exact", b"__proto__", b"a" * 22 + b".20000.x",
)  # fmt: skip
ODD_JSON = (
    "null", "true", "[]", "{}", '""', "-0", "1e400", "1.5", "9" * 30, "9" * 3900, "-9223372036854775809", "NaN",
    '"\\u0000"', '"\\ud800"', '"1"', "[" * 900 + "]" * 900, '{"a":' * 300 + "1" + "}" * 300, "1000", "1001", '"x"',
    '"' + "a" * 2000 + '"', "2147483648", "9007199254740992", '"NaN"', '"1e999999"', '"Infinity"', '"\\u0661"',
)  # fmt: skip
JSON_NAMES = (
    "quantity", "terms_version", "ticket", "provider", "page", "id", "kind", "reference", "amount", "currency", "x",
)  # fmt: skip
FORM_NAMES = (
    "quantity", "idempotency_key", "terms_version", "new_buyer", "next", "language", "choice", "username", "password",
    "csrfmiddlewaretoken", "action", "_selected_action", "select_across", "_save", "_popup", "reason", "units", "page",
    "p", "q", "o", "e", "all", "still", "ended", "name", "price", "slug", "opens_at_0", "sale__id__exact", "id__in",
    "state__exact", "created_at__gte", "term", "app_label", "model_name", "field_name", "seen", "version", "_to_field",
    "is_staff__exact", "opens_at__gte", "sku", "format", "after", "sort",
)  # fmt: skip
CONTENT_TYPES = (
    "application/json", "application/x-www-form-urlencoded", "application/x-www-form-urlencoded; charset=utf-7",
    "application/x-www-form-urlencoded; charset=utf-16", "application/x-www-form-urlencoded; charset=zlib",
    "application/x-www-form-urlencoded; charset=idna", "application/x-www-form-urlencoded; charset=\x7f",
    "application/x-www-form-urlencoded; charset=undefined", "application/x-www-form-urlencoded; charset=base64",
    "application/json; charset=utf-7", "application/json; charset=nonsense", "multipart/form-data",
    "multipart/form-data; boundary=x", "multipart/form-data; boundary=x; charset=utf-7",
    "multipart/form-data; boundary=",
    "application/x-www-form-urlencoded; a*=nonsense'en'%41", "application/x-www-form-urlencoded;\xa0charset=zlib",
    "application/x-www-form-urlencoded; charset=utf-8",
    "multipart/form-data; boundary=" + "b" * 300, "multipart/form-data; boundary=\xff", "text/plain", "", ";", "/",
    "a/b/c",
    "text/html; charset=utf-8; charset=utf-7", "application/json;" + "a=b;" * 500, "\xff\xfe", "*/*",
)  # fmt: skip
HOSTS = (
    "evil.example", "127.0.0.1:99999999", "127.0.0.1:x", "[::1", "[::1]:80:80", "a b", "\xff", "127.0.0.1.", "..", "@",
    "127.0.0.1@evil.example", "a" * 3000, "testserver", "localhost:1", "%00", "",
)  # fmt: skip
ODD_HEADERS = (
    "Authorization", "Idempotency-Key", "Origin", "Sec-Fetch-Site", "Accept-Language", "Accept-Encoding", "Accept",
    "If-None-Match", "If-Modified-Since", "Range", "Last-Event-ID", "X-Forwarded-For", "X-Forwarded-Proto",
    "X-Request-ID", "X-Correlation-ID", "Referer", "User-Agent", "Sandbox-Signature", "X-CSRFToken", "Content-Encoding",
    "X-HTTP-Method-Override", "Forwarded", "X-Script-Name", "Expect", "Upgrade", "X-Forwarded-Host", "Cookie", "TE",
)  # fmt: skip
COOKIES = ("buyer", "ticket", "proof", "language", "csrftoken", "sessionid", "messages", "__Host-buyer")
# Broken as HTTP: each ends its connection.
NOT_HTTP = (
    b"GET\r\n\r\n", b"\x00\x01\x02\x03\r\n\r\n", b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET http://[ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999999999999999999999\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nOdd Name: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nA: \x00\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 150 + b"\r\n",
    b"GET /" + b"a" * 30_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\nabc",
)  # fmt: skip


@dataclass(frozen=True)
class Words:
    """What the requests of one run are about. named: {slug}, {id}, {sale}, {sale_id}; sign: signs a notice's body."""

    named: Mapping[str, str]
    token: str
    session: str
    sign: Callable[[bytes], str]


@dataclass(frozen=True)
class Request:
    """One request as bytes. closes: the server ends the connection after it, or may do so."""

    method: str
    text: bytes
    closes: bool = False


@dataclass
class Result:
    """How the server answered. server_errors: the first requests that got 5xx, with the answers' beginnings.

    unavailable: those that got 503 and are to be sent again, as the contract says; a store was slow for a moment.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    server_errors: list[tuple[bytes, bytes]] = field(default_factory=list)
    unavailable: list[Request] = field(default_factory=list)


def malformed_requests(count: int, *, seed: int, words: Words) -> Iterable[Request]:
    """Return `count` requests; each has at least one thing wrong, or is right by chance."""
    lots = random.Random(seed)
    for _ in range(count):
        if lots.random() < 0.02:
            yield Request("GET", lots.choice(NOT_HTTP), closes=True)
        else:
            yield _request(lots, words)


def _request(lots: random.Random, words: Words) -> Request:
    paths = lots.choices((GATE_PATHS, API_PATHS, PAGE_PATHS, ADMIN_PATHS), (82, 8, 6, 4))[0]
    path = lots.choice(paths)
    method = lots.choice(METHODS) if lots.random() > 0.7 else _right_method(path)
    kind, body = _body(lots) if method in ("POST", "PUT", "PATCH") or lots.random() < 0.1 else ("", b"")
    head: dict[str, str] = {"Host": "127.0.0.1" if lots.random() > 0.04 else lots.choice(HOSTS)}
    if body or kind:
        head["Content-Type"] = kind
    if path.endswith("notices") and lots.random() < 0.8:
        head["Sandbox-Signature"] = words.sign(body)
    _add_who(lots, head, words, is_admin=paths is ADMIN_PATHS)
    for _ in range(lots.choice((0, 0, 1, 2))):
        head[lots.choice(ODD_HEADERS)] = _odd_text(lots)
    if head.get("Expect") or head.get("Upgrade"):
        head = {name: value for name, value in head.items() if name not in ("Expect", "Upgrade")}
    text = body
    if body and lots.random() < 0.15:
        head["Transfer-Encoding"], text = "chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    elif body or method in ("POST", "PUT", "PATCH"):
        head["Content-Length"] = str(len(body))
    for name, value in words.named.items():
        path = path.replace(f"{{{name}}}", value)
    path = "".join(_odd_path(lots) if part == "*" else part for part in path) + _query(lots)
    lines = [f"{method} {path} HTTP/1.1".encode("latin-1"), *(_line(name, value) for name, value in head.items())]
    return Request(method, b"\r\n".join(lines) + b"\r\n\r\n" + text)


def _right_method(path: str) -> str:
    is_act = path.endswith(
        ("requests", "payment", "cancel", "restore", "buyers", "notices", "payment/", "cancel/", "delivery/")
    )
    return "POST" if is_act or path == "/language/" else "GET"


def _line(name: str, value: str) -> bytes:
    return f"{name}: {value}".encode("latin-1")


def _add_who(lots: random.Random, head: dict[str, str], words: Words, *, is_admin: bool) -> None:
    cookies = []
    if is_admin and lots.random() < 0.5:
        cookies.append(f"sessionid={words.session}")
    if lots.random() < 0.6:
        token = words.token if lots.random() < 0.8 else words.token[: lots.randrange(len(words.token))]
        if lots.random() < 0.5:
            head["Authorization"] = f"Bearer {token}"
        else:
            cookies.append(f"buyer={token}")
            head["Sec-Fetch-Site"] = "same-origin"
    cookies += [f"{lots.choice(COOKIES)}={_odd_text(lots)}" for _ in range(lots.choice((0, 0, 0, 1, 2)))]
    if lots.random() < 0.1:
        cookies.append(f"csrftoken={'a' * 32}")
    if cookies:
        head["Cookie"] = "; ".join(cookies)


def _odd_text(lots: random.Random) -> str:
    """Return text that may stand in a header: no line ends, no NUL."""
    text = lots.choice((*ODD_BYTES, lots.randbytes(lots.randrange(40)))).decode("latin-1")
    return "".join(letter for letter in text if letter == "\t" or (letter >= " " and letter != "\x7f"))


def _odd_path(lots: random.Random) -> str:
    odd = lots.choice((*ODD_BYTES, lots.randbytes(lots.randrange(1, 30))))
    return quote_from_bytes(odd, safe="%" if lots.random() < 0.5 else "/%")


def _query(lots: random.Random) -> str:
    if lots.random() < 0.6:
        return ""
    if lots.random() < 0.1:
        return "?" + "&".join(f"a{n}={n}" for n in range(lots.choice((199, 201, 700))))
    return "?" + _pairs(lots)


def _pairs(lots: random.Random) -> str:
    pairs = []
    for _ in range(lots.randrange(1, 5)):
        name = lots.choice(FORM_NAMES) if lots.random() < 0.8 else _odd_path(lots)
        value = "first-press" if name == "idempotency_key" and lots.random() < 0.5 else _odd_path(lots)
        pairs.append(f"{name}={value}")
    return lots.choice(("&", "&", ";")).join(pairs)


def _body(lots: random.Random) -> tuple[str, bytes]:
    """Return a content type and a body that may or may not fit it."""
    made = lots.randrange(5)
    if made == 0:
        kind, body = "application/json", _json(lots).encode() if lots.random() > 0.2 else b'{"quantity":1}'
    elif made == 1:
        kind, body = "application/json", _notice(lots).encode()
    elif made == 2:
        kind, body = "application/x-www-form-urlencoded", _pairs(lots).encode("latin-1")
    elif made == 3:
        kind, body = "multipart/form-data; boundary=x", _multipart(lots)
    else:
        kind, body = "application/json", lots.choice(ODD_BYTES)
    if lots.random() < 0.3:
        kind = lots.choice(CONTENT_TYPES)
    if lots.random() < 0.1 and body:
        cut = lots.randrange(len(body))
        body = body[:cut] + lots.randbytes(3) + body[cut + 1 :]
    if lots.random() < 0.02:
        body += b" " * lots.choice((4097, 17_000, 66_000))
    return kind, body


def _json(lots: random.Random) -> str:
    names = lots.choices(JSON_NAMES, k=lots.randrange(1, 4))
    return "{" + ",".join(f'"{name}":{lots.choice(ODD_JSON)}' for name in names) + "}"


def _notice(lots: random.Random) -> str:
    fields = {"id": '"e1"', "kind": '"captured"', "reference": '"r1"', "amount": '"1.00"', "currency": '"EUR"'}
    fields["kind"] = json.dumps(lots.choice(("captured", "declined", "refunded", "unknown")))
    for name in lots.sample(sorted(fields), k=lots.randrange(3)):
        fields[name] = lots.choice(ODD_JSON)
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


def _multipart(lots: random.Random) -> bytes:
    parts = b""
    for _ in range(lots.choice((1, 2, 300))):
        name = lots.choice(FORM_NAMES).encode()
        extra = lots.choice((b"", b'; filename="a"', b'; filename="\x00"', b"; filename*=utf-7''a", b'; filename=".."'))
        coding = lots.choice((b"", b"", b"Content-Transfer-Encoding: base64\r\n", b"Content-Type: x\r\n"))
        value = lots.choice(ODD_BYTES)
        parts += b'--x\r\nContent-Disposition: form-data; name="%b"%b\r\n%b\r\n%b\r\n' % (name, extra, coding, value)
    return parts + lots.choice((b"--x--\r\n", b"", b"--x"))


async def send_all(requests: Iterable[Request], *, port: int) -> Result:
    """Send every request to 127.0.0.1:`port`, over a few connections that are kept as long as the server keeps them.

    What gets 503 is sent again, alone; it counts as a server error only when it never gets another answer.
    """
    result, waiting = Result(), iter(requests)
    await asyncio.gather(*(_send_some(waiting, result, port=port) for _ in range(CONNECTIONS)))
    for _ in range(TIMES_AGAIN):
        again, result.unavailable = result.unavailable, []
        if again:
            await asyncio.sleep(1)
            await _send_some(iter(again), result, port=port)
    result.statuses[503] += len(result.unavailable)
    result.server_errors += [(request.text, b"503 each time") for request in result.unavailable]
    return result


async def _send_some(waiting: Iterable[Request], result: Result, *, port: int) -> None:
    connection = None
    for request in waiting:
        if request.closes and connection is not None:
            connection = _close(connection)
        if connection is None:
            connection = await asyncio.open_connection("127.0.0.1", port)
        stays = await asyncio.wait_for(_send(connection, request, result), ANSWER_SECONDS)
        if not stays or request.closes:
            connection = _close(connection)
    if connection is not None:
        _close(connection)


def _close(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    connection[1].close()


async def _send(
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: Request, result: Result
) -> bool:
    """Send one request, count its answer, and say whether the connection can be used again."""
    reader, writer = connection
    try:
        writer.write(request.text)
        if request.closes:
            writer.write_eof()
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
    except (ConnectionError, EOFError):
        result.statuses[0] += 1  # ended without an answer
        return False
    status = int(head.split(maxsplit=2)[1])
    if status == 503:
        result.unavailable.append(request)
    else:
        result.statuses[status] += 1
    if status >= 500 and status != 503 and len(result.server_errors) < MAX_KEPT:
        result.server_errors.append((request.text[:3000], head))
    with suppress(ConnectionError, EOFError):
        return await _read_rest(reader, head, method=request.method, status=status) and b"connection: close" not in head
    return False


async def _read_rest(reader: asyncio.StreamReader, head: bytes, *, method: str, status: int) -> bool:
    """Read the body; say False for one that has no end."""
    if b"text/event-stream" in head:
        return False
    if method == "HEAD" or status in (204, 304):
        return True
    if b"transfer-encoding: chunked" in head:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
        return True
    length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
    if not length:
        return False
    await reader.readexactly(int(length))
    return True
