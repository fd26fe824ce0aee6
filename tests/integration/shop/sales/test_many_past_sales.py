"""Ten thousand past sales cost a web process nothing: the list, the gauges and the catalogue stay as small as before.
Has stores and a web process of its own, for no other test shall live with so many.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from inventory.models import Stock
from shop.models import Sale
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from tests.support.crashes.worker_shop import own_stores
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import web_process
from tests.support.shopkeeping import make_sale, shop_of
from tests.support.shown_sales import wait_until_shown

PAST = 10_000
MAX_LIST_BYTES = 20_000
MAX_METRICS_BYTES = 100_000


def past_sales(card: SaleCard, *, count: int, retired_at: datetime | None) -> None:
    """Make `count` sales of the SKU of `card`, a minute each, one after the other; the last ended two days ago."""
    stock, first = Stock.objects.get(sku=card.sku), Sale.objects.get(pk=card.sale_id)
    last = timezone.now() - timedelta(days=2)
    sales = (
        Sale(
            slug=f"{card.sku}-{number}", product=first.product, stock=stock, title=f"Past {number}", price=first.price,
            opens_at=last - timedelta(minutes=number + 1), closes_at=last - timedelta(minutes=number),
            retired_at=retired_at,
        )
        for number in range(count)
    )  # fmt: skip
    Sale.objects.bulk_create(sales, batch_size=200)


@pytest.fixture
def crowded(shop_database: None, tmp_path: Path) -> Iterator[tuple[Caller, SaleCard]]:
    """Run a web process of a shop with an open sale, 10,000 that are retired, and 500 that are not yet."""
    with own_stores(os.environ, folder=tmp_path) as stores, shop_of(stores.environment):
        card = make_sale("kite", units=1)
        past_sales(card, count=PAST, retired_at=timezone.now())
        past_sales(make_sale("lamp", units=1), count=500, retired_at=None)
        with web_process(stores.environment, folder=tmp_path) as web:
            wait_until_shown(web, card)
            yield web, card


def test_the_list_and_the_gauges_stay_small(crowded: tuple[Caller, SaleCard]) -> None:
    web, card = crowded
    listed = web.get("/api/v1/sales")
    assert sorted(sale["slug"] for sale in listed.json()) == [card.slug, "lamp-drop"]
    assert len(listed.body) <= MAX_LIST_BYTES
    assert len(web.get("/metrics").body) <= MAX_METRICS_BYTES
    assert web.get("/").body.decode().count('class="card"') <= 3
    assert len(web.get(f"/api/v1/sales?ended=1&page={PAST // 50}").json()) == 50
    assert len(web.get("/past/?page=200").body) < 100_000
    assert len(catalogue.list_sales()) == 502
    took = sorted(web.get("/api/v1/sales").seconds for _ in range(50))[25]
    print(f"GET /api/v1/sales: {len(listed.body)} bytes, {took * 1000:.2f} ms")
    # The control: without the mark it is a sale that every process reads once a second.
    Sale.objects.filter(slug="kite-7").update(retired_at=None)
    assert len(catalogue.list_sales()) == 503
