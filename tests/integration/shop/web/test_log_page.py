"""The page of a public log without script, and the links that lead there. Real stores; a notary here publishes."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import replace

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings

from shop import buyers
from shop.models import new_request_key
from shop.salelog import store
from shop.salelog.models import SaleLog
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.sale_logs import get, leaves, publish
from tests.support.shopkeeping import close_sale, make_sale

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
MAX_QUERIES = 4


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    publish()
    return make_sale(new_sku(), units=2)


def page(card: SaleCard, *, language: str = "en") -> str:
    browser = Client()
    browser.cookies["language"] = language
    answer = browser.get(f"/sales/{card.slug}/verify/")
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def test_before_anything_is_published_it_says_so(card: SaleCard) -> None:
    assert "Nothing of this sale has been published yet." in page(card)
    assert "log/page.js" not in page(card)


def test_it_shows_the_latest_leaves_and_how_to_check_elsewhere(card: SaleCard) -> None:
    names = road.queue(card, *(f"log-reader-{number:016d}" for number in range(30)))
    publish()
    text = page(card)
    assert [name in text for name in (names[-1], names[0])] == [True, False]
    assert f"python verify_sale.py http://testserver/sales/{card.slug}/ --keep checkpoints" in text
    assert "is going on" in text
    road.settle_line(card)
    close_sale(card)
    publish()
    assert "Units were held for them" in page(card)
    assert "is over" in page(card)
    assert "已为其预留" in page(card, language="zh-hans")


def test_it_costs_the_same_however_long_the_log_is(card: SaleCard) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            page(card)
        return len(seen)

    road.queue(card, "log-reader-a")
    publish()
    few = queries()
    road.queue(card, *(f"log-reader-{number:016d}" for number in range(150)))
    publish()
    assert len(leaves(card)) > 150
    assert queries() == few <= MAX_QUERIES
    assert queries() == few - 1  # the tile was read already


def test_a_sale_without_a_log_says_so_and_its_tickets_are_silent(card: SaleCard) -> None:
    buyer, token = buyers.issue_buyer()
    (name,) = road.queue(card, buyer)
    publish()
    browser = Client()
    browser.cookies[buyers.COOKIE_NAME] = token
    assert "data-log " in browser.get(f"/requests/{name}/").content.decode()
    SaleLog.objects.filter(sale_id=card.sale_id).update(is_kept=False)
    assert "had sold something before the shop kept logs" in page(card)
    assert "data-log" not in browser.get(f"/requests/{name}/").content.decode()


def test_a_browser_keeps_the_log_of_a_demo_apart_from_one_of_a_run_before(card: SaleCard) -> None:
    """The control is a shop with a key of its own: there another log under an old name is what a browser must say."""
    buyer, token = buyers.issue_buyer()
    (name,) = road.queue(card, buyer)
    publish()
    browser = Client(headers={"cookie": f"{buyers.COOKIE_NAME}={token}"})
    before = replace(card, request_key=new_request_key())
    for is_derived in (True, False):
        with override_settings(LOG_KEY_IS_DERIVED=is_derived):
            assert (card.log_kept_as == before.log_kept_as, card.log_kept_as == card.slug) == (not is_derived,) * 2
            kept_as = f'data-keep-as="{card.log_kept_as}"'
            assert kept_as in browser.get(f"/requests/{name}/").content.decode()
            assert kept_as in page(card)


def test_a_shop_without_logs_has_no_such_page_and_no_link_to_it(card: SaleCard) -> None:
    publish()
    address = f"/sales/{card.slug}/verify/"
    assert address in Client().get(f"/sales/{card.slug}/").content.decode()
    with override_settings(SALE_LOG=False):
        assert Client().get(address).status_code == 404
        assert address not in Client().get(f"/sales/{card.slug}/").content.decode()
    for method in ("post", "put"):
        assert getattr(Client(), method)(address).status_code == 405
    assert Client().get("/sales/no-such-sale/verify/").status_code == 404


def test_nobody_keeps_the_answer_of_a_log_whose_database_is_away(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(slug: str) -> SaleLog:
        raise OperationalError("connection refused")

    publish()
    path = f"/api/v1/sales/{card.slug}/log/checkpoint"
    assert get(path).status_code == 200
    monkeypatch.setattr(store, "find_log", away)
    told = get(path)
    assert (told.status_code, told.json()["code"], told["Cache-Control"]) == (503, "unavailable", "no-store")
    assert told["Access-Control-Allow-Origin"] == "*"
