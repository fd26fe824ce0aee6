"""What a web process says of retired sales over HTTP: everything it said before, from the database, and no new place.
Uses the real servers and a real web process.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from inventory import redis
from inventory.records import Ticket, sign_ticket
from shop.buyers import ticket_signer
from shop.models import Order
from shop.sales.catalogue import SaleCard
from shop.staff import retiring
from tests.integration.conftest import AUDIT_TOKEN
from tests.support import road
from tests.support.http_calls import JSON, Answer, Buyer, Caller
from tests.support.past_sales import let_statistics_rest
from tests.support.shopkeeping import close_sale, pay_all
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
PATIENCE_SECONDS = 120.0


@pytest.fixture
def buyer(web: Caller) -> Buyer:
    return web.new_buyer()


@pytest.fixture
def retired(web: Caller, shown_sale: MakeSale, buyer: Buyer) -> SaleCard:
    """Return a retired sale in which `buyer` has paid for one unit, as the web process knows it by now."""
    card = shown_sale(units=2)
    assert web.ask(card.slug, buyer).status == 202
    road.settle_line(card)
    pay_all(card)
    close_sale(card)
    let_statistics_rest()
    retiring.retire(card.slug, actor="olga", reason="over")
    wait_until(
        lambda: card.slug not in slugs(web, "/api/v1/sales"),
        timeout_seconds=PATIENCE_SECONDS,
        what="it leaves the list",
    )
    return card


def slugs(web: Caller, path: str) -> list[str]:
    answer = web.get(path)
    assert answer.status == 200, answer
    return [sale["slug"] for sale in answer.json()]


def keys_left(card: SaleCard) -> list[str]:
    return list(redis.connect().scan_iter(match=f"fd:{{{card.sku}}}:*", count=10_000))


def code(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json()["code"]


def test_the_same_ask_gets_200_and_a_new_one_410(web: Caller, retired: SaleCard, buyer: Buyer) -> None:
    order = Order.objects.get(sale_id=retired.sale_id)
    again = web.ask(retired.slug, buyer)
    told = again.json()
    assert (again.status, told["request_id"], told["state"]) == (200, order.request_id, "paid")
    assert (told["seq"], told["position"]) == (order.seq, None)
    assert code(web.ask(retired.slug, buyer, quantity=2)) == (422, "idempotency_mismatch")
    assert code(web.ask(retired.slug, buyer, key="another")) == (410, "sale_closed")
    assert code(web.ask(retired.slug, web.new_buyer())) == (410, "sale_closed")
    assert code(web.call("POST", f"/api/v1/sales/{retired.slug}/requests", body="{}", headers=JSON)) == (
        401,
        "unauthenticated",
    )
    assert keys_left(retired) == []


def test_its_own_addresses_answer_from_the_database(web: Caller, retired: SaleCard, buyer: Buyer) -> None:
    order = Order.objects.get(sale_id=retired.sale_id)
    sale = web.get(f"/api/v1/sales/{retired.slug}").json()
    assert (sale["state"], sale["available"], sale["sold"], sale["queued"]) == ("closed", 1, 1, 0)
    status = web.status(order.request_id, buyer)
    assert (status.status, status.json()["state"]) == (200, "paid")
    assert code(web.status(order.request_id, web.new_buyer())) == (404, "request_not_found")
    for path in (f"/sales/{retired.slug}/", "/", "/past/"):
        assert web.get(path).status == 200
    page = web.get(f"/requests/{order.request_id}/", headers={"Cookie": f"buyer={buyer.token}"})
    assert (page.status, "Paid" in page.body.decode()) == (200, True)
    audit = web.get(f"/api/v1/sales/{retired.slug}/audit", headers={"Authorization": f"Bearer {AUDIT_TOKEN}"})
    assert (audit.status, audit.json()["ok"]) == (200, True)
    assert "note" in audit.json()
    assert keys_left(retired) == []


def test_its_streams_say_how_it_ended_and_end(web: Caller, retired: SaleCard, buyer: Buyer) -> None:
    order = Order.objects.get(sale_id=retired.sale_id)
    assert last_event(web, f"/api/v1/sales/{retired.slug}/events", {})["state"] == "closed"
    assert last_event(web, f"/api/v1/requests/{order.request_id}/events", buyer.headers)["state"] == "paid"
    assert keys_left(retired) == []


def last_event(web: Caller, path: str, headers: dict[str, str]) -> dict[str, Any]:
    """Follow a stream to its end; return what it said last."""
    with web.follow(path, headers=headers) as (head, lines):
        assert head.status == 200
        said = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    last: dict[str, Any] = json.loads(said[-1])
    return last


def test_a_ticket_brings_nothing_back_into_redis(web: Caller, retired: SaleCard, buyer: Buyer) -> None:
    order = Order.objects.get(sale_id=retired.sale_id)
    known = sign_ticket(ticket_signer(), Ticket(order.request_id, buyer.name, 1, order.seq))
    lost = sign_ticket(ticket_signer(), Ticket(road.ask(retired, buyer.name, key="lost").request_id, buyer.name, 1, 7))

    def restore(ticket: str) -> Answer:
        body = json.dumps({"ticket": ticket})
        return web.call("POST", "/api/v1/tickets/restore", body=body, headers={**JSON, **buyer.headers})

    assert (restore(known).status, restore(known).json()["state"]) == (200, "paid")
    assert code(restore(lost)) == (410, "sale_closed")
    assert keys_left(retired) == []


def test_it_leaves_the_list_and_the_gauges_for_the_pages_of_past_sales(
    web: Caller, retired: SaleCard, shown_sale: MakeSale
) -> None:
    other = shown_sale(units=1)
    assert other.slug in slugs(web, "/api/v1/sales")

    def gauges() -> str:
        text = web.get("/metrics").body.decode()
        return text if other.slug in text else ""

    assert retired.slug not in wait_until(gauges, timeout_seconds=PATIENCE_SECONDS, what="the gauges have the other")
    seen: list[str] = []
    for page in range(1, 1000):
        found = slugs(web, f"/api/v1/sales?ended=1&page={page}")
        assert len(found) <= 50
        seen += found
        if not found:
            break
    assert retired.slug in seen
    assert other.slug not in seen
    assert len(seen) == len(set(seen))
    assert slugs(web, "/api/v1/sales?ended=1") == slugs(web, "/api/v1/sales?ended=1&page=1")


@pytest.mark.parametrize(
    "query",
    ["ended=1&page=0", "ended=1&page=-1", "ended=1&page=x", "ended=1&page=", "ended=1&page=1&page=2", "ended=2",
     "page=1", "ended=", "ended=1&page=99999999", "ended=1&page=%C2%B2"],
)  # fmt: skip
def test_a_page_that_is_none_is_refused(web: Caller, query: str) -> None:
    assert code(web.get(f"/api/v1/sales?{query}")) == (400, "invalid_request")


def test_an_unknown_sale_is_still_unknown(web: Caller) -> None:
    for _ in range(3):
        assert code(web.get("/api/v1/sales/there-never-was-one")) == (404, "sale_not_found")
    assert code(web.status("ffffff-" + "a" * 22, web.new_buyer())) == (404, "request_not_found")
