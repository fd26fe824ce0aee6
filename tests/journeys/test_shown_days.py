"""Which day a moment was stays on a page when a script writes it in the reader's zone, on a phone of 320 px, too."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Route, expect

from tests.journeys.test_public_log import MakeSale, OpenVisit, lively_sale, see_log
from tests.journeys.test_public_log import notary as notary
from tests.journeys.visits import DESKTOP
from tests.support.sale_logs import leaves

DAY_US = 86_400_000_000


@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
def test_a_date_keeps_its_year(open_sale: MakeSale, visit: OpenVisit, locale: str) -> None:
    card, one = open_sale(units=1), visit(locale=locale)
    year = re.compile(r"20\d\d")
    one.see_sale(card)
    closes = one.page.locator("[data-live=closes] time")
    expect(closes).to_have_attribute("title", re.compile("UTC"))  # the script has written it
    expect(closes).to_have_text(year)
    one.check_page()
    one.get_one(card)
    expect(one.page.locator("ol time, ul time").last).to_have_text(year)
    one.check_page()
    one.go("/tickets/")
    expect(one.page.locator("ul.mine time")).to_have_text(year)
    one.check_page()


@pytest.mark.parametrize("days", [0, 2])
def test_a_log_of_more_than_a_day_says_which_day(open_sale: MakeSale, visit: OpenVisit, days: int) -> None:
    card, one = lively_sale(open_sale), visit(viewport=DESKTOP)
    opened_at = json.loads(leaves(card)[0])["at"]

    def changed(route: Route) -> None:
        answer = route.fetch()
        before = b'"at":%d' % (opened_at - days * DAY_US)
        route.fulfill(response=answer, body=answer.body().replace(b'"at":%d' % opened_at, before, 1))

    one.page.route("**/tile/entries/**", changed)
    see_log(one, card, "Broken so far" if days else "Every rule holds.")
    moment = r"\w+ \d{1,2}, \d\d:\d\d:\d\d" if days else r"\d\d:\d\d:\d\d"
    expect(one.page.locator("[data-moment]")).to_have_text(re.compile(f"^{moment}$"))
    expect(one.page.locator("[data-rows=acts]")).to_contain_text(re.compile(r"20\d\d.*restock"))
    one.check_page()
    one.picture(f"log-of-{days}-days")
