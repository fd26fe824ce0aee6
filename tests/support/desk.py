"""A sale with its buyers, spoken to over HTTP as their programs would: pay, cancel, restore, status.
Settles the line in this process, so no settler need run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.http_calls import JSON, Answer, Buyer, Caller, answer_to
from tests.support.waiting import wait_until


@dataclass(frozen=True)
class Desk:
    """One sale with its buyers, in the order of the line."""

    web: Caller
    card: SaleCard
    buyers: list[Buyer]
    ids: list[str]
    tickets: list[str]

    def call(self, what: str, number: int = 0, *, body: object = None, **more: Any) -> Answer:
        """POST `what` for one of the buyers; body: JSON, or bytes as they are."""
        return post(self.web, f"/api/v1/requests/{self.ids[number]}/{what}", self.buyers[number], body=body, **more)

    def status(self, number: int = 0) -> dict[str, Any]:
        return self.web.status(self.ids[number], self.buyers[number]).json()

    def reaches(self, state: str, number: int = 0) -> None:
        wait_until(lambda: self.status(number)["state"] == state, what=f"it is {state}")


def post(
    web: Caller, path: str, buyer: Buyer | None, *, body: object = None, headers: Mapping[str, str] | None = None
) -> Answer:
    text = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    named = {**(JSON if text is not None else {}), **(buyer.headers if buyer else {}), **(headers or {})}
    return web.call("POST", path, body=text, headers=named)


def open_desk(
    web: Caller,
    make_sale: Callable[..., SaleCard],
    *,
    units: int = 1,
    buyers: int = 1,
    settled: bool = True,
    **terms: Any,
) -> Desk:
    """Make a sale, let buyers ask for a unit each, and settle them."""
    card = make_sale(units=units, **terms)
    people = [web.new_buyer() for _ in range(buyers)]
    asked = [answer_to(partial(web.ask, card.slug, buyer)).json() for buyer in people]
    if settled:
        road.settle_line(card)
    return Desk(web, card, people, [each["request_id"] for each in asked], [each["ticket"] for each in asked])
