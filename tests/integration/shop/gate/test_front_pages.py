"""The front pages come from memory: the same for everybody who has no ticket, never older than a moment, with an ETag,
in the reader's language, and what is personal stays with Django. Uses a real web process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from http.cookies import SimpleCookie
from urllib.parse import urlencode

import pytest

from shop import buyers
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support import road
from tests.support.http_calls import Answer, Caller
from tests.support.shopkeeping import make_sale
from tests.support.shown_sales import wait_until_shown
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
KEPT = "private, no-cache"


def page(web: Caller, card: SaleCard, **headers: str) -> Answer:
    return web.get(f"/sales/{card.slug}/", headers={name.replace("_", "-"): text for name, text in headers.items()})


def cookies_of(answer: Answer) -> SimpleCookie:
    return SimpleCookie(answer.headers.get("set-cookie", ""))


def press(web: Caller, card: SaleCard, *, headers: Mapping[str, str] | None = None) -> Answer:
    """Send the form as a browser does."""
    named = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://127.0.0.1:{web.port}"}
    form = urlencode({"quantity": 1, "idempotency_key": "first-press"})
    return web.call("POST", f"/sales/{card.slug}/", body=form, headers={**named, **(headers or {})})


def test_a_page_has_an_etag_and_is_not_sent_twice(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=3)
    first = page(web, card)
    assert (first.status, first.headers["cache-control"]) == (200, KEPT)
    assert "default-src 'self'" in first.headers["content-security-policy"]
    again = page(web, card, If_None_Match=first.headers["etag"])
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert page(web, card, If_None_Match='W/"another"').status == 200


def test_what_the_page_says_follows_the_stock(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=3)
    before = page(web, card)
    assert b"3 left" in before.body
    road.queue(card, "somebody-00000000000000")
    road.settle_line(card)
    wait_until(lambda: b"2 left" in page(web, card).body, what="2 left is shown")
    assert page(web, card, If_None_Match=before.headers["etag"]).status == 200


def test_a_pause_and_its_reason_are_shown_from_memory(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=3)
    assert b"Get mine" in page(web, card).body
    sale_control.pause(card.slug, actor="anna", reason="A fault at packing.")
    wait_until(lambda: b"A fault at packing." in page(web, card).body)
    assert b"Get mine" not in page(web, card).body


def test_the_page_opens_at_its_moment_and_not_before(
    web: Caller, shop_database: None, new_sku: Callable[[], str]
) -> None:
    for seconds in (3, 30):  # the second for a machine on which the first is over when the shop shows the sale
        card = make_sale(new_sku(), units=3, opens_in_seconds=seconds)
        wait_until_shown(web, card)
        shown = states_until_open(web, card)
        if shown[0][0] == b"scheduled":
            break
    opens_ms = card.opens_at.timestamp() * 1000
    assert {state for state, at in shown if at < opens_ms - 5} == {b"scheduled"}
    assert shown[-1][1] >= opens_ms - 5


def states_until_open(web: Caller, card: SaleCard) -> list[tuple[bytes, int]]:
    """Look at a sale's page until it is open; return its state and the server's moment (ms) at each look."""
    shown: list[tuple[bytes, int]] = []

    def is_open() -> bool:
        body = page(web, card).body
        found = re.search(rb'data-state="(\w+)"', body)
        moment = re.search(rb'data-server-ms="(\d+)"', body)
        assert found
        assert moment
        shown.append((found[1], int(moment[1])))
        return found[1] == b"open"

    wait_until(is_open, what="the sale is open")
    return shown


def test_each_reader_gets_the_moment_and_a_buyer_of_their_own(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=3)
    answers = [page(web, card) for _ in range(2)]
    tokens = [cookies_of(answer)[buyers.COOKIE_NAME].value for answer in answers]
    assert buyers.verify_token(tokens[0]) != buyers.verify_token(tokens[1])
    assert "set-cookie" not in page(web, card, Cookie=f"{buyers.COOKIE_NAME}={tokens[0]}").headers
    assert "set-cookie" in page(web, card, Cookie=f"{buyers.COOKIE_NAME}={tokens[0]}x").headers
    first, second = (re.search(rb'data-server-ms="(\d+)"', answer.body) for answer in answers)
    assert first
    assert second
    assert int(second[1]) >= int(first[1])


def test_a_ticket_is_its_buyers_when_their_cookies_come_in_two_headers(web: Caller, shown_sale: MakeSale) -> None:
    buyer, card = web.new_buyer(), shown_sale(units=3)
    request_id = web.ask(card.slug, buyer).json()["request_id"]
    call = f"GET /requests/{request_id}/ HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: language=en\r\n"
    own = f"{call}Cookie: {buyers.COOKIE_NAME}={buyer.token}\r\nConnection: close\r\n\r\n"
    answer = web.send_raw(own.encode())
    assert answer.status == 200
    assert buyers.COOKIE_NAME not in cookies_of(answer)
    # The control: without the second header it is a stranger's call.
    assert web.send_raw(f"{call}Connection: close\r\n\r\n".encode()).status == 404


def test_nothing_of_one_reader_is_shown_to_another(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=3)
    token = cookies_of(page(web, card))[buyers.COOKIE_NAME].value
    pressed = press(web, card, headers={"Cookie": f"{buyers.COOKIE_NAME}={token}"})
    assert pressed.status == 303
    request_id = pressed.headers["location"].split("/")[2]
    own = page(web, card, Cookie=f"{buyers.COOKIE_NAME}={token}; ticket={request_id}")
    assert request_id.encode() in own.body
    assert "no-store" in own.headers["cache-control"]
    for _ in range(3):
        others = page(web, card)
        assert request_id.encode() not in others.body
        assert others.headers["cache-control"] == KEPT


def test_the_language_is_the_readers(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=3)
    english, chinese = page(web, card, Accept_Language="en"), page(web, card, Accept_Language="zh-CN,zh;q=0.9")
    assert b'lang="en"' in english.body
    assert b'lang="zh-Hans"' in chinese.body
    assert "剩余 3 件".encode() in chinese.body
    assert english.headers["etag"] != chinese.headers["etag"]
    assert b'lang="zh-Hans"' in page(web, card, Accept_Language="en", Cookie="language=zh-hans").body
    assert english.headers["vary"] == "Accept-Language, Cookie"


def test_the_choice_of_a_language_leads_back_and_nowhere_else(web: Caller) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for back, leads in (("/sales/x/", "/sales/x/"), ("https://elsewhere.example/", "/"), ("//elsewhere.example", "/")):
        body = urlencode({"language": "zh-hans", "next": back})
        answer = web.call("POST", "/language/", body=body, headers=form)
        assert (answer.status, answer.headers["location"]) == (303, leads)
        assert cookies_of(answer)["language"].value == "zh-hans"
    unknown = web.call("POST", "/language/", body=urlencode({"language": "xx"}), headers=form)
    assert "set-cookie" not in unknown.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Origin": "", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "", "Sec-Fetch-Site": "same-site"},
        {"Origin": ""},
    ],
    ids=["origin", "null", "cross-site", "same-site", "silent"],
)
def test_a_press_from_elsewhere_is_refused(web: Caller, shown_sale: MakeSale, headers: dict[str, str]) -> None:
    card = shown_sale(units=3)
    token = cookies_of(page(web, card))[buyers.COOKIE_NAME].value
    named = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": f"{buyers.COOKIE_NAME}={token}"}
    named |= {name: text for name, text in headers.items() if text}
    form = urlencode({"quantity": 1, "idempotency_key": "first-press"})
    answer = web.call("POST", f"/sales/{card.slug}/", body=form, headers=named)
    assert answer.status == 403
    assert b"Please try that again" in answer.body
    assert web.get(f"/api/v1/sales/{card.slug}").json()["queued"] == 0


def test_an_unknown_host_is_refused_as_ever(web: Caller, shown_sale: MakeSale) -> None:
    assert page(web, shown_sale(units=1), Host="elsewhere.example").status == 400


def test_head_and_unknown_sales(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=1)
    head = web.call("HEAD", f"/sales/{card.slug}/")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) > 1000
    assert web.get("/sales/never-heard-of-it/").status == 404


def test_a_lost_place_comes_back_without_script(web: Caller, shown_sale: MakeSale) -> None:
    """The ticket page alone: the browser sends the kept ticket by its cookie."""
    card = shown_sale(units=3)
    token = cookies_of(page(web, card))[buyers.COOKIE_NAME].value
    pressed = press(web, card, headers={"Cookie": f"{buyers.COOKIE_NAME}={token}"})
    path = pressed.headers["location"]
    name = path.split("/")[2]
    (text,) = (each.value for each in cookies_of(pressed).values())  # of many cookies the last; all have one proof
    road.forget(card)
    lost = web.get(path, headers={"Cookie": f"{buyers.COOKIE_NAME}={token}"})
    assert lost.status in (404, 503)
    kept = {"Cookie": f"{buyers.COOKIE_NAME}={token}; proof={text}"}
    wait_until(lambda: web.get(path, headers=kept).status == 200, what="it is back")
    assert name.encode() in web.get(path, headers=kept).body
    stranger = cookies_of(page(web, card))[buyers.COOKIE_NAME].value
    other = web.get(path, headers={"Cookie": f"{buyers.COOKIE_NAME}={stranger}; proof={text}"})
    assert other.status == 404
