"""Makes sales that a running web process shows already: what was made a moment ago, it finds at its next reading.
Never starts a process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shop.sales.catalogue import SaleCard
from tests.support.http_calls import Caller
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until


def wait_until_shown(web: Caller, card: SaleCard) -> None:
    """Return when the web process knows the sale and what Redis says of its stock."""

    def shown() -> bool:
        return web.get(f"/api/v1/sales/{card.slug}").status == 200

    wait_until(shown, what=f"{card.slug} is shown")


def shown_sales(web: Caller, new_sku: Callable[[], str]) -> Callable[..., SaleCard]:
    """Return a function that makes a sale of its own SKU (the terms of make_sale) and waits until `web` shows it."""

    def make(**terms: Any) -> SaleCard:
        card = make_sale(new_sku(), **terms)
        wait_until_shown(web, card)
        return card

    return make
