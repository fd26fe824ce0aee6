"""Whatever is wrong with a call that pays, cancels or restores gets its own answer and changes nothing.
Over HTTP on a real web process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from shop.models import Payment
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.desk import Desk, post
from tests.support.desk import open_desk as open_a_desk
from tests.support.http_calls import Caller

pytestmark = pytest.mark.usefixtures("shop_database")
NOTICES = "/api/v1/payments/sandbox/notices"


@pytest.fixture
def open_desk(web: Caller, shown_sale: Callable[..., SaleCard]) -> Callable[..., Desk]:
    """Return a function that makes a sale with buyers who asked in it."""
    return partial(open_a_desk, web, shown_sale)


def test_a_strangers_request_is_not_found_and_not_to_be_restored(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    stranger = desk.web.new_buyer()
    for what in ("payment", "cancel"):
        answer = post(desk.web, f"/api/v1/requests/{desk.ids[0]}/{what}", stranger)
        assert (answer.status, answer.json()["code"]) == (404, "request_not_found")
    seen = desk.web.status(desk.ids[0], stranger)
    assert (seen.status, "restore" in seen.json()) == (404, False)
    # Nor when the line has forgotten it: the database knows whose it is.
    road.forget(desk.card)
    seen = desk.web.status(desk.ids[0], stranger)
    assert (seen.status, "restore" in seen.json()) == (404, False)
    assert desk.status()["state"] == "held"


WRONG: list[tuple[int, str, dict[str, Any]]] = [
    (401, "unauthenticated", {"headers": {"Authorization": "Bearer nobody"}}),
    (401, "unauthenticated", {"headers": {"Authorization": "Basic x"}}),
    (400, "invalid_request", {"body": b"{"}),
    (400, "invalid_request", {"body": b"[]"}),
    (400, "invalid_request", {"body": b'{"amount": 1}'}),
    (400, "invalid_request", {"body": b'{"page": true, "page": false}'}),
    (400, "invalid_request", {"body": b"{}", "headers": {"Content-Type": "text/plain"}}),
    (400, "invalid_request", {"body": b"{}", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}),
    (413, "too_large", {"body": b'{"x": "' + b"x" * 4096 + b'"}'}),
    (413, "too_large", {"body": b"x" * 20_000}),
    (413, "too_large", {"body": b"x" * 100_000}),
]
WRONG_WISHES = [{"provider": "nobody"}, {"provider": "n\x00"}, {"provider": 1}, {"page": "yes"}, {"page": None}]


@pytest.mark.parametrize("what", ["payment", "cancel"])
def test_a_wrong_call_changes_nothing(open_desk: Callable[..., Desk], what: str) -> None:
    desk = open_desk()
    wishes = [(400, "invalid_request", {"body": wish}) for wish in WRONG_WISHES]
    for status, code, more in [*WRONG, *wishes]:
        answer = desk.call(what, **more)
        assert (answer.status, answer.json()["code"]) == (status, code), more
        assert answer.headers["content-type"] == "application/problem+json"
        assert desk.status()["state"] == "held", more
    assert not Payment.objects.filter(order__request_id=desk.ids[0]).exists()
    # The control: the same call without a fault is done.
    assert desk.call(what, body={}).status == 200


def test_the_cookie_works_from_our_own_pages_only(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    path, cookie = f"/api/v1/requests/{desk.ids[0]}/payment", {"Cookie": f"buyer={desk.buyers[0].token}"}
    for origin in ({}, {"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = post(desk.web, path, None, headers={**cookie, **origin})
        assert (answer.status, answer.json()["code"]) == (403, "forbidden_origin")
    assert desk.status()["state"] == "held"
    own = {"Origin": f"http://127.0.0.1:{desk.web.port}"}
    assert post(desk.web, path, None, headers={**cookie, **own}).json()["state"] == "paid"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/requests/x/payment",
        "/api/v1/requests/1-%00/payment",
        "/api/v1/requests/1-%00/cancel",
        "/api/v1/requests/ffffff-aaaaaaaaaaaaaaaaaaaaaa/cancel",
        "/api/v1/requests/ffffff-aaaaaaaaaaaaaaaaaaaaaa/payment",
    ],
)
def test_an_unknown_request_is_404(web: Caller, path: str) -> None:
    answer = post(web, path, web.new_buyer())
    assert (answer.status, answer.json()["code"]) == (404, "request_not_found")


@pytest.mark.parametrize(
    "path", ["/api/v1/requests/x/payment", "/api/v1/requests/x/cancel", "/api/v1/tickets/restore", NOTICES]
)
def test_these_addresses_take_post_only(web: Caller, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = web.call(method, path)
        assert (answer.status, answer.json()["code"]) == (405, "invalid_request")


def test_a_body_of_unsaid_length_is_refused(open_desk: Callable[..., Desk]) -> None:
    """Django would read it as empty, and pay at once where a page was asked for."""
    desk = open_desk()
    head = (
        f"POST /api/v1/requests/{desk.ids[0]}/payment HTTP/1.1\r\nHost: 127.0.0.1:{desk.web.port}\r\n"
        f"Authorization: Bearer {desk.buyers[0].token}\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    answer = desk.web.send_raw(head.encode() + b'e\r\n{"page": true}\r\n0\r\n\r\n')
    assert (answer.status, answer.json()["code"]) == (400, "invalid_request")
    assert desk.status()["state"] == "held"
