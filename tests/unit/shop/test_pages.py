"""What Django is told of a call: its headers as the gate itself reads them. The control hands them on as they came."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIRequest
from django.test.utils import override_settings

from shop.client_address import client_address
from shop.gate import pages
from shop.gate.pages import Pages
from shop.http import cookie, headers_of, shows_pages
from shop.replies import Header

TWO_COOKIES = [(b"cookie", b"language=en"), (b"accept", b"*/*"), (b"cookie", b"buyer=ann.t0ken; other=1")]


def request_of(headers: list[Header]) -> WSGIRequest:
    """Return the request that a view gets of a call with these headers."""
    seen: list[WSGIRequest] = []

    def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        seen.append(WSGIRequest(environ))
        start_response("200 OK", [])
        return [b""]

    scope = {
        "type": "http", "method": "GET", "path": "/tickets/", "query_string": b"", "http_version": "1.1",
        "client": ("192.0.2.7", 4), "headers": headers,
    }  # fmt: skip

    async def call() -> None:
        served, began = Pages(wsgi), asyncio.Event()

        async def receive() -> dict[str, Any]:
            if began.is_set():
                await asyncio.Event().wait()
            began.set()
            return {"type": "http.request", "body": b""}

        async def send(_message: Any) -> None:
            pass

        await served(scope, receive, send)

    asyncio.run(call())
    return seen[0]


def test_two_headers_of_cookies_are_one_to_django_as_they_are_to_the_gate() -> None:
    cookies = request_of(TWO_COOKIES).COOKIES
    assert cookies == {"language": "en", "buyer": "ann.t0ken", "other": "1"}
    gate = headers_of({"headers": TWO_COOKIES})
    assert {name: cookie(gate, name) for name in cookies} == cookies


def test_control_handed_on_as_they_came_a_cookie_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "for_django", list)
    assert request_of(TWO_COOKIES).COOKIES == {"language": "en,buyer=ann.t0ken", "other": "1"}


def test_one_header_of_cookies_stays_as_it_is() -> None:
    assert request_of([(b"cookie", b"a=1,2; b=3")]).META["HTTP_COOKIE"] == "a=1,2; b=3"


@override_settings(TRUSTED_PROXIES=1)
def test_a_name_with_an_underscore_forges_no_address() -> None:
    forged = (b"x_forwarded_for", b"203.0.113.5")
    assert client_address(request_of([forged])) == "192.0.2.7"
    assert client_address(request_of([(b"x-forwarded-for", b"198.51.100.9"), forged])) == "198.51.100.9"


@override_settings(TRUSTED_PROXIES=1)
def test_control_handed_on_as_it_came_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "for_django", list)
    assert client_address(request_of([(b"x_forwarded_for", b"203.0.113.5")])) == "203.0.113.5"


@pytest.mark.parametrize(
    ("path", "accept", "shown"),
    [
        ("/tickets/", b"text/html,*/*;q=0.8", True),
        ("/tickets/", b"*/*", False),
        ("/api/v1/sales", b"text/html,*/*;q=0.8", False),
        ("/.well-known/fairdrop-keys", b"text/html,*/*;q=0.8", False),
    ],
)
def test_a_refusal_is_a_page_where_a_browser_shows_one(path: str, accept: bytes, shown: bool) -> None:
    assert shows_pages({"path": path, "headers": [(b"accept", accept)]}) is shown
