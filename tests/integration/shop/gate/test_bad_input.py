"""Proves that whatever is wrong with a call gets its listed code as a whole problem object, and leaves no trace.
Never takes a refusal for granted: the same calls without the fault are admitted. Needs the real servers, no settler.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.plugin import DjangoDbBlocker

from inventory import redis
from inventory.models import Stock, StockMovement
from inventory.signing import Signer
from shop.models import Order, Sale
from shop.sales.catalogue import SaleCard
from tests.integration.conftest import AUDIT_TOKEN
from tests.support.http_calls import TIMEOUT_SECONDS, Answer, Buyer, Caller
from tests.support.shopkeeping import make_sale, put_away
from tests.support.shown_sales import wait_until_shown
from tests.support.waiting import wait_until

MEMBERS = {"type", "title", "status", "code", "detail"}
ASK = "/api/v1/sales/{slug}/requests"
ORDINARY_BODY = b'{"quantity":1}'
FULL_TAIL = "a" * 22  # as long as the end of a real request id


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """One call with something wrong in it. A header of None is left out; {slug}, {sale}, {token}… are filled in."""

    what: str
    status: int = 400
    code: str = "invalid_request"
    sale: str = "open"
    method: str = "POST"
    path: str = ASK
    body: bytes = ORDINARY_BODY
    headers: Mapping[str, str | bytes | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Scene:
    """What every call of this file is about: sales in every state, a buyer, and another shop's signature."""

    web: Caller
    sales: dict[str, SaleCard]
    buyer: Buyer
    stranger: Buyer

    def words(self, wrong: Wrong) -> dict[str, str]:
        """Return what stands for the names in braces."""
        card, name, token = self.sales[wrong.sale], self.buyer.name, self.buyer.token
        signature = token.partition(".")[2]
        return {
            "slug": card.slug,
            "sale": f"{card.sale_id:x}",
            "name": name,
            "token": token,
            "signature": signature,
            "stranger_signature": self.stranger.token.partition(".")[2],
            "foreign_signature": Signer(["another shop's key"], purpose="buyer").sign(name),
            "port": str(self.web.port),
        }


SALES: dict[str, dict[str, Any]] = {
    "open": {},
    "scheduled": {"opens_in_seconds": 3000},
    "paused": {"operator_state": "paused"},
    "closed": {"operator_state": "closed"},
    "over": {"opens_in_seconds": -60, "closes_in_seconds": -1},
    "called off": {"operator_state": "closed", "opens_in_seconds": 3600, "closes_in_seconds": 7200},
    "retired": {"operator_state": "closed", "opens_in_seconds": 3600, "closes_in_seconds": 7200},
}


@pytest.fixture(scope="module")
def scene(web: Caller, django_db_blocker: DjangoDbBlocker) -> Iterator[Scene]:
    """Make the sales once: nothing in this file changes them, and every test proves it."""
    with django_db_blocker.unblock():
        sales = {
            state: make_sale(f"bad-{state.replace(' ', '-')}-{token_hex(4)}", units=5, limit=1000, **terms)
            for state, terms in SALES.items()
        }
        Sale.objects.filter(pk=sales["retired"].sale_id).update(retired_at=timezone.now())
        for card in sales.values():
            wait_until_shown(web, card)
    yield Scene(web, sales, web.new_buyer(), web.new_buyer())
    with django_db_blocker.unblock():
        put_away([card.sku for card in sales.values()])


@pytest.fixture
def nothing_is_written(scene: Scene, shop_database: None) -> Iterator[None]:
    """Fail when the test left a trace in Redis or in the database."""
    before = everything_written(scene)
    yield
    assert everything_written(scene) == before


def everything_written(scene: Scene) -> dict[str, Any]:
    """Return every key of the scene's SKUs, every order and movement there is, and the scene's stock."""
    skus = [card.sku for card in scene.sales.values()]
    return {
        "redis": {sku: keys_of(sku) for sku in skus},
        "orders": Order.objects.count(),
        "movements": StockMovement.objects.count(),
        "stock": list(Stock.objects.filter(sku__in=skus).order_by("sku").values_list()),
    }


def keys_of(sku: str) -> dict[str, Any]:
    """Return every key of `sku` with all it holds."""
    client = redis.connect()
    read = {"hash": client.hgetall, "string": client.get, "set": client.smembers}
    read["zset"] = lambda key: client.zrange(key, 0, -1, withscores=True)
    return {key: read[client.type(key)](key) for key in sorted(client.scan_iter(f"fd:{{{sku}}}:*", count=1000))}


def send(scene: Scene, wrong: Wrong, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Answer:
    """Send the call, byte for byte."""
    words = scene.words(wrong)
    headers: dict[str, str | bytes | None] = {
        "Host": "127.0.0.1:{port}",
        "Authorization": "Bearer {token}",
        "Content-Type": "application/json",
        "Content-Length": str(len(wrong.body)),
        "Connection": "close",
        **wrong.headers,
    }
    head = f"{wrong.method} {fill(wrong.path, words)} HTTP/1.1\r\n".encode()
    for name, value in headers.items():
        if value is not None:
            head += name.encode() + b": " + (value if isinstance(value, bytes) else fill(value, words).encode())
            head += b"\r\n"
    return scene.web.send_raw(head + b"\r\n" + wrong.body, timeout_seconds=timeout_seconds)


def fill(text: str, words: Mapping[str, str]) -> str:
    """Put the scene's words into `text`."""
    for name, word in words.items():
        text = text.replace(f"{{{name}}}", word)
    return text


def check_problem(answer: Answer, *, status: int, code: str) -> dict[str, Any]:
    """Fail unless `answer` is the problem `code` with all five members."""
    assert (answer.status, answer.headers.get("content-type")) == (status, "application/problem+json"), answer
    problem: dict[str, Any] = answer.json()
    assert problem.keys() >= MEMBERS
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"/problems/{code}"
    assert all(isinstance(problem[name], str) and problem[name] for name in MEMBERS - {"status"})
    return problem


def chunked(body: bytes) -> bytes:
    """Return `body` as one chunk."""
    return f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"


def quantity(text: str, *, what: str = "") -> Wrong:
    return Wrong(what=what or f"quantity {text}", body=f'{{"quantity":{text}}}'.encode())


def body(what: str, text: bytes, *, status: int = 400, code: str = "invalid_request") -> Wrong:
    return Wrong(what=what, body=text, status=status, code=code)


QUANTITIES = [
    quantity("0"),
    quantity("-1"),
    quantity("-0"),
    quantity("1.5"),
    quantity("1.0"),
    quantity("1e0"),
    quantity("1e400"),
    quantity('"1"', what="quantity as text"),
    quantity("true"),
    quantity("false"),
    quantity("null"),
    quantity("[]"),
    quantity("[1]"),
    quantity("{}"),
    quantity("1001"),
    quantity("1" + "0" * 30, what="quantity 10^30"),
    quantity("9" * 4000, what="quantity of 4000 digits"),
    quantity("-9223372036854775809", what="quantity below 64 bits"),
    quantity("01", what="quantity with a leading zero"),
    quantity("+1", what="quantity with a plus"),
    quantity("0x1", what="quantity in hexadecimal"),
    quantity("NaN"),
    quantity("Infinity"),
    quantity("-Infinity"),
]

BODIES = [
    body("no body", b""),
    body("only blanks", b"   \n"),
    body("no quantity", b"{}"),
    body("quantity under another name", b'{"Quantity":1}'),
    body("unknown field", b'{"quantity":1,"price":0}'),
    body("unknown field only", b'{"units":1}'),
    body("field named __proto__", b'{"quantity":1,"__proto__":{}}'),
    body("name twice", b'{"quantity":1,"quantity":2}'),
    body("name twice, escaped", b'{"quantity":1,"\\u0071uantity":2}'),
    body("broken JSON", b'{"quantity":1'),
    body("trailing comma", b'{"quantity":1,}'),
    body("two objects", b'{"quantity":1}{"quantity":1}'),
    body("single quotes", b"{'quantity':1}"),
    body("comment", b'{"quantity":1} // one'),
    body("list", b"[1]"),
    body("number", b"1"),
    body("text", b'"quantity"'),
    body("null", b"null"),
    body("NaN alone", b"NaN"),
    body("a form", b"quantity=1"),
    body("XML", b"<quantity>1</quantity>"),
    body("1,500 brackets", b"[" * 1500),
    body("1,500 nested lists", b"[" * 1500 + b"]" * 1500),
    body("600 nested objects", b'{"a":' * 600 + b"1" + b"}" * 600),
    body("nested quantity", b'{"quantity":' + b"[" * 1500 + b"1" + b"]" * 1500 + b"}"),
    body("byte order mark", b'\xef\xbb\xbf{"quantity":1}'),
    body("UTF-16", '{"quantity":1}'.encode("utf-16")),
    body("NUL in a name", b'{"quantity":1,"a\\u0000b":1}'),
    body("raw NUL in a name", b'{"quantity":1,"a\x00b":1}'),
    body("NUL after the object", b'{"quantity":1}\x00'),
    body("lone surrogate in a name", b'{"quantity":1,"\\ud800":1}'),
    body("lone surrogate as quantity", b'{"quantity":"\\udfff"}'),
    body("raw surrogate bytes", b'{"quantity":1,"\xed\xa0\x80":1}'),
    body("invalid UTF-8", b'{"quantity":1,"\xff\xfe":1}'),
    body("overlong UTF-8", b'{"quantity":1,"\xc0\xaf":1}'),
    body("4 KiB + 1", b'{"quantity":1}'.ljust(4097), status=413, code="too_large"),
    body("100,000 brackets", b"[" * 100_000, status=413, code="too_large"),
    body("1 MB", b'{"quantity":1,"a":"' + b"a" * 1_000_000 + b'"}', status=413, code="too_large"),
    Wrong(
        what="chunks beyond the limit",
        body=chunked(b"x" * 5000),
        headers={"Transfer-Encoding": "chunked", "Content-Length": None},
        status=413,
        code="too_large",
    ),
    Wrong(
        what="many small chunks beyond the limit",
        body=b"1\r\n \r\n" * 5000 + b"0\r\n\r\n",
        headers={"Transfer-Encoding": "chunked", "Content-Length": None},
        status=413,
        code="too_large",
    ),
    Wrong(
        what="chunks of broken JSON",
        body=chunked(b'{"quantity":'),
        headers={"Transfer-Encoding": "chunked", "Content-Length": None},
    ),
]

CONTENT_TYPES = [
    Wrong(what=f"content type {name}", headers={"Content-Type": text})
    for name, text in {
        "missing": None,
        "empty": "",
        "of a form": "application/x-www-form-urlencoded",
        "of a multipart form": "multipart/form-data; boundary=x",
        "plain text": "text/plain",
        "plain text that mentions JSON": "text/plain; application/json",
        "a longer name": "application/jsonx",
        "beyond ASCII": b"application/json\xff",
    }.items()
]

KEYS = [
    Wrong(what=f"idempotency key {name}", headers={"Idempotency-Key": text})
    for name, text in {
        "empty": "",
        "of 101 characters": "k" * 101,
        "of 4,000 characters": "k" * 4000,
        "with a tab": b"a\tb",
        "with latin letters beyond ASCII": "schl\u00fcssel".encode("latin-1"),
        "in UTF-8": "\u9375",
        "of invalid UTF-8": b"\xff\xfe",
    }.items()
]

TOKENS = [
    Wrong(what=f"token {name}", headers={"Authorization": text}, status=401, code="unauthenticated")
    for name, text in {
        "missing": None,
        "empty": "",
        "without text": "Bearer ",
        "of another scheme": "Basic {token}",
        "without a scheme": "{token}",
        "cut by a character": "Bearer {name}.short",
        "without a signature": "Bearer {name}",
        "with an empty signature": "Bearer {name}.",
        "with another buyer's signature": "Bearer {name}.{stranger_signature}",
        "with another shop's signature": "Bearer {name}.{foreign_signature}",
        "with a longer signature": "Bearer {token}A",
        "with a second signature": "Bearer {token}.{signature}",
        "with a blank behind it": "Bearer {token} x",
        "of no buyer": "Bearer .{signature}",
        "of a path as buyer": "Bearer ../../../../../../etc.{signature}",
        "beyond ASCII": "Bearer \u00fc{token}",
        "of raw bytes": b"Bearer \xff\xfe\xfd",
        "of 4,000 characters": "Bearer " + "A" * 4000,
        "of the audit": f"Bearer {AUDIT_TOKEN}",
    }.items()
]

FOREIGN = {"status": 403, "code": "forbidden_origin"}
COOKIE: dict[str, str | bytes | None] = {"Authorization": None, "Cookie": "buyer={token}"}
ORIGINS: list[Wrong] = [
    Wrong(what=f"cookie {name}", headers={**COOKIE, **headers}, **FOREIGN)
    for name, headers in {
        "without a word about where from": {},
        "from another site": {"Origin": "https://evil.example"},
        "from another port": {"Origin": "http://127.0.0.1:1"},
        "from a name that ends like ours": {"Origin": "http://evil-127.0.0.1:{port}"},
        "from a name that begins like ours": {"Origin": "http://127.0.0.1:{port}.evil.example"},
        "from nowhere": {"Origin": "null"},
        "from an empty origin": {"Origin": ""},
        "cross-site": {"Sec-Fetch-Site": "cross-site"},
        "same-site but not our own": {"Sec-Fetch-Site": "same-site"},
        "with an empty Sec-Fetch-Site": {"Sec-Fetch-Site": ""},
        "from another site that says same-origin": {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
    }.items()
] + [
    Wrong(
        what="cookie forged, on our own page",
        headers={"Authorization": None, "Cookie": "buyer={name}.x", "Origin": "http://127.0.0.1:{port}"},
        status=401,
        code="unauthenticated",
    ),
    Wrong(
        what="cookie to a host that is not ours",
        headers={**COOKIE, "Host": "evil.example", "Origin": "http://evil.example"},
    ),
    Wrong(
        what="new buyer for another site",
        path="/api/v1/buyers",
        headers={"Origin": "https://evil.example"},
        **FOREIGN,
    ),
    Wrong(what="new buyer cross-site", path="/api/v1/buyers", headers={"Sec-Fetch-Site": "cross-site"}, **FOREIGN),
]

SHUT = [
    Wrong(what="sale not open yet", sale="scheduled", status=425, code="sale_not_open"),
    Wrong(what="sale paused", sale="paused", status=425, code="sale_not_open"),
    Wrong(what="sale closed by staff", sale="closed", status=410, code="sale_closed"),
    Wrong(what="sale over", sale="over", status=410, code="sale_closed"),
    Wrong(what="sale called off before it opened", sale="called off", status=410, code="sale_closed"),
    Wrong(what="sale called off and retired", sale="retired", status=410, code="sale_closed"),
]

ODD_NAMES = {
    "unknown": "never-heard-of-it",
    "empty": "",
    "of 5,000 characters": "s" * 5000,
    "with a snowman": "%E2%98%83",
    "with NUL": "a%00b",
    "with a newline": "a%0d%0aSet-Cookie:%20x=1",
    "with invalid UTF-8": "%ff%fe",
    "with half an escape": "%",
    "with a lone surrogate": "%ed%a0%80",
    "with a brace": "{x}",
    "of dots": "..",
    "with SQL": "'%20OR%201=1--",
    "with a wildcard": "*",
    "with a backslash": "..%5c..%5cetc",
}
SLUGS = [
    Wrong(what=f"{call} slug {name}", method=method, path=path.replace("SLUG", slug), status=404, code="sale_not_found")
    for call, method, path in (
        ("ask:", "POST", "/api/v1/sales/SLUG/requests"),
        ("look:", "GET", "/api/v1/sales/SLUG"),
        ("follow:", "GET", "/api/v1/sales/SLUG/events"),
    )
    for name, slug in ODD_NAMES.items()
]
ODD_REQUEST_IDS = {
    **ODD_NAMES,
    "of an unknown sale": f"ffffff-{FULL_TAIL}",
    "of the largest sale": f"ffffffffffff-{FULL_TAIL}",
    "of nobody": f"{{sale}}-{FULL_TAIL}",
    "too short": "{sale}-aaaa",
    "too long": f"{{sale}}-{FULL_TAIL}a",
    "with NUL in a real sale's": "{sale}-aaaaaaaaaa%00aaaaaaaaaaa",
    "with a snowman in a real sale's": "{sale}-aaaaaaaaaaa%E2%98%83aaaaaaaaaa",
    "with invalid UTF-8 in a real sale's": "{sale}-aaaaaaaaaaa%ffaaaaaaaaaa",
    "with a 0x before a real sale's": f"0x{{sale}}-{FULL_TAIL}",
    "with a plus before a real sale's": f"%2b{{sale}}-{FULL_TAIL}",
    "with a blank before a real sale's": f"%20{{sale}}-{FULL_TAIL}",
    "with a minus before a real sale's": f"-{{sale}}-{FULL_TAIL}",
    "of sale zero": f"0-{FULL_TAIL}",
}
REQUEST_IDS = [
    Wrong(
        what=f"{call} request id {name}",
        method="GET",
        path=path.replace("ID", request_id),
        status=404,
        code="request_not_found",
    )
    for call, path in (("look:", "/api/v1/requests/ID"), ("follow:", "/api/v1/requests/ID/events"))
    for name, request_id in ODD_REQUEST_IDS.items()
]

NOWHERE = [
    Wrong(what=f"{method} {path}", method=method, path=path, status=404, code="not_found")
    for method in ("GET", "POST")
    for path in (
        "/api/v1/nothing",
        "/api/v2/sales",
        "/api/v1/sales/{slug}/requests/",
        "/api/v1/sales/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/api/v1/sales/..%2f..%2fetc%2fpasswd/requests",
        "/api/v1/requests/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/api/v1/requests/{sale}-%2faaaaaaaaaaaaaaaaaaaaa/events",
        "/api/v1//sales",
        "/api/%00",
    )
]

METHODS = [
    Wrong(what=f"{method} {path}", method=method, path=path, status=405)
    for method, path in (
        ("GET", ASK),
        ("PUT", ASK),
        ("PATCH", ASK),
        ("DELETE", ASK),
        ("OPTIONS", ASK),
        ("POST", "/api/v1/sales"),
        ("DELETE", "/api/v1/sales/{slug}"),
        ("POST", "/api/v1/sales/{slug}/events"),
        ("POST", "/api/v1/sales/{slug}/audit"),
        ("DELETE", "/api/v1/sales/{slug}/audit"),
        ("GET", "/api/v1/buyers"),
        ("POST", f"/api/v1/requests/{{sale}}-{FULL_TAIL}"),
        ("DELETE", f"/api/v1/requests/{{sale}}-{FULL_TAIL}"),
        ("POST", f"/api/v1/requests/{{sale}}-{FULL_TAIL}/events"),
    )
]

TABLE = [
    *QUANTITIES, *BODIES, *CONTENT_TYPES, *KEYS, *TOKENS, *ORIGINS, *SHUT, *SLUGS, *REQUEST_IDS, *NOWHERE, *METHODS,
]  # fmt: skip


@pytest.mark.usefixtures("nothing_is_written")
@pytest.mark.parametrize("wrong", [pytest.param(wrong, id=wrong.what) for wrong in TABLE])
def test_a_wrong_call_is_told_so_and_leaves_no_trace(scene: Scene, wrong: Wrong) -> None:
    check_problem(send(scene, wrong), status=wrong.status, code=wrong.code)


# What the HTTP server itself refuses before the shop sees it: no problem object, but no 500 and no trace either.
UNREADABLE = {
    "a control character in a header": {"Idempotency-Key": b"a\x01b"},
    "NUL in a header": {"Idempotency-Key": b"a\x00b"},
    "a length that is no number": {"Content-Length": "ten"},
    "a negative length": {"Content-Length": "-1"},
    "a header name with a blank": {"Odd Name": "x"},
}


@pytest.mark.usefixtures("nothing_is_written")
@pytest.mark.parametrize("headers", [pytest.param(headers, id=what) for what, headers in UNREADABLE.items()])
def test_what_is_not_http_is_refused_and_leaves_no_trace(scene: Scene, headers: dict[str, Any]) -> None:
    assert send(scene, Wrong(what="unreadable", headers=headers)).status == 400


@pytest.mark.usefixtures("nothing_is_written")
def test_a_body_that_breaks_off_leaves_no_trace_and_harms_nobody(scene: Scene) -> None:
    half = Wrong(what="half a body", body=b'{"quant', headers={"Content-Length": "14"})
    with pytest.raises(TimeoutError):
        send(scene, half, timeout_seconds=0.3)
    assert scene.web.get("/healthz").status == 200


# Controls: without the wrong part the same calls go through, so the refusals above are about that part.

RIGHT = [
    Wrong(what="the ordinary call"),
    Wrong(what="spaces and line ends", body=b' {\n "quantity" : 1 \n} '),
    Wrong(what="a body of exactly 4 KiB", body=ORDINARY_BODY.ljust(4096)),
    Wrong(
        what="chunks",
        body=chunked(ORDINARY_BODY),
        headers={"Transfer-Encoding": "chunked", "Content-Length": None},
    ),
    Wrong(what="a content type with a charset", headers={"Content-Type": "Application/JSON; charset=utf-8"}),
    Wrong(what="a key of 100 characters", headers={"Idempotency-Key": "k" * 100}),
    Wrong(what="the cookie from our own page", headers={**COOKIE, "Origin": "http://127.0.0.1:{port}"}),
    Wrong(what="the cookie, same-origin", headers={**COOKIE, "Sec-Fetch-Site": "same-origin"}),
    Wrong(what="a bearer token from any site", headers={"Origin": "https://partner.example"}),
]


@pytest.mark.parametrize("right", [pytest.param(right, id=right.what) for right in RIGHT])
def test_the_same_call_without_the_fault_is_admitted(
    scene: Scene, shown_sale: Callable[..., SaleCard], right: Wrong
) -> None:
    fresh = Scene(scene.web, {"open": shown_sale(units=5)}, scene.web.new_buyer(), scene.stranger)
    assert send(fresh, right).status == 202


def test_the_trace_of_an_admitted_call_would_be_seen(shown_sale: Callable[..., SaleCard], scene: Scene) -> None:
    card = shown_sale(units=5)
    fresh = Scene(scene.web, {"open": card}, scene.web.new_buyer(), scene.stranger)
    before = everything_written(fresh)
    assert send(fresh, Wrong(what="the ordinary call")).status == 202
    assert everything_written(fresh) != before


# Refusals that say when to come back.


@pytest.mark.usefixtures("nothing_is_written")
def test_who_comes_too_early_is_told_when_it_opens(scene: Scene) -> None:
    early = Wrong(what="early", sale="scheduled")
    answer = send(scene, early)
    problem = check_problem(answer, status=425, code="sale_not_open")
    assert problem["opens_at"] == scene.sales["scheduled"].opens_at.isoformat()
    assert 0 < int(answer.headers["retry-after"]) <= 3000


@pytest.mark.usefixtures("nothing_is_written")
def test_who_comes_during_a_pause_is_told_to_come_back_soon(scene: Scene) -> None:
    answer = send(scene, Wrong(what="paused", sale="paused"))
    problem = check_problem(answer, status=425, code="sale_not_open")
    assert problem["opens_at"] == scene.sales["paused"].opens_at.isoformat()
    assert int(answer.headers["retry-after"]) > 0


def test_a_sale_opens_by_itself_at_its_moment(web: Caller, shop_database: None, new_sku: Callable[[], str]) -> None:
    buyer = web.new_buyer()
    for seconds in (3, 30):  # the second for a machine on which the first is over when the shop shows the sale
        card = make_sale(new_sku(), units=1, opens_in_seconds=seconds)
        wait_until_shown(web, card)
        first = web.ask(card.slug, buyer)
        if first.status == 425:
            break
    assert first.status == 425
    # 200: the answer of the ask that was let in had been lost.
    wait_until(lambda: web.ask(card.slug, buyer).status in (200, 202), what="the sale opens")


def test_a_refusal_is_plain_ascii_json(scene: Scene) -> None:
    answer = send(scene, body("lone surrogate in a name", b'{"quantity":1,"\\ud800":1}'))
    assert answer.body.isascii()
    assert json.loads(answer.body)["code"] == "invalid_request"
