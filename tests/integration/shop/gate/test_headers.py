"""Proves that every answer of the web process bears the headers that browsers are to obey, and an id of its request;
and that cookies under TLS belong to this host alone, while those of before go on working.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shop.buyers import token_signer
from shop.sales.catalogue import SaleCard
from tests.support.http_calls import JSON, Answer, Caller
from tests.support.servers.shop_processes import web_process
from tests.support.shown_sales import shown_sales
from tests.support.waiting import wait_until

SECURITY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
HSTS = {"strict-transport-security": "max-age=31536000; includeSubDomains; preload"}
FORWARDED = {"X-Forwarded-Proto": "https"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
REQUEST_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]+")
MALFORMED = {"GET / HTTP/1.1\r\n\r\n": 400, "GET / HTTP/1.1\r\nHost: a\r\nX: " + "y" * 40_000 + "\r\n\r\n": 431}


@pytest.fixture
def tls_shop(
    process_environment: dict[str, str], tmp_path: Path, new_sku: Callable[[], str]
) -> Iterator[tuple[Caller, SaleCard]]:
    """Run a web process that has TLS in front of it; give its caller, and a sale that it shows."""
    # Undated tokens count as of the day from which tokens had one.
    behind_tls = {"FAIRDROP_BEHIND_TLS": "true", "FAIRDROP_BUYER_DAYS": "3650"}
    with web_process({**process_environment, **behind_tls}, folder=tmp_path) as web:
        yield web, shown_sales(web, new_sku)(units=5)


def answers_of_every_kind(web: Caller, card: SaleCard) -> dict[str, Answer]:
    """Return an answer of each road through the web process, by what it is."""
    buyer = web.new_buyer()
    asked = web.ask(card.slug, buyer)
    request_id = asked.json()["request_id"]
    with web.follow(f"/api/v1/sales/{card.slug}/events", headers=FORWARDED) as (stream, _lines):
        pass
    found = {
        "202": asked,
        "stream": stream,
        "status": web.status(request_id, buyer),
        "new buyer": web.call("POST", "/api/v1/buyers", headers=FORWARDED),
        "404 of the API": web.get("/api/v1/sales/no-such-sale", headers=FORWARDED),
        "401": web.call("POST", f"/api/v1/sales/{card.slug}/requests", body="{}", headers={**JSON, **FORWARDED}),
        "host": web.get("/", headers={"Host": "evil.example"}),
        "audit": web.get(f"/api/v1/sales/{card.slug}/audit", headers=FORWARDED),
    }
    paths = (
        "/",
        f"/sales/{card.slug}/",
        "/healthz",
        "/metrics",
        "/readyz",
        "/api/v1/sales",
        "/admin/login/",
        "/no-such",
    )
    for path in (*paths, "/static/shop/favicon.svg", f"/api/v1/sales/{card.slug}"):
        found[path] = web.get(path, headers=FORWARDED)
        found[f"{path} once more"] = web.get(path, headers=FORWARDED)  # pages are then in memory

    def not_modified() -> Answer | None:
        etag = web.get("/", headers=FORWARDED).headers["etag"]  # until the page does not change in between
        again = web.get("/", headers={**FORWARDED, "If-None-Match": etag})
        return again if again.status == 304 else None

    found["304"] = wait_until(not_modified, what="the page rests")
    for text, status in MALFORMED.items():
        found[f"malformed {status}"] = answer = web.send_raw(text.encode())
        assert answer.status == status
    return found


def missing(answers: dict[str, Answer], wanted: dict[str, str]) -> list[tuple[str, str]]:
    """Return which answer lacks which header."""
    return [
        (what, name) for what, answer in answers.items() for name, value in wanted.items()
        if answer.headers.get(name) != value
    ]  # fmt: skip


def test_every_answer_under_tls_has_the_headers_and_an_id_of_its_own(tls_shop: tuple[Caller, SaleCard]) -> None:
    answers = answers_of_every_kind(*tls_shop)
    assert not missing(answers, {**SECURITY, **HSTS})
    names = {what: answer.headers["x-request-id"] for what, answer in answers.items()}
    assert len(set(names.values())) == len(names)
    assert names.pop("202") == answers["202"].json()["request_id"]
    assert all(REQUEST_ID.fullmatch(name) for name in names.values())


def test_without_tls_nobody_is_told_to_use_it(web: Caller, shown_sale: Callable[..., SaleCard]) -> None:
    answers = answers_of_every_kind(web, shown_sale(units=5))
    assert not missing(answers, SECURITY)
    # The control of the test above: an answer without a header is found.
    assert len(missing(answers, HSTS)) == len(answers)


def test_no_header_stands_twice(tls_shop: tuple[Caller, SaleCard]) -> None:
    web, card = tls_shop
    for path in ("/", "/", f"/sales/{card.slug}/", "/api/v1/sales", "/admin/login/", "/healthz"):
        head = raw_head(web, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-Proto: https\r\n\r\n")
        names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
        for name in (*SECURITY, *HSTS, "x-request-id", "content-length", "date"):
            assert names.count(name.encode()) == 1, (path, name)


def raw_head(web: Caller, text: str) -> bytes:
    with socket.create_connection(("127.0.0.1", web.port), timeout=60) as connection:
        connection.sendall(text.encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(4096)
    return head.partition(b"\r\n\r\n")[0]


@pytest.mark.parametrize("path", ["/api/v1/sales", "/api/v1/sales/{slug}", "/healthz", "/past/", "/", "/api/v1/x"])
def test_an_id_that_came_with_the_request_is_kept_if_it_is_well_formed(
    web: Caller, shown_sale: Callable[..., SaleCard], path: str
) -> None:
    path = path.replace("{slug}", shown_sale(units=1).slug)
    for given in ("f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "a", "A.b_c-1" * 9):
        assert web.get(path, headers={"X-Request-ID": given}).headers["x-request-id"] == given
    for given in ("", "a b", "a\tb", "x" * 65, "<script>", "\xff", "a;b"):
        made = web.get(path, headers={"X-Request-ID": given}).headers["x-request-id"]
        assert REQUEST_ID.fullmatch(made), given


def test_an_ask_that_brings_no_id_gets_that_of_its_request(web: Caller, shown_sale: Callable[..., SaleCard]) -> None:
    slug = shown_sale(units=9).slug
    path = f"/api/v1/sales/{slug}/requests"

    def ask(body: bytes | str | Iterator[bytes], **headers: str) -> Answer:
        buyer = web.new_buyer()
        return web.call("POST", path, body=body, headers={**JSON, **buyer.headers, **headers})

    hot, ordinary = ask('{"quantity":1}'), ask(iter([b'{"quantity":1}']))  # one in chunks takes the ordinary road
    for answer in (hot, ordinary):
        assert (answer.status, answer.headers["x-request-id"]) == (202, answer.json()["request_id"])
    buyer = web.new_buyer()
    answers = [web.ask(slug, buyer) for _ in range(2)]  # a press that is sent again is the same request
    assert [answer.status for answer in answers] == [202, 200]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 1
    # Controls: one that it brought is kept on both roads, and one that was refused has no request.
    for body in ('{"quantity":1}', iter([b'{"quantity":1}'])):
        assert ask(body, **{"X-Request-ID": "of-a-proxy"}).headers["x-request-id"] == "of-a-proxy"
    assert REQUEST_ID.fullmatch(ask("{}").headers["x-request-id"])


def test_a_press_on_the_page_gets_the_id_of_its_request(web: Caller, shown_sale: Callable[..., SaleCard]) -> None:
    slug, buyer = shown_sale(units=3).slug, web.new_buyer()
    for accept in ("text/html", "application/json"):  # the form's own press, and that of its script
        headers = {"Cookie": f"buyer={buyer.token}", "Sec-Fetch-Site": "same-origin", "Accept": accept}
        body = "quantity=1&idempotency_key=first-key"
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = web.call("POST", f"/sales/{slug}/", body=body, headers={**headers, **form})
        location = answer.headers.get("location") or answer.json()["location"]
        assert location == f"/requests/{answer.headers['x-request-id']}/"
        given = web.call("POST", f"/sales/{slug}/", body=body, headers={**headers, **form, "X-Request-ID": "given"})
        assert given.headers["x-request-id"] == "given"


def test_the_log_has_the_id_of_the_answer(process_environment: dict[str, str], tmp_path: Path) -> None:
    with web_process(process_environment, folder=tmp_path) as web:
        log = tmp_path / "web.log"
        refused = {"Host": "evil.example", "X-Request-ID": "given-by-a-proxy"}
        assert web.get("/api/v1/sales", headers=refused).status == 400
        made = web.get("/api/v1/about").headers["x-request-id"]
        wait_until(lambda: "given-by-a-proxy" in log.read_text(), what="the refusal is in the log")
        wait_until(lambda: f"request_id='{made}'" in log.read_text(), what="the other one is in the log")


def test_under_tls_cookies_belong_to_this_host_alone(tls_shop: tuple[Caller, SaleCard]) -> None:
    web, card = tls_shop
    for answer in (
        web.call("POST", "/api/v1/buyers"),
        web.get(f"/sales/{card.slug}/", headers=FORWARDED),
        web.get("/admin/login/", headers=FORWARDED),
        web.call("POST", "/language/", body="language=zh-hans", headers={**FORM, **FORWARDED}),
    ):
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(("__Host-buyer=", "__Host-csrftoken=", "__Host-language="))
        words = {word.strip().lower() for word in cookie.split(";")[1:]}
        assert {"secure", "httponly", "path=/"} <= words
        assert not any(word.startswith("domain") for word in words)


def test_under_tls_a_choice_of_language_is_read_under_its_new_name_alone(tls_shop: tuple[Caller, SaleCard]) -> None:
    web, card = tls_shop
    for path in ("/", f"/sales/{card.slug}/", "/past/"):
        for _ in range(2):  # rendered, and from memory
            chosen = web.get(path, headers={**FORWARDED, "Cookie": "__Host-language=zh-hans"})
            assert b'<html lang="zh-Hans"' in chosen.body
        other_host = web.get(path, headers={**FORWARDED, "Cookie": "language=zh-hans"})  # the control
        assert b'<html lang="en"' in other_host.body


def undated(token: str) -> str:
    """Return the same buyer's token as it was before tokens had a day."""
    buyer = token.partition(".")[0]
    return f"{buyer}.{token_signer().sign(buyer)}"


def test_under_tls_a_cookie_of_before_goes_on_working_and_gets_the_new_name(
    tls_shop: tuple[Caller, SaleCard],
) -> None:
    web, card = tls_shop
    buyer, stranger = web.new_buyer(), web.new_buyer()
    page, old = f"/sales/{card.slug}/", f"buyer={undated(buyer.token)}"

    def ask(cookie: str) -> Answer:
        headers = {**JSON, "Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
        return web.call("POST", f"/api/v1/sales/{card.slug}/requests", body='{"quantity":1}', headers=headers)

    asked = ask(old)
    assert asked.status == 202
    for _ in range(2):  # rendered, and from memory
        given = web.get(page, headers={**FORWARDED, "Cookie": old}).headers["set-cookie"]
        assert given.startswith(f"__Host-buyer={buyer.token.partition('.')[0]}.")
    again = ask(f"__Host-buyer={buyer.token}; buyer={undated(stranger.token)}")  # the new name counts
    assert (again.status, again.json()["request_id"]) == (200, asked.json()["request_id"])
    own = f"/requests/{asked.json()['request_id']}/"
    assert web.get(own, headers={**FORWARDED, "Cookie": old}).status == 200
    # Controls: what is under the new name is not given again; another buyer's cookie is another buyer.
    assert "set-cookie" not in web.get(page, headers={**FORWARDED, "Cookie": f"__Host-buyer={buyer.token}"}).headers
    assert web.get(own, headers={**FORWARDED, "Cookie": f"buyer={undated(stranger.token)}"}).status == 404
    assert json.loads(ask(f"{old}x").body)["code"] == "unauthenticated"


def test_under_tls_a_token_of_today_under_the_old_name_is_no_buyer(tls_shop: tuple[Caller, SaleCard]) -> None:
    """Another host of the domain has set it, with a token of its own: its reader becomes a buyer like any other.

    The control is the test above: the same cookie with a token from before there was a prefix.
    """
    web, card = tls_shop
    theirs = web.new_buyer().token
    headers = {**JSON, "Cookie": f"buyer={theirs}", "Sec-Fetch-Site": "same-origin"}
    asked = web.call("POST", f"/api/v1/sales/{card.slug}/requests", body='{"quantity":1}', headers=headers)
    assert (asked.status, asked.json()["code"]) == (401, "unauthenticated")
    for _ in range(2):  # rendered, and from memory
        given = web.get(f"/sales/{card.slug}/", headers={**FORWARDED, "Cookie": f"buyer={theirs}"})
        assert given.headers["set-cookie"].startswith("__Host-buyer=")
        assert theirs.partition(".")[0] not in given.headers["set-cookie"]
