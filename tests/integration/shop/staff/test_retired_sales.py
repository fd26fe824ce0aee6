"""The database answers for a retired sale, nobody puts it into Redis again, and the next sale of its SKU goes on.
Uses the real servers; its controls show what would happen without each guard.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.test.utils import override_settings

from inventory import redis
from inventory.exceptions import IdempotencyMismatch, RequestNotFound, SaleClosed, SaleNotPrimed
from inventory.line import priming as line_priming
from inventory.line import reading, writing
from inventory.line.admission import Code
from inventory.models import Stock
from inventory.records import Ticket, sign_ticket
from inventory.redis import keys
from inventory.states import State
from shop.buyers import ticket_signer
from shop.models import Order, Sale
from shop.orders import requests, restoring
from shop.payments import refunds
from shop.sales import catalogue, priming
from shop.sales.audit import audit_sale
from shop.sales.catalogue import SaleCard
from shop.staff import retiring
from tests.support import road
from tests.support.pages import known_client, text_of
from tests.support.past_sales import keys_left, next_sale, of_retired, sold
from tests.support.shopkeeping import assert_books_balance, make_sale, rewrite
from tests.support.staff import browser_of
from workers.reconciler.loop import Reconciler

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def retired(new_sku: Callable[[], str]) -> SaleCard:
    card = sold(new_sku())
    assert retiring.retire(card.slug, actor="olga") == "retired"
    return of_retired(card)


def test_the_same_ask_gets_its_outcome_and_a_new_one_is_told_the_sale_is_over(retired: SaleCard) -> None:
    order = Order.objects.filter(sale_id=retired.sale_id, state="paid").first()
    assert order
    view = requests.ask(retired, buyer=order.buyer, quantity=1, idempotency_key="")
    assert (view.request_id, view.state, view.seq) == (order.request_id, State.PAID, order.seq)
    with pytest.raises(IdempotencyMismatch):
        requests.ask(retired, buyer=order.buyer, quantity=2, idempotency_key="")
    with pytest.raises(SaleClosed):
        requests.ask(retired, buyer=order.buyer, quantity=1, idempotency_key="another")
    assert keys_left(retired.sku) == []


def test_nobody_primes_a_retired_sale(retired: SaleCard) -> None:
    with pytest.raises(SaleNotPrimed):
        priming.prime_card(retired)
    # A caller that read the sale before it was retired finds out when the SKU is read to be primed.
    with pytest.raises(SaleNotPrimed):
        priming.prime_card(replace(retired, retired_at=None))
    priming.prime_sale(retired.slug)  # says nothing: the demo, and staff's acts, may come to one that was just retired
    assert Sale.objects.get(pk=retired.sale_id).ordinal_base == 0
    assert keys_left(retired.sku) == []


def test_without_the_mark_an_ask_of_anybody_primes_it_again(retired: SaleCard) -> None:
    """The control."""
    Sale.objects.filter(pk=retired.sale_id).update(retired_at=None)
    with pytest.raises(SaleClosed):
        requests.ask(of_retired(retired), buyer="somebody", quantity=1, idempotency_key="")
    assert keys.stock(retired.sku) in keys_left(retired.sku)


def test_a_ticket_is_answered_from_the_database_and_primes_nothing(retired: SaleCard) -> None:
    order = Order.objects.filter(sale_id=retired.sale_id).first()
    assert order
    text = sign_ticket(ticket_signer(), Ticket(order.request_id, order.buyer, 1, order.seq))
    view, restored = restoring.restore(text, buyer=order.buyer)
    assert (view.state, restored) == (State(order.state), False)
    lost = road.ask(retired, "somebody").request_id
    text = sign_ticket(ticket_signer(), Ticket(lost, "somebody", 1, 7))
    with pytest.raises(SaleClosed):
        restoring.restore(text, buyer="somebody")
    with pytest.raises(RequestNotFound):
        requests.look_up(lost, buyer="somebody")
    assert keys_left(retired.sku) == []


@pytest.mark.parametrize(("language", "words"), [("en", "This drop is over"), ("zh-hans", "本次发售已结束")])
def test_the_page_of_a_lost_place_says_that_the_sale_is_over(retired: SaleCard, language: str, words: str) -> None:
    """The control is a browser that has not kept the ticket: for it there is no such page."""
    client, buyer = known_client()
    client.cookies["language"] = language
    lost = road.ask(retired, buyer).request_id
    assert client.get(f"/requests/{lost}/").status_code == 404
    client.cookies["proof"] = sign_ticket(ticket_signer(), Ticket(lost, buyer, 1, 7))
    answer = client.get(f"/requests/{lost}/")
    assert (answer.status_code, f"<h1>{words}</h1>" in text_of(answer)) == (410, True)
    assert "That did not work" not in text_of(answer)


def test_a_lost_place_comes_into_no_line_of_a_sale_that_is_retired_meanwhile(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another sale of the SKU keeps the line: the unit would be held for the retired one."""
    card, put = sold(new_sku(), units=5, buyers=3), writing.restore
    fresh = next_sale(card)
    ticket = sign_ticket(ticket_signer(), Ticket(road.ask(card, "somebody").request_id, "somebody", 1, 7))

    def restore_late(*args: Any, **known: Any) -> bool:
        if of_retired(card).retired_at is None:
            retiring.retire(card.slug, actor="olga")
        return put(*args, **known)

    monkeypatch.setattr(writing, "restore", restore_late)
    with pytest.raises(SaleNotPrimed):
        restoring.restore(ticket, buyer="somebody")
    with pytest.raises(SaleClosed):
        restoring.restore(ticket, buyer="somebody")
    assert road.run(("ZCARD", keys.line(card.sku)), ("HEXISTS", keys.sales(card.sku), card.sale_id)) == [0, 0]
    assert_books_balance(fresh)


def test_a_refund_after_it_is_in_the_books_and_not_in_redis(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku(), units=5, buyers=3)
    fresh = next_sale(card)
    retiring.retire(card.slug, actor="olga")
    order = Order.objects.filter(sale_id=card.sale_id, state="paid").first()
    assert order
    refunds.refund_order(order.request_id, actor="olga", reason="it came broken")
    order.refresh_from_db()
    assert order.state == "refunded"
    assert road.run(("HEXISTS", keys.records(card.sku), order.request_id)) == [0]
    figures = reading.figures(redis.connect(), card.sku, sale_id=fresh.sale_id)
    assert figures
    assert figures.version == Stock.objects.get(sku=card.sku).version
    assert_books_balance(fresh)


def test_an_empty_redis_is_primed_without_the_retired_sales(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku(), units=5, buyers=3)
    fresh = next_sale(card)
    retiring.retire(card.slug, actor="olga")
    road.queue(fresh, "ann")
    road.settle_line(fresh)
    road.forget(fresh)
    assert not line_priming.is_primed(redis.connect(), card.sku)
    priming.prime_sale(fresh.slug)
    assert road.run(("HLEN", keys.records(card.sku))) == [1]
    assert_books_balance(fresh)
    assert Reconciler(redis.connect(), stopping=lambda: False).compare(card.sku, sale_ids=[fresh.sale_id]) == []
    (answer,) = road.admit(fresh, road.ask(fresh, "bob"))
    assert answer.code == Code.ADMITTED


def test_a_new_sale_of_a_retired_sku_waits_for_nobody_who_comes_back(new_sku: Callable[[], str]) -> None:
    card = sold(new_sku(), units=5, buyers=3)
    retiring.retire(card.slug, actor="olga")
    with override_settings(RESTORE_GRACE_SECONDS=60):
        fresh = next_sale(card)
        road.queue(fresh, "ann")
        assert road.settle_line(fresh)
        # The control: now it has been on sale before.
        road.forget(fresh)
        priming.prime_sale(fresh.slug)
        road.queue(fresh, "bob")
        assert not road.settle_line(fresh)


@pytest.mark.parametrize("first", [0, 1])
def test_ordinals_of_every_sale_of_a_sku_go_on_above_a_jump(new_sku: Callable[[], str], first: int) -> None:
    """Else those who are lost after it would be taken for the decided ones of before."""
    card = sold(new_sku(), units=9, buyers=3)
    fresh = next_sale(card)
    road.queue(fresh, "ann", "bob")
    road.settle_line(fresh)
    road.forget(fresh)
    sales = [card, fresh]
    for each in (sales[first], sales[1 - first]):
        priming.prime_sale(each.slug)
    road.queue(fresh, "eve")
    road.settle_line(fresh)
    ordinals = Order.objects.filter(sale_id=fresh.sale_id).order_by("id").values_list("ordinal", flat=True)
    assert list(ordinals) == [1, 2, 2 + priming.ORDINAL_JUMP + 1]
    assert_books_balance(fresh)
    # The control: one that is lost now is missed.
    (name,) = road.queue(fresh, "joe")
    road.run(("ZREM", keys.line(card.sku), name), ("HDEL", keys.records(card.sku), name))
    assert "I4" in {each["id"] for each in audit_sale(fresh.slug)["invariants"] if not each["ok"]}
    road.forget(fresh)


def test_its_audit_looks_at_the_database_alone_and_says_so(retired: SaleCard) -> None:
    report = audit_sale(retired.slug)
    assert report["ok"]
    assert "Redis has forgotten it" in report["note"]
    told = {each["id"] for each in report["invariants"]}
    assert {"I1", "I2", "I3", "I7", "I8", "I13", "I20"} <= told
    assert told.isdisjoint({"I4", "I15", "I17", "I18", "I19", "I21"})
    assert report["counts"]["decided"] == 5
    out = StringIO()
    call_command("audit", retired.slug, stdout=out)
    assert "only the invariants of the database" in out.getvalue()
    page = browser_of("viewer").get(f"/admin/shop/sale/{retired.sale_id}/audit/").content.decode()
    assert "only the invariants of the database" in page


def test_the_command_leaves_retired_sales_out_unless_it_is_asked(
    retired: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sale, "objects", Sale.objects.filter(stock__sku=retired.sku))

    def audited(*options: str) -> list[str]:
        out = StringIO()
        call_command("audit", "--json", *options, stdout=out, stderr=out)
        said, _, reports = out.getvalue().rpartition("retired audits them\n")
        assert bool(said) == (reports.strip() == "{}")
        return list(json.loads(reports))

    assert audited() == []  # no proof, and no fault either: an upgrade between two sales ends well
    assert audited("--retired") == [retired.slug]
    fresh = next_sale(retired)
    assert audited() == [fresh.slug]
    assert audited("--retired") == [retired.slug, fresh.slug]
    assert audited(retired.slug) == [retired.slug]


def test_its_audit_still_sees_what_is_wrong(retired: SaleCard) -> None:
    """The control: a count that is off is found without Redis."""
    order = Order.objects.filter(sale_id=retired.sale_id, state="sold_out").first()
    assert order
    rewrite(order.request_id, state="paid")
    assert not audit_sale(retired.slug)["ok"]


def test_it_leaves_the_catalogue_and_the_stock_that_is_live(retired: SaleCard, new_sku: Callable[[], str]) -> None:
    other = make_sale(new_sku(), units=1)
    listed = {card.slug for card in catalogue.list_sales()}
    assert other.slug in listed
    assert retired.slug not in listed
    browser = browser_of("manager")
    table = browser.get("/admin/inventory/stock/live/?format=csv").content.decode()
    assert other.sku in table
    assert retired.sku not in table
    assert retired.sku in browser.get(f"/admin/inventory/stock/live/?format=csv&q={retired.sku}").content.decode()


def test_pages_of_past_sales(retired: SaleCard) -> None:
    client = Client()
    home = client.get("/").content.decode()
    assert retired.slug not in home
    assert "/past/" in home
    found, number = "", 1
    while retired.slug not in found:
        answer = client.get(f"/past/?page={number}")
        assert answer.status_code == 200
        found = answer.content.decode()
        assert found.count('class="card') <= 51
        number += 1
    assert client.get(f"/sales/{retired.slug}/").status_code == 200
    for wrong in ("0", "-1", "x", "", "1.5", "9" * 9):
        assert client.get(f"/past/?page={wrong}").status_code == 400
