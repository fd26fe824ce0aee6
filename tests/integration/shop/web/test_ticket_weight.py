"""Holds a ticket page to 60 KB, before any compression, in every state and both languages: the page, its style, its
drawings, each script that it loads and the one that its alert loads. Only the picture of the goods is the shop's own
affair, and log/growth.js is left out: a browser loads it that was there before and has all the others.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from inventory.line.admission import Code
from inventory.states import Reason
from shop import buyers
from shop.models import Product, Sale
from shop.orders import deliveries, mails, ticket_links
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from shop.web.delivery_form import DeliveryForm
from tests.support import road
from tests.support.paying import begin, happen, hear
from tests.support.shopkeeping import make_sale, pay, rewrite

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
MAX_TICKET_BYTES = 60 * 1024
LANGUAGES = ("en", "zh-hans")
TITLE = "长" * 80
WORDS = ("李雷", "朝阳区建国路 88 号\n3 号楼 1204 室", "100022", "北京市", "中国")
ADDRESS = dict(zip(deliveries.FIELDS, WORDS, strict=True))
# As much as each field takes, in letters of three bytes each.
LONGEST = {name: "长" * field.max_length for name, field in DeliveryForm().fields.items()}
DECIDED = {
    "paid": {},
    "expired": {},
    "cancelled": {},
    "refunded": {"reason": Reason.TOO_LATE_LIMIT_REACHED},
    "sold_out": {"hold_expires_at": None},
    "refused": {"hold_expires_at": None, "reason": Reason.LIMIT_REACHED},
}


class Reader:
    """A browser with a ticket for two units; every page that it reads is weighed."""

    def __init__(self, card: SaleCard, *, standby: bool = False) -> None:
        self.buyer, token = buyers.issue_buyer()
        self.browser = Client()
        self.browser.cookies[buyers.COOKIE_NAME] = token
        asked = road.ask(card, self.buyer, quantity=2, standby=standby)
        (answer,) = road.admit(card, asked)
        assert answer.code == (Code.ON_STANDBY if standby else Code.ADMITTED)
        self.request_id = asked.request_id

    def read(self, state: str) -> None:
        """Read the ticket in both languages, and as its link opens it elsewhere; fail when one of them is too large."""
        link = urlsplit(ticket_links.link_to(self.request_id, root="http://testserver")).path
        other = Client()
        other.get(link)
        for browser in (self.browser, other):
            for language in LANGUAGES:
                browser.cookies["language"] = language
                answer = browser.get(f"/requests/{self.request_id}/")
                page = answer.content.decode()
                assert f'data-state="{state}"' in page
                check_weight(page, by_link=browser is other)


def check_weight(page: str, *, by_link: bool = False) -> None:
    """Fail when a ticket page weighs too much. by_link: as in a browser that opened its link, which checks no log."""
    loaded = loaded_by(page)
    expected = {"shop/shop.css", "shop/ticket.js", "shop/press.js", "shop/countdown.js", "shop/favicon-news.svg"}
    expected |= set() if by_link else {"shop/log/place.js", "shop/log/note.js", "shop/log/path.js"}
    assert expected <= set(loaded)
    own = len(page.encode())
    weight = own + sum(loaded.values())
    assert weight <= MAX_TICKET_BYTES, f"{weight:,} bytes: {own:,} and {loaded}"


def loaded_by(page: str) -> dict[str, int]:
    """Return the static files that a page names and those that their scripts import, each with its size."""
    wanted = re.findall(r'(?:src|href|data-icon)="/static/([^"]+)"', page)
    wanted += ["shop/alert.js"] if "data-alert" in page else []
    sizes: dict[str, int] = {}
    while wanted:
        name = wanted.pop()
        if name in sizes or name.startswith("shop/products/"):
            continue
        found = finders.find(name)
        assert found, name
        content = Path(found).read_text()
        sizes[name] = len(content.encode())
        if name.endswith(".js"):
            imported = re.findall(r'from "(\./[^"]+)"', content)
            wanted += [posixpath.normpath(f"{posixpath.dirname(name)}/{each}") for each in imported]
    return sizes


@pytest.fixture
def new_card(new_sku: Callable[[], str], settings: Any) -> Callable[..., SaleCard]:
    """Return a function that makes a sale with all that a ticket can show: mails, goods that are sent, a public log."""
    settings.MAIL_ON = True
    settings.PUBLIC_URL = "https://drops.shop.example"

    def make(*, units: int) -> SaleCard:
        card = make_sale(new_sku(), units=units, limit=2)
        Sale.objects.filter(pk=card.sale_id).update(ships=True, title=TITLE, title_zh=TITLE)
        Product.objects.filter(slug=card.sku).update(picture="shop/products/lantern.svg")
        return card

    return make


def test_a_ticket_that_waits(new_card: Callable[..., SaleCard]) -> None:
    card = new_card(units=2)
    _, one, two = Reader(card), Reader(card), Reader(card)
    two.read("queued")
    road.settle_line(card)
    one.read("waitlisted")
    sale_control.pause(card.slug, actor="anna", reason="停" * 200)
    two.read("waitlisted")
    mails.keep_address(one.request_id, "ada@example.com", language="zh-hans", root="https://drops.shop.example")
    one.read("waitlisted")


def test_a_ticket_on_standby(new_card: Callable[..., SaleCard]) -> None:
    card = new_card(units=2)
    first = Reader(card)
    road.settle_line(card)
    pay(first.request_id)
    last = Reader(card, standby=True)
    road.settle_line(card)
    last.read("standby")


@pytest.mark.parametrize("address", [ADDRESS, LONGEST], ids=["usual", "longest"])
def test_a_ticket_that_is_held(address: dict[str, str], new_card: Callable[..., SaleCard]) -> None:
    card = new_card(units=2)
    one = Reader(card)
    road.settle_line(card)
    one.read("held")
    deliveries.keep_address(one.request_id, address)
    one.read("held")
    payment = begin(one.request_id)
    one.read("held")
    hear(happen(payment, "declined"))
    one.read("held")


@pytest.mark.parametrize("address", [ADDRESS, LONGEST], ids=["usual", "longest"])
@pytest.mark.parametrize("state", DECIDED)
def test_a_ticket_that_is_decided(state: str, address: dict[str, str], new_card: Callable[..., SaleCard]) -> None:
    card = new_card(units=2)
    one = Reader(card)
    road.settle_line(card)
    deliveries.keep_address(one.request_id, address)
    pay(one.request_id)
    rewrite(one.request_id, state=state, **DECIDED[state])
    one.read(state)


def test_a_ticket_that_is_too_large_is_seen(new_card: Callable[..., SaleCard]) -> None:
    """The control: the text of a page counts, a script that it names, and the scripts which that one imports."""
    card = new_card(units=2)
    reader = Reader(card)
    page = reader.browser.get(f"/requests/{reader.request_id}/").content.decode()
    check_weight(page)
    named = '<script type="module" src="/static/shop/log/worker.js"></script>'
    assert {"shop/log/worker.js", "shop/log/replay.js", "shop/log/sha256.js"} <= set(loaded_by(page + named))
    for more in ("x" * 10_000, named):
        with pytest.raises(AssertionError, match="bytes"):
            check_weight(page + more)
