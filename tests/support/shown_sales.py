"""Makes sales that a running web process shows already: what was made a moment ago, it finds at its next reading.
Never starts a process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from shop.sales.catalogue import SaleCard
from tests.support.http_calls import JSON, Caller, answer_to
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until

# On any machine, and so many times as long as one alone takes to buy.
MIN_HOLD_SECONDS, MAX_HOLD_SECONDS, TIMES_AS_LONG, TRIES = 5, 30, 25, 3


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


def seconds_to_pay_in(web: Caller, make: Callable[..., SaleCard]) -> int:
    """Return how long a hold must last so that a crowd can pay in time, on a machine as busy as it is now.

    Never so long that a crowd gives up before a unit that lapses went to the third after it.
    """
    quickest = min(_seconds_to_buy(web, make) for _ in range(TRIES))
    return min(MAX_HOLD_SECONDS, max(MIN_HOLD_SECONDS, math.ceil(TIMES_AS_LONG * quickest)))


def _seconds_to_buy(web: Caller, make: Callable[..., SaleCard]) -> float:
    card, buyer = make(units=1), web.new_buyer()
    began = time.monotonic()
    asked = answer_to(partial(web.ask, card.slug, buyer))
    name = asked.json()["request_id"]
    wait_until(lambda: web.status(name, buyer).json().get("state") == "held", what="it is held")
    path, headers = f"/api/v1/requests/{name}/payment", {**JSON, **buyer.headers}
    paid = answer_to(partial(web.call, "POST", path, body="{}", headers=headers))
    assert paid.status == 200, paid.body
    return time.monotonic() - began
