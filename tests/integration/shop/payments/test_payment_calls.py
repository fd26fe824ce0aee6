"""Pay, cancel and restore, over HTTP on a real web process, and what they leave behind; everything may be repeated.
No settler runs: each test settles its own line.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from django.utils import timezone

from shop.models import Order, Payment
from shop.payments import recovery
from shop.sales.catalogue import SaleCard
from shop.sandbox.models import Event
from shop.staff import sale_control
from tests.support import road
from tests.support.desk import Desk, post
from tests.support.desk import open_desk as open_a_desk
from tests.support.http_calls import Answer, Buyer, Caller
from tests.support.paying import choose, sandbox_sender
from tests.support.shopkeeping import assert_books_balance
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
NOTICES = "/api/v1/payments/sandbox/notices"


@pytest.fixture
def open_desk(web: Caller, shown_sale: Callable[..., SaleCard]) -> Callable[..., Desk]:
    """Return a function that makes a sale with buyers who asked in it."""
    return partial(open_a_desk, web, shown_sale)


def test_paying_at_once_and_again(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    first, second = desk.call("payment", body={}), desk.call("payment", body={"provider": "sandbox"})
    assert (first.status, second.status) == (200, 200)
    assert first.json().keys() == desk.status().keys()
    assert [first.json()["state"], second.json()["state"], desk.status()["state"]] == ["paid"] * 3
    assert first.headers["cache-control"].count("no-store") == 1
    assert Payment.objects.filter(order__request_id=desk.ids[0]).count() == 1
    assert desk.call("payment", body={"page": True}).json().keys() == desk.status().keys()
    assert_books_balance(desk.card)


def test_a_call_without_a_body_is_one_with_an_empty_object(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk(units=2, buyers=2)
    assert desk.call("payment").json()["state"] == "paid"
    assert desk.call("cancel", 1).json()["state"] == "cancelled"


def test_paying_on_the_hosted_page(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    begun = desk.call("payment", body={"page": True})
    assert (begun.status, begun.json()["state"]) == (200, "held")
    url = begun.json()["payment_url"]
    assert url.startswith(f"http://127.0.0.1:{desk.web.port}/sandbox/pay/")
    assert desk.call("payment", body={"page": True}).json()["payment_url"] == url
    chosen = choose(desk.web, url, "pay")
    assert (chosen.status, chosen.headers["location"]) == (303, f"/requests/{desk.ids[0]}/")
    # Nobody but the web process sends this notice.
    desk.reaches("paid")
    assert_books_balance(desk.card)


def test_a_declined_page_leaves_the_hold_and_may_be_tried_again(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    url = desk.call("payment", body={"page": True}).json()["payment_url"]
    choose(desk.web, url, "decline")
    declined = Payment.objects.filter(order__request_id=desk.ids[0], state="declined")
    wait_until(declined.exists)
    assert desk.status()["state"] == "held"
    other = desk.call("payment", body={"page": True}).json()["payment_url"]
    assert other != url
    choose(desk.web, other, "pay")
    desk.reaches("paid")
    assert_books_balance(desk.card)


def test_a_slow_notice_is_sent_by_the_worker(
    open_desk: Callable[..., Desk], shop_environment: dict[str, str], tmp_path: Path
) -> None:
    desk = open_desk()
    url = desk.call("payment", body={"page": True}).json()["payment_url"]
    choose(desk.web, url, "slow")
    assert desk.status()["state"] == "held"
    event = Event.objects.get(charge__reference=url.rstrip("/").rpartition("/")[2])
    assert event.due_at is not None
    with sandbox_sender(shop_environment, folder=tmp_path):
        wait_until(lambda: desk.status()["state"] == "paid")
    paid = Order.objects.get(request_id=desk.ids[0])
    assert paid.changed_at >= event.due_at


def test_a_notice_that_never_comes_is_asked_for(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    url = desk.call("payment", body={"page": True}).json()["payment_url"]
    choose(desk.web, url, "never")
    assert desk.status()["state"] == "held"
    assert recovery.bring_on(first_question=timedelta(0))["lost_notice"] >= 1
    assert desk.status()["state"] == "paid"
    assert_books_balance(desk.card)


def test_cancelling_a_hold_gives_it_to_the_next(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk(units=1, buyers=2)
    assert desk.status(1)["state"] == "waitlisted"
    first, second = desk.call("cancel", body={}), desk.call("cancel")
    assert [(each.status, each.json()["state"]) for each in (first, second)] == [(200, "cancelled")] * 2
    road.settle_line(desk.card)
    assert desk.status(1)["state"] == "held"
    told = desk.call("payment", 0).json()
    assert (told["code"], told["state"]) == ("not_payable", "cancelled")
    assert desk.call("payment", 1).json()["state"] == "paid"
    refused = desk.call("cancel", 1)
    told = refused.json()
    assert (refused.status, told["code"], told["state"]) == (409, "not_payable", "paid")
    assert desk.status(1)["state"] == "paid"
    assert_books_balance(desk.card)


@pytest.mark.parametrize("settled", [False, True])
def test_leaving_the_line(open_desk: Callable[..., Desk], settled: bool) -> None:
    desk = open_desk(units=1, buyers=3, settled=settled)
    assert desk.call("cancel", 1).json()["state"] == "cancelled"
    assert desk.status(1)["state"] == "cancelled"
    road.settle_line(desk.card)
    assert [desk.status(number)["state"] for number in range(3)] == ["held", "cancelled", "waitlisted"]
    assert desk.status(2)["position"] == 1
    assert_books_balance(desk.card)


@pytest.mark.parametrize("settled", [False, True])
def test_who_waits_cannot_pay(open_desk: Callable[..., Desk], settled: bool) -> None:
    desk = open_desk(units=1, buyers=2, settled=settled)
    refused = desk.call("payment", 1)
    assert (refused.status, refused.json()["code"]) == (409, "not_payable")
    assert refused.json()["state"] == ("waitlisted" if settled else "queued")
    assert not Payment.objects.filter(order__sale_id=desk.card.sale_id).exists()


def test_a_waitlisted_buyer_is_told_what_may_come_back(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk(units=2, buyers=3, hold_seconds=600)
    ends = Order.objects.filter(sale_id=desk.card.sale_id).order_by("hold_expires_at").first().hold_expires_at
    status = wait_until(lambda: (seen := desk.status(2))["next_lapse_at"] and seen, what="the board has it")
    assert (status["state"], status["holds_ahead"], status["pause_reason"]) == ("waitlisted", 2, None)
    assert abs(timezone.datetime.fromisoformat(status["next_lapse_at"]) - ends) < timedelta(milliseconds=2)
    held = desk.status(0)
    assert (held["holds_ahead"], held["next_lapse_at"], held["pause_reason"]) == (None, None, None)


def test_who_waits_in_a_paused_sale_is_told_why(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk(units=1, buyers=2)
    sale_control.pause(desk.card.slug, actor="anna", reason="A fault at packing.")
    wait_until(lambda: desk.status(1)["pause_reason"] == "A fault at packing.")
    # A pause stops the line, not who has a hold.
    assert desk.call("payment", 0).json()["state"] == "paid"


def test_a_lost_place_is_brought_back_with_its_seq(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk(units=1, buyers=2, settled=False)
    before = desk.status(1)
    road.forget(desk.card)
    lost = desk.web.status(desk.ids[1], desk.buyers[1])
    assert (lost.status, lost.json()["code"], lost.json()["restore"]) == (404, "request_not_found", True)
    wish = {"ticket": desk.tickets[1]}
    first = post(desk.web, "/api/v1/tickets/restore", desk.buyers[1], body=wish)
    second = post(desk.web, "/api/v1/tickets/restore", desk.buyers[1], body=wish)
    assert (first.status, second.status) == (202, 200)
    assert first.json().keys() == before.keys()
    assert first.json()["seq"] == second.json()["seq"] == desk.status(1)["seq"] == before["seq"]
    assert first.json()["state"] == "queued"
    post(desk.web, "/api/v1/tickets/restore", desk.buyers[0], body={"ticket": desk.tickets[0]})
    road.settle_line(desk.card)
    assert [desk.status(number)["state"] for number in (0, 1)] == ["held", "waitlisted"]
    decided = post(desk.web, "/api/v1/tickets/restore", desk.buyers[0], body={"ticket": desk.tickets[0]})
    assert (decided.status, decided.json()["state"]) == (200, "held")
    assert_books_balance(desk.card)


def test_only_a_true_ticket_of_ones_own_restores(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk(units=1, buyers=2, settled=False)
    road.forget(desk.card)

    def code(body: object, buyer: Buyer | None) -> tuple[int, str]:
        answer = post(desk.web, "/api/v1/tickets/restore", buyer, body=body)
        return answer.status, answer.json()["code"]

    ticket = desk.tickets[0]
    assert code({"ticket": ticket}, desk.buyers[1]) == (404, "request_not_found")
    assert code({"ticket": ticket}, None) == (401, "unauthenticated")
    for wrong in ({"ticket": ticket[:-1]}, {"ticket": "x" + ticket}, {"ticket": ""}, {"ticket": "\x00"}, {"ticket": 7}):
        assert code(wrong, desk.buyers[0]) == (400, "invalid_request")
    assert code({}, desk.buyers[0]) == (400, "invalid_request")
    assert desk.web.status(desk.ids[0], desk.buyers[0]).status == 404


def test_an_ask_with_its_ticket_keeps_its_seq_after_a_loss(open_desk: Callable[..., Desk]) -> None:
    """The control is the buyer who does not show it: the same id, and a later seq."""
    desk = open_desk(units=1, buyers=2, settled=False)
    path, before = f"/api/v1/sales/{desk.card.slug}/requests", [desk.status(number)["seq"] for number in (0, 1)]
    road.forget(desk.card)
    wait_until(lambda: post(desk.web, path, desk.buyers[0], body={"quantity": 1}).status in (200, 202))
    wish = {"quantity": 1, "ticket": desk.tickets[1]}
    first, second = (post(desk.web, path, desk.buyers[1], body=wish) for _ in range(2))
    assert (first.status, second.status) == (202, 200), (first, second)
    assert first.json()["request_id"] == second.json()["request_id"] == desk.ids[1]
    assert first.json()["seq"] == second.json()["seq"] == desk.status(1)["seq"] == before[1]
    assert first.json()["ticket"] == desk.tickets[1]
    assert desk.status(0)["seq"] > before[1]
    assert [desk.status(number)["position"] for number in (0, 1)] == [2, 1]
    late = post(desk.web, path, desk.buyers[0], body={"quantity": 1, "ticket": desk.tickets[0]})
    assert (late.status, late.json()["seq"], late.json()["position"]) == (202, before[0], 1)
    road.settle_line(desk.card)
    decided = post(desk.web, path, desk.buyers[0], body={"quantity": 1, "ticket": desk.tickets[0]})
    assert (decided.status, decided.json()["state"]) == (200, "held")
    assert_books_balance(desk.card)


def test_a_foreign_ticket_in_an_ask_changes_nothing(open_desk: Callable[..., Desk]) -> None:
    desk, other = open_desk(units=1, buyers=2, settled=False), open_desk(units=1, buyers=1, settled=False)
    road.forget(desk.card)

    def code(ticket: object, *, quantity: int = 1, slug: str = desk.card.slug, key: str = "") -> tuple[int, str]:
        wish, headers = {"quantity": quantity, "ticket": ticket}, {"Idempotency-Key": key} if key else {}
        answer = post(desk.web, f"/api/v1/sales/{slug}/requests", desk.buyers[0], body=wish, headers=headers)
        return answer.status, answer.json()["code"]

    assert code(desk.tickets[1]) == code(other.tickets[0]) == (404, "request_not_found")
    assert code(desk.tickets[0], slug=other.card.slug) == (404, "request_not_found")
    assert code(desk.tickets[0], key="another") == code(desk.tickets[0], quantity=2) == (422, "idempotency_mismatch")
    for wrong in (desk.tickets[0][:-1], "x" + desk.tickets[0], "", "\x00", 7, None):
        assert code(wrong) == (400, "invalid_request"), wrong
    assert [desk.web.status(name, buyer).status for name, buyer in zip(desk.ids, desk.buyers, strict=True)] == [
        404,
        404,
    ]


def test_the_same_press_of_the_page_keeps_its_seq_after_a_loss(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk(units=1, buyers=0)

    def press(cookies: str) -> Answer:
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Cookie": cookies,
            "Origin": f"http://127.0.0.1:{desk.web.port}",
        }
        body = "quantity=1&idempotency_key=first-press"
        return desk.web.call("POST", f"/sales/{desk.card.slug}/", body=body, headers=headers)

    buyer = desk.web.new_buyer()
    first = press(f"buyer={buyer.token}")
    assert first.status == 303
    name = first.headers["location"].split("/")[2]
    seq = desk.web.status(name, buyer).json()["seq"]
    ticket = first.headers["set-cookie"].partition(";")[0].partition("=")[2]
    assert ticket.startswith(f"{name}.")
    road.forget(desk.card)
    again = press(f"buyer={buyer.token}; ticket={ticket}")
    assert (again.status, again.headers["location"]) == (303, first.headers["location"])
    assert desk.web.status(name, buyer).json()["seq"] == seq
