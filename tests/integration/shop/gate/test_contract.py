"""Proves the HTTP contract call by call against a real web process: fields, status codes, idempotency, ownership.
Needs the real servers; a settler runs only where a decision is wanted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from shop.models import Sale
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.integration.conftest import AUDIT_TOKEN
from tests.support import road
from tests.support.http_calls import JSON, Answer, Caller
from tests.support.shopkeeping import close_sale, pay
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess

MakeSale = Callable[..., SaleCard]

SALE_FIELDS = {
    "slug", "sku", "title", "price", "currency", "state", "quantity", "available", "held", "sold", "queued",
    "per_buyer_limit", "per_network_limit", "hold_seconds", "terms_version", "requires", "opens_at", "public_at",
    "closes_at", "server_time",
}  # fmt: skip
ADMITTED_FIELDS = {
    "request_id", "state", "position", "seq", "ticket", "status_url", "events_url", "poll_after_ms",
}  # fmt: skip
STATUS_FIELDS = {
    "request_id", "sale", "quantity", "state", "position", "ahead", "eta_seconds", "hold_expires_at", "order_url",
    "poll_after_ms", "server_time", "holds_ahead", "next_lapse_at", "pause_reason", "eta_range_seconds", "out_of_reach",
}  # fmt: skip


def refused(answer: Answer, *, status: int, code: str) -> dict[str, Any]:
    """Fail unless `answer` is the problem that the contract lists; return it."""
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), answer
    problem: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "code", "detail"} <= problem.keys()
    assert (problem["status"], problem["code"]) == (status, code)
    return problem


def wait_for_decision(web: Caller, request_id: str, buyer: Any) -> dict[str, Any]:
    def decided() -> dict[str, Any] | None:
        status = web.status(request_id, buyer).json()
        return None if status["state"] == "queued" else status

    return wait_until(decided, what="the request is decided")


def is_moment(text: str) -> bool:
    """Say whether `text` is ISO 8601 with an offset."""
    return datetime.fromisoformat(text).tzinfo is not None


# buyers


def test_a_new_buyer_gets_a_token_in_the_body_and_the_same_as_cookie(web: Caller) -> None:
    answer = web.call("POST", "/api/v1/buyers")
    made = answer.json()
    assert (answer.status, made.keys()) == (201, {"buyer", "token"})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"buyer={made['token']};")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))


def test_every_new_buyer_is_somebody_else(web: Caller) -> None:
    assert len({web.new_buyer().name for _ in range(5)}) == 5


# sales


def test_a_sale_is_shown_with_exactly_the_fields_of_the_contract(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=7, limit=2, hold_seconds=120)
    answer = web.get(f"/api/v1/sales/{card.slug}")
    shown = answer.json()
    assert (answer.status, shown.keys()) == (200, SALE_FIELDS)
    assert (shown["slug"], shown["sku"], shown["title"]) == (card.slug, card.sku, "Paper kite")
    assert (shown["price"], shown["currency"], shown["state"]) == ("15.00", "EUR", "open")
    assert (shown["quantity"], shown["available"], shown["held"], shown["sold"], shown["queued"]) == (7, 7, 0, 0, 0)
    assert (shown["per_buyer_limit"], shown["hold_seconds"]) == (2, 120)
    assert all(is_moment(shown[name]) for name in ("opens_at", "closes_at", "server_time"))


def test_the_list_shows_every_sale_as_its_own_page_does(web: Caller, shown_sale: MakeSale) -> None:
    cards = [shown_sale(units=1), shown_sale(units=2)]
    answer = web.get("/api/v1/sales")
    by_slug = {sale["slug"]: sale for sale in answer.json()}
    assert answer.status == 200
    assert all(by_slug[card.slug].keys() == SALE_FIELDS for card in cards)


@pytest.mark.parametrize(
    ("terms", "state"),
    [
        ({"opens_in_seconds": 600}, "scheduled"),
        ({}, "open"),
        ({"operator_state": "paused"}, "paused"),
        ({"operator_state": "closed"}, "closed"),
        ({"opens_in_seconds": -60, "closes_in_seconds": -1}, "closed"),
    ],
    ids=["before it opens", "open", "paused", "closed by staff", "over"],
)
def test_a_sale_says_its_state(web: Caller, shown_sale: MakeSale, terms: dict[str, Any], state: str) -> None:
    card = shown_sale(units=1, **terms)
    assert web.get(f"/api/v1/sales/{card.slug}").json()["state"] == state


def test_an_unknown_sale_is_not_found(web: Caller) -> None:
    refused(web.get("/api/v1/sales/never-heard-of-it"), status=404, code="sale_not_found")


# requests


def test_who_was_shown_better_terms_is_told_the_new_ones_and_nothing_is_admitted(
    web: Caller, shown_sale: MakeSale
) -> None:
    card = shown_sale(units=3, limit=2)
    assert web.get(f"/api/v1/sales/{card.slug}").json()["terms_version"] == card.terms_version == 1
    buyer = web.new_buyer()
    sale_control.change_terms(card.slug, actor="test", price=Decimal("16.00"))
    answer = refused(web.ask(card.slug, buyer, wish={"terms_version": 1}), status=409, code="terms_changed")
    assert (answer["terms_version"], answer["price"], answer["per_buyer_limit"]) == (2, "16.00", 2)
    assert web.ask(card.slug, buyer, wish={"terms_version": 2}).status == 202
    assert web.ask(card.slug, buyer, wish={"terms_version": 1}).status == 200  # known already


def test_a_version_that_another_process_has_shown_is_looked_up(web: Caller, shown_sale: MakeSale) -> None:
    """The database has it, and neither the line nor this process have heard of it."""
    card = shown_sale(units=3)
    Sale.objects.filter(pk=card.sale_id).update(price=Decimal("5.00"))
    assert web.ask(card.slug, web.new_buyer(), wish={"terms_version": 2}).status == 202


@pytest.mark.parametrize("version", [0, -1, 1.5, "1", None, True, 999, 2**53])
def test_a_version_that_never_was_is_400(web: Caller, shown_sale: MakeSale, version: object) -> None:
    card = shown_sale(units=3)
    before = road.snapshot(card)
    refused(web.ask(card.slug, web.new_buyer(), wish={"terms_version": version}), status=400, code="invalid_request")
    assert road.snapshot(card) == before


def test_an_admitted_request_gets_exactly_the_fields_of_the_contract(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=3)
    answer = web.ask(card.slug, web.new_buyer())
    admitted = answer.json()
    assert (answer.status, admitted.keys()) == (202, ADMITTED_FIELDS)
    assert (admitted["state"], admitted["position"]) == ("queued", 1)
    assert admitted["status_url"] == f"/api/v1/requests/{admitted['request_id']}"
    assert admitted["events_url"] == f"/api/v1/requests/{admitted['request_id']}/events"
    assert isinstance(admitted["seq"], int)
    assert isinstance(admitted["poll_after_ms"], int)
    assert re.fullmatch(r"[A-Za-z0-9_=.-]+", admitted["ticket"])


def test_the_same_request_again_is_the_same_place(web: Caller, shown_sale: MakeSale) -> None:
    card, buyer = shown_sale(units=3), web.new_buyer()
    first, again = web.ask(card.slug, buyer), web.ask(card.slug, buyer)
    assert (first.status, again.status) == (202, 200)
    assert first.json() == again.json()


def test_another_idempotency_key_is_another_request(web: Caller, shown_sale: MakeSale) -> None:
    card, buyer = shown_sale(units=3, limit=2), web.new_buyer()
    one, two = web.ask(card.slug, buyer, key="one"), web.ask(card.slug, buyer, key="two")
    assert (one.status, two.status) == (202, 202)
    assert one.json()["request_id"] != two.json()["request_id"]
    assert one.json()["seq"] < two.json()["seq"]
    assert (one.json()["position"], two.json()["position"]) == (1, 2)


def test_the_same_key_with_another_quantity_is_refused(web: Caller, shown_sale: MakeSale) -> None:
    card, buyer = shown_sale(units=3, limit=2), web.new_buyer()
    assert web.ask(card.slug, buyer, key="mine", quantity=1).status == 202
    refused(web.ask(card.slug, buyer, key="mine", quantity=2), status=422, code="idempotency_mismatch")


def test_the_same_key_of_two_buyers_is_two_requests(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=3)
    ids = {web.ask(card.slug, web.new_buyer(), key="same").json()["request_id"] for _ in range(2)}
    assert len(ids) == 2


def test_more_than_the_limit_is_refused_in_one_wish_or_in_two(web: Caller, shown_sale: MakeSale) -> None:
    card, buyer = shown_sale(units=9, limit=2), web.new_buyer()
    refused(web.ask(card.slug, buyer, quantity=3), status=409, code="limit_reached")
    assert web.ask(card.slug, buyer, key="first", quantity=2).status == 202
    refused(web.ask(card.slug, buyer, key="second"), status=409, code="limit_reached")


def test_a_full_line_says_when_to_come_back_and_still_knows_who_is_in_it(web: Caller, shown_sale: MakeSale) -> None:
    """Also from memory, which answers all but the first few."""
    card, first = shown_sale(units=1, line_capacity=0), web.new_buyer()
    mine = web.ask(card.slug, first).json()
    for _ in range(20):
        answer = web.ask(card.slug, web.new_buyer())
        refused(answer, status=409, code="line_full")
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    again = web.ask(card.slug, first)
    assert (again.status, again.json()["seq"]) == (200, mine["seq"])


def test_sold_out_is_still_said_when_the_process_knows_it_by_heart(
    web: Caller, shown_sale: MakeSale, settler: ChildProcess
) -> None:
    card, first = shown_sale(units=1, line_capacity=0), web.new_buyer()
    mine = web.ask(card.slug, first).json()
    wait_for_decision(web, mine["request_id"], first)
    pay(mine["request_id"])
    wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").json()["sold"] == 1, what="the board knows")
    for _ in range(20):
        refused(web.ask(card.slug, web.new_buyer()), status=409, code="sold_out")
        assert web.ask(card.slug, first).json()["request_id"] == mine["request_id"]


def test_standby_by_the_api(web: Caller, shown_sale: MakeSale, settler: ChildProcess) -> None:
    """Asked for, told, looked at, restored, held: each as the contract says."""
    card, first, eve, joe = shown_sale(units=1), web.new_buyer(), web.new_buyer(), web.new_buyer()
    mine = web.ask(card.slug, first).json()
    wait_for_decision(web, mine["request_id"], first)
    pay(mine["request_id"])
    wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").json()["sold"] == 1, what="the board knows")
    answer = web.ask(card.slug, eve, wish={"standby": True})
    asked = answer.json()
    assert (answer.status, asked["state"], asked["position"], asked.keys()) == (202, "standby", 1, ADMITTED_FIELDS)
    for wish in ({}, {"standby": True}, {"ticket": asked["ticket"]}):
        again = web.ask(card.slug, eve, wish=wish)
        assert (again.status, again.json()["state"], again.json()["seq"]) == (200, "standby", asked["seq"])
    refused(web.ask(card.slug, joe), status=409, code="sold_out")
    status = web.status(asked["request_id"], eve).json()
    assert (status["state"], status["position"], status["holds_ahead"]) == ("standby", 1, 0)
    assert status["eta_seconds"] is status["eta_range_seconds"] is status["out_of_reach"] is None
    sale_control.restock(card.slug, units=1, actor="anna")
    found = wait_until(lambda: (now := web.status(asked["request_id"], eve).json())["state"] == "held" and now)
    assert found["hold_expires_at"]
    assert web.ask(card.slug, eve, wish={"standby": True}).json()["state"] == "held"


def test_the_cookie_of_our_own_page_is_as_good_as_the_token(web: Caller, shown_sale: MakeSale) -> None:
    card, buyer = shown_sale(units=1), web.new_buyer()
    headers = {**JSON, "Cookie": f"other=1; buyer={buyer.token}", "Origin": f"http://127.0.0.1:{web.port}"}
    answer = web.call("POST", f"/api/v1/sales/{card.slug}/requests", body='{"quantity":1}', headers=headers)
    assert answer.status == 202
    assert web.ask(card.slug, buyer).json()["request_id"] == answer.json()["request_id"]


# status


def test_a_waiting_request_says_where_it_stands(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=9, limit=2)
    buyers = [web.new_buyer() for _ in range(3)]
    ids = [web.ask(card.slug, buyer, quantity=2).json()["request_id"] for buyer in buyers]
    for ahead, (request_id, buyer) in enumerate(zip(ids, buyers, strict=True)):
        answer = web.status(request_id, buyer)
        status = answer.json()
        # seq is beyond the contract's list; a reader that wants it need not ask again.
        assert (answer.status, status.keys() - {"seq"}) == (200, STATUS_FIELDS)
        assert (status["request_id"], status["sale"], status["quantity"]) == (request_id, card.slug, 2)
        assert (status["state"], status["position"], status["ahead"]) == ("queued", ahead + 1, ahead)
        assert (status["hold_expires_at"], status["order_url"]) == (None, f"/requests/{request_id}/")
        assert is_moment(status["server_time"])


def test_a_request_is_shown_to_its_buyer_only(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=3)
    request_id = web.ask(card.slug, web.new_buyer()).json()["request_id"]
    refused(web.status(request_id, web.new_buyer()), status=404, code="request_not_found")
    refused(web.get(f"/api/v1/requests/{request_id}"), status=401, code="unauthenticated")


def test_a_decided_request_is_shown_to_its_buyer_only(web: Caller, shown_sale: MakeSale, settler: ChildProcess) -> None:
    card, buyer = shown_sale(units=3), web.new_buyer()
    request_id = web.ask(card.slug, buyer).json()["request_id"]
    wait_for_decision(web, request_id, buyer)
    refused(web.status(request_id, web.new_buyer()), status=404, code="request_not_found")


def test_the_first_get_the_units_and_the_rest_are_told_sold_out(
    web: Caller, shown_sale: MakeSale, start_settler: Callable[[], ChildProcess]
) -> None:
    card = shown_sale(units=2, hold_seconds=3600)
    buyers = [web.new_buyer() for _ in range(4)]
    ids = [web.ask(card.slug, buyer).json()["request_id"] for buyer in buyers]
    close_sale(card)
    start_settler()
    ends = [wait_for_decision(web, name, buyer) for name, buyer in zip(ids, buyers, strict=True)]
    assert [end["state"] for end in ends] == ["held", "held", "sold_out", "sold_out"]
    assert [end["position"] for end in ends] == [None] * 4
    assert [end["ahead"] for end in ends] == [None] * 4
    held_until = datetime.fromisoformat(ends[0]["hold_expires_at"]) - datetime.now(UTC)
    assert timedelta(seconds=3000) < held_until <= timedelta(seconds=3600)
    assert ends[2]["hold_expires_at"] is None


def test_asking_again_after_the_decision_tells_the_decision(
    web: Caller, shown_sale: MakeSale, settler: ChildProcess
) -> None:
    card, buyer = shown_sale(units=1), web.new_buyer()
    first = web.ask(card.slug, buyer).json()
    wait_for_decision(web, first["request_id"], buyer)
    again = web.ask(card.slug, buyer)
    assert (again.status, again.json()["state"], again.json()["seq"]) == (200, "held", first["seq"])
    assert again.json()["position"] is None


# live events


def messages(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the (id, data) of every message of an event stream."""
    name = ""
    for line in lines:
        if line.startswith("id: "):
            name = line.removeprefix("id: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_the_events_of_a_request_begin_with_its_status(web: Caller, shown_sale: MakeSale) -> None:
    card, buyer = shown_sale(units=1), web.new_buyer()
    admitted = web.ask(card.slug, buyer).json()
    with web.follow(admitted["events_url"], headers=buyer.headers) as (head, lines):
        name, status = next(messages(lines))
    assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
    assert name
    assert (status["request_id"], status["state"]) == (admitted["request_id"], "queued")
    assert status.keys() >= STATUS_FIELDS


def test_the_events_of_a_request_end_with_its_decision(
    web: Caller, shown_sale: MakeSale, settler: ChildProcess
) -> None:
    card, buyer = shown_sale(units=1), web.new_buyer()
    admitted = web.ask(card.slug, buyer).json()
    with web.follow(admitted["events_url"], headers=buyer.headers) as (_, lines):
        told = list(messages(lines))
    assert told[-1][1]["state"] == "held"
    names = [name for name, _ in told]
    assert len(set(names)) == len(names)


def test_the_events_of_a_request_are_for_its_buyer_only(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=1)
    admitted = web.ask(card.slug, web.new_buyer()).json()
    refused(web.get(admitted["events_url"]), status=401, code="unauthenticated")
    stranger = web.new_buyer()
    refused(web.get(admitted["events_url"], headers=stranger.headers), status=404, code="request_not_found")


def test_the_events_of_a_sale_tell_when_its_figures_change(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=5)
    with web.follow(f"/api/v1/sales/{card.slug}/events") as (head, lines):
        told = messages(lines)
        before = next(told)[1]
        web.ask(card.slug, web.new_buyer())
        after = next(data for _, data in told if data["queued"])
    assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
    assert before.keys() == SALE_FIELDS
    assert (before["queued"], after["queued"]) == (0, 1)


def test_a_quiet_stream_is_kept_alive(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=5)
    with web.follow(f"/api/v1/sales/{card.slug}/events") as (_, lines):
        assert any(line.startswith(":") for line in lines)


def test_the_events_of_an_unknown_sale_are_not_found(web: Caller) -> None:
    refused(web.get("/api/v1/sales/never-heard-of-it/events"), status=404, code="sale_not_found")


# audit


def audit_path(card: SaleCard) -> str:
    return f"/api/v1/sales/{card.slug}/audit"


def test_the_audit_is_shown_to_the_holder_of_its_token(
    web: Caller, shown_sale: MakeSale, settler: ChildProcess
) -> None:
    card, buyer = shown_sale(units=1), web.new_buyer()
    wait_for_decision(web, web.ask(card.slug, buyer).json()["request_id"], buyer)
    answer = web.get(audit_path(card), headers={"Authorization": f"Bearer {AUDIT_TOKEN}"})
    report = answer.json()
    assert (answer.status, report.keys()) == (200, {"ok", "invariants", "counts"})
    assert report["ok"] is True
    assert all(each.keys() == {"id", "name", "ok", "detail"} for each in report["invariants"])
    assert report["counts"]["orders_held"] == 1


def test_the_audit_is_shown_to_staff(shown_sale: MakeSale) -> None:
    card = shown_sale(units=1)
    client = Client()
    client.force_login(User.objects.create_superuser(username=f"staff-{card.sku}"))
    assert client.get(audit_path(card)).json()["ok"] is True


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}, {"Authorization": "Bearer é"}],
    ids=["nobody", "wrong token", "empty token", "token beyond ASCII"],
)
def test_the_audit_is_refused_to_everybody_else(web: Caller, shown_sale: MakeSale, headers: dict[str, str]) -> None:
    refused(web.get(audit_path(shown_sale(units=1)), headers=headers), status=401, code="unauthenticated")


def test_the_audit_is_refused_to_a_buyer(web: Caller, shown_sale: MakeSale) -> None:
    answer = web.get(audit_path(shown_sale(units=1)), headers=web.new_buyer().headers)
    refused(answer, status=401, code="unauthenticated")


def test_the_audit_of_an_unknown_sale_is_not_found(web: Caller) -> None:
    answer = web.get("/api/v1/sales/never-heard-of-it/audit", headers={"Authorization": f"Bearer {AUDIT_TOKEN}"})
    refused(answer, status=404, code="sale_not_found")


# about


def test_the_holder_of_the_audit_token_is_told_what_runs_here(web: Caller) -> None:
    answer = web.get("/api/v1/about", headers={"Authorization": f"Bearer {AUDIT_TOKEN}"})
    told = answer.json()
    assert (answer.status, told.keys()) == (200, {"python", "django", "environment", "database", "store"})
    assert (told["database"]["name"], told["store"]["name"]) == ("PostgreSQL", "Valkey")
    assert all(value for part in ("database", "store") for value in told[part].values()), told
    assert told["database"]["fsync"] in ("on", "off")
    assert told["store"]["appendfsync"] in ("always", "everysec", "no")


def test_nobody_else_is_told_what_runs_here(web: Caller) -> None:
    refused(web.get("/api/v1/about"), status=401, code="unauthenticated")
    refused(web.get("/api/v1/about", headers=web.new_buyer().headers), status=401, code="unauthenticated")


# health


def test_the_process_says_that_it_lives(web: Caller) -> None:
    assert web.get("/healthz").status == 200


def test_the_process_says_that_its_stores_answer(web: Caller) -> None:
    answer = wait_until(lambda: (now := web.get("/readyz")).status == 200 and now, what="both stores answer in time")
    assert (answer.status, answer.json()) == (200, {"ok": True, "stores": {"redis": True, "database": True}})


def test_metrics_show_the_refusals_and_how_old_what_is_shown_is(web: Caller, shown_sale: MakeSale) -> None:
    card = shown_sale(units=4)
    web.get("/api/v1/sales/never-heard-of-it")

    def shown() -> bool:
        text = web.get("/metrics").body.decode()
        age = f'fairdrop_figures_age_seconds{{sale="{card.slug}"}} '
        return age in text and 'fairdrop_refusals_total{code="sale_not_found"}' in text

    wait_until(shown, what="both are there")


def test_an_unknown_address_below_the_api_is_a_problem_and_not_a_page(web: Caller) -> None:
    refused(web.get("/api/v1/nothing/here"), status=404, code="not_found")
