"""Fresh sales for one flood more: under names that are free, open at once, with the stock that was asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import transaction
from django.utils import timezone

from inventory.exceptions import RedisUnavailable
from shop.models import Product, Sale
from shop.sales import priming
from workers.demo import data

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def primed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Make goods that nobody else sees: nothing is committed, so Redis must not be told; give what it would be."""
    told: list[str] = []
    monkeypatch.setattr(priming, "prime_sale", told.append)
    with transaction.atomic():
        yield told
        transaction.set_rollback(True)


def test_sales_are_made_again_and_again(primed: list[str]) -> None:
    first = data.seed_again(sales=2, units=7)
    second = data.seed_again(sales=1, units=9)
    assert (len(first), len(second)) == (2, 1)
    assert not set(first) & set(second)
    assert primed == first + second
    sales = {slug: Sale.objects.select_related("stock").get(slug=slug) for slug in primed}
    assert [sales[slug].stock.available for slug in primed] == [7, 7, 9]
    assert all(sale.opens_at <= timezone.now() < sale.closes_at for sale in sales.values())
    assert all(sale.line_capacity == 2 * sale.stock.total for sale in sales.values())


def test_a_store_that_answers_late_ends_no_demo(primed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The board of each web process primes what was not."""

    def answer_late(_slug: str) -> None:
        raise RedisUnavailable

    monkeypatch.setattr(priming, "prime_sale", answer_late)
    (slug,) = data.seed_again(sales=1, units=7)
    assert Sale.objects.filter(slug=slug).exists()


def test_what_is_sold_again_looks_as_before(primed: list[str]) -> None:
    (slug,) = data.seed_again(sales=1, units=7)
    product = Product.objects.get(sales__slug=slug)
    original = data.FLOOD[0]
    assert product.slug.startswith(f"{original.slug}-")
    assert (product.title, product.picture) == (original.title, f"shop/products/{original.slug}.svg")
