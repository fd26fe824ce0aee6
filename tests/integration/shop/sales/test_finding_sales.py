"""A sale is found by its name and by its id with a statement that is made once: to make it takes longer than to ask."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inventory.exceptions import SaleNotFound
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from tests.support.shopkeeping import make_sale


@pytest.fixture
def cards(shop_database: None, new_sku: Callable[[], str]) -> list[SaleCard]:
    return [make_sale(new_sku(), units=units) for units in (1, 2)]


def test_each_sale_is_found_by_either(cards: list[SaleCard]) -> None:
    for card in cards:
        assert catalogue.find_sale(card.slug) == catalogue.find_sale_by_id(card.sale_id)
    found = [catalogue.find_sale_by_id(card.sale_id) for card in cards]
    assert [(each.sku, each.available) for each in found] == [(cards[0].sku, 1), (cards[1].sku, 2)]
    assert found == [next(each for each in catalogue.list_sales() if each.slug == card.slug) for card in cards]


def test_the_statement_is_made_once(cards: list[SaleCard], monkeypatch: pytest.MonkeyPatch) -> None:
    """The control asks for what was not asked for before."""

    def refuse() -> None:
        raise AssertionError("made again")

    catalogue.find_sale(cards[0].slug)
    catalogue.find_sale_by_id(cards[0].sale_id)
    monkeypatch.setattr(catalogue, "_sales", refuse)
    assert catalogue.find_sale(cards[1].slug).sku == cards[1].sku
    assert catalogue.find_sale_by_id(cards[1].sale_id).sku == cards[1].sku
    catalogue._statement.cache_clear()
    with pytest.raises(AssertionError, match="made again"):
        catalogue.find_sale(cards[1].slug)


@pytest.mark.parametrize("sale_id", [-1, 0, 2**62, 2**63, 16**30])
@pytest.mark.usefixtures("shop_database")
def test_a_number_that_is_no_sale_s_finds_none(sale_id: int) -> None:
    with pytest.raises(SaleNotFound):
        catalogue.find_sale_by_id(sale_id)


@pytest.mark.parametrize("slug", ["", "there-never-was-one", "' OR 1=1 --", "%s", "x" * 10_000])
@pytest.mark.usefixtures("shop_database")
def test_a_text_that_is_no_sale_s_finds_none(slug: str) -> None:
    with pytest.raises(SaleNotFound):
        catalogue.find_sale(slug)
