"""The live table of stock: every column, filters, search, CSV, and what it costs: the same for few SKUs and for many.
Real servers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import reverse

from inventory.redis import keys
from shop.models import Sale, open_at
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control, stock_rows
from shop.staff.stock_rows import COLUMNS
from tests.support.road import held_lock, queue, run, settle_line
from tests.support.shopkeeping import close_sale, make_sale, pay_all
from tests.support.staff import browser_of, count_queries, counted_round_trips
from workers.embedded.server import free_port

pytestmark = pytest.mark.usefixtures("shop_database")

LIVE = reverse("stock-live")


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=2)


@pytest.fixture
def viewer() -> Client:
    return browser_of("viewer")


def rows(browser: Client, **query: Any) -> list[dict[str, Any]]:
    answer = browser.get(LIVE, {**query, "format": "json"})
    assert answer.status_code == 200
    assert "no-store" in answer.headers["Cache-Control"]
    found: list[dict[str, Any]] = answer.json()["rows"]
    return found


def row(browser: Client, card: SaleCard) -> dict[str, Any]:
    (found,) = rows(browser, q=card.sku)
    return found


def is_listed(browser: Client, card: SaleCard, state: str) -> bool:
    return card.sku in [each["sku"] for each in rows(browser, q=card.sku, state=state)]


@pytest.mark.parametrize("state", Sale.OperatorState.values)
@pytest.mark.parametrize("seconds", [-1, 0, 1, 59, 60, 61])
def test_the_rule_for_an_open_sale_is_the_same_in_sql(new_sku: Callable[[], str], state: str, seconds: int) -> None:
    sale = Sale.objects.get(pk=make_sale(new_sku(), units=1, opens_in_seconds=0, closes_in_seconds=60).sale_id)
    Sale.objects.filter(pk=sale.pk).update(operator_state=state)
    sale.refresh_from_db()
    moment = sale.opens_at + timedelta(seconds=seconds)
    assert Sale.objects.filter(open_at(moment), pk=sale.pk).exists() == (sale.state_at(moment) == "open")


def test_a_row_shows_stock_line_and_lock(viewer: Client, card: SaleCard) -> None:
    queue(card, "ann")
    settle_line(card)
    queue(card, "bob", "eve")
    run(("ZADD", keys.dead_letters(card.sku), 1, "a-letter"))
    lock = held_lock(card.sku)
    try:
        seen = row(viewer, card)
    finally:
        lock.release()
    want = {"sku": card.sku, "sales": f"{card.slug}:open", "total": 2, "free": 1, "held": 1, "sold": 0, "in_line": 2}
    want |= {"waitlisted": 0, "in_flight": 0, "dead_letters": 1, "lock_waiters": 0, "drift": ""}
    assert {name: seen[name] for name in want} == want
    assert "process" in seen["lock_holder"]
    assert seen["lock_seconds"] >= 0
    assert seen["oldest_seconds"] >= 0
    assert 0 < seen["fence"] < lock.fence
    assert row(viewer, card)["lock_holder"] == ""


def test_waitlisted_ones_are_counted(viewer: Client, card: SaleCard) -> None:
    queue(card, "ann", "bob", "eve")
    settle_line(card)
    seen = row(viewer, card)
    assert (seen["held"], seen["in_line"], seen["waitlisted"]) == (2, 1, 1)


def test_decisions_a_second_are_measured_between_two_looks(
    viewer: Client, card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stock_rows, "RATE_SECONDS", 0.0)
    assert row(viewer, card)["decisions_per_second"] is None
    assert row(viewer, card)["decisions_per_second"] == 0
    queue(card, "ann", "bob")
    settle_line(card)
    assert row(viewer, card)["decisions_per_second"] > 0


def test_the_filters_find_what_they_say(viewer: Client, card: SaleCard, new_sku: Callable[[], str]) -> None:
    over, coming = make_sale(new_sku(), units=1), make_sale(new_sku(), units=1, opens_in_seconds=600)
    queue(over, "ann")
    settle_line(over)
    pay_all(over)
    close_sale(over)
    for state, wanted in (("running", [True, False, False]), ("sold_out", [False, True, False]), ("", [True] * 3)):
        assert [is_listed(viewer, each, state) for each in (card, over, coming)] == wanted, state
    assert not any(is_listed(viewer, each, "drifting") for each in (card, over, coming))
    assert rows(viewer, q=f"{card.sku}-no-such") == []


def test_other_figures_in_redis_are_drift_at_once(viewer: Client, card: SaleCard) -> None:
    assert row(viewer, card)["drift"] == ""
    run(("HINCRBY", keys.stock(card.sku), "available", 1))
    assert row(viewer, card)["drift"] == "Redis says 3 free, 0 held, 0 sold"
    assert is_listed(viewer, card, "drifting")
    assert "live-bad" in viewer.get(LIVE, {"q": card.sku}).content.decode()


def test_what_redis_was_not_told_is_drift_at_the_second_look(
    viewer: Client, card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sale_control, "publish", lambda _changes: None)
        sale_control.restock(card.slug, units=1, actor="test")
    assert row(viewer, card)["drift"] == ""  # it may be on its way
    assert row(viewer, card)["drift"] == "Redis is 1 versions behind"


def test_what_redis_knows_more_than_the_row_is_drift(viewer: Client, card: SaleCard) -> None:
    run(("HINCRBY", keys.stock(card.sku), "version", 5))
    row(viewer, card)
    assert "the row has" in row(viewer, card)["drift"]


def test_a_sku_that_redis_has_lost_is_drift(viewer: Client, card: SaleCard) -> None:
    run(("DEL", keys.stock(card.sku)))
    assert row(viewer, card)["drift"] == "Redis does not know it"


def test_csv_holds_every_row_and_column(viewer: Client, card: SaleCard) -> None:
    answer = viewer.get(LIVE, {"q": card.sku, "format": "csv"})
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert "attachment" in answer.headers["Content-Disposition"]
    head, only = csv.reader(io.StringIO(answer.content.decode()))
    assert tuple(head) == COLUMNS
    assert dict(zip(head, only, strict=True))["free"] == "2"
    (head,) = csv.reader(io.StringIO(viewer.get(LIVE, {"q": "no-such", "format": "csv"}).content.decode()))
    assert tuple(head) == COLUMNS


@pytest.mark.parametrize("state", ["", "running", "sold_out", "drifting"])
def test_it_costs_the_same_for_one_sku_and_for_nine(
    viewer: Client, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    base = new_sku()
    make_sale(f"{base}-0", units=1)
    query = {"q": base, "state": state, "format": "json"}
    viewer.get(LIVE, query)

    def cost() -> tuple[int, int]:
        with counted_round_trips(monkeypatch) as trips:
            queries = count_queries(lambda: viewer.get(LIVE, query))
            return queries, trips()

    few = cost()
    for number in range(1, 9):
        card = make_sale(f"{base}-{number}", units=2)
        queue(card, "ann", "bob", "eve")
    assert cost() == few
    assert 0 < few[0] <= 8
    assert few[1] == (0 if state == "sold_out" else 2)
    if state != "drifting" and state != "sold_out":
        assert len(rows(viewer, q=base, state=state)) == 9


def test_without_redis_the_rows_of_the_database_are_shown(viewer: Client, card: SaleCard) -> None:
    with override_settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"):
        seen, page = row(viewer, card), viewer.get(LIVE, {"q": card.sku})
    assert (seen["free"], seen["in_line"]) == (2, None)
    assert "Redis does not answer" in page.content.decode()


def test_it_works_without_script_and_keeps_the_policy(viewer: Client, card: SaleCard) -> None:
    plain, watched = viewer.get(LIVE, {"q": card.sku}), viewer.get(LIVE, {"q": card.sku, "watch": "1"})
    assert card.sku in plain.content.decode()
    assert "Refresh" not in plain.headers
    assert watched.headers["Refresh"] == "2"
    assert "unsafe" not in plain.headers["Content-Security-Policy"]
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", plain.content.decode())
    assert reverse("stock-live") in viewer.get("/admin/inventory/stock/").content.decode()
    assert reverse("stock-live") in viewer.get("/admin/").content.decode()


def test_it_has_pages(viewer: Client, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock_rows, "PAGE_ROWS", 2)
    base = new_sku()
    for number in range(3):
        make_sale(f"{base}-{number}", units=1)
    assert [each["sku"] for each in rows(viewer, q=base)] == [f"{base}-0", f"{base}-1"]
    assert [each["sku"] for each in rows(viewer, q=base, p="2")] == [f"{base}-2"]
    assert [each["sku"] for each in rows(viewer, q=base, p="nonsense")] == [f"{base}-0", f"{base}-1"]
    everything = viewer.get(LIVE, {"q": base, "format": "csv"}).content.decode().splitlines()
    assert len(everything) == 1 + 3
    assert "Page 1 of 2" in viewer.get(LIVE, {"q": base}).content.decode()
