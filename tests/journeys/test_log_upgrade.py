"""A ticket of the version before, with the script of the new one, keeps the log it saw under the name of its sale."""

from __future__ import annotations

import re

from playwright.sync_api import Route

from tests.journeys.test_public_log import MakeSale, OpenVisit, sees_part
from tests.journeys.test_public_log import notary as notary


def test_a_page_of_the_version_before_keeps_each_log_apart(open_sale: MakeSale, visit: OpenVisit) -> None:
    """A log of one sale that was kept for another would be called forged."""
    one, cards = visit(), [open_sale(units=1), open_sale(units=1)]

    def without_name(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=re.sub(r' data-keep-as="[^"]*"', "", answer.text()))

    one.page.route(re.compile("/requests/[^/]+/$"), without_name)
    for card in cards:
        one.get_one(card)
        sees_part(one, "good")
    kept = one.page.evaluate("Object.keys(localStorage).filter((name) => name.startsWith('fairdrop:log:'))")
    assert sorted(kept) == sorted(f"fairdrop:log:{card.slug}" for card in cards)
