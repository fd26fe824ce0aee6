"""Proves the secret link of a ticket: it opens ticket, payment and receipt in any browser, nothing else opens by it,
nothing but it opens them, and a link that was replaced is worth nothing, also where it was opened before.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.staticfiles import finders
from django.http import HttpResponse
from django.test import Client

from inventory import redis
from inventory.redis import keys
from inventory.signing import signer_for
from shop import buyers
from shop.logs import HideSecrets
from shop.models import Sale, TicketLink
from shop.orders import deliveries, mails, ticket_links
from shop.sales.catalogue import SaleCard
from tests.support import road
from tests.support.paying import begin, happen, hear
from tests.support.shopkeeping import make_sale, pay

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")
TOO_LARGE_BYTES = 60 * 1024


class Browser:
    """A browser, which checks CSRF as a real one is checked; with a buyer's token, or without."""

    def __init__(self, buyer: str = "") -> None:
        self.client = Client(enforce_csrf_checks=True)
        if buyer:
            self.client.cookies[buyers.COOKIE_NAME] = buyers.token_of(buyer)

    def get(self, path: str) -> HttpResponse:
        return self.client.get(path)

    def text(self, path: str) -> str:
        answer = self.get(path)
        assert answer.status_code == 200, answer.status_code
        return html.unescape(answer.content.decode())

    def press(self, page: str, what: str) -> HttpResponse:
        form = re.search(rf'action="{page}{what}/">.*?name="csrfmiddlewaretoken" value="([^"]+)"', self.text(page))
        assert form, f"the page has no form for {what}"
        return self.client.post(f"{page}{what}/", {"csrfmiddlewaretoken": form[1]})

    def link(self, page: str) -> str:
        """Return the path of the secret link that the page shows."""
        shown = re.search(r"<code>(http[^<]+/links/[^<]+)</code>", self.text(page))
        assert shown, "the page shows no link"
        return urlsplit(shown[1]).path


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=1)


def owner_of(card: SaleCard, *, is_settled: bool = True) -> tuple[Browser, str]:
    """Return a new buyer's browser, and the path of their ticket."""
    buyer, _ = buyers.issue_buyer()
    (request_id,) = road.queue(card, buyer)
    if is_settled:
        road.settle_line(card)
    return Browser(buyer), f"/requests/{request_id}/"


def opened(link: str, *, buyer: str = "") -> Browser:
    """Return another browser in which the link was opened."""
    other = Browser(buyer)
    assert other.get(link).status_code == 303
    return other


def test_a_link_opens_ticket_payment_and_receipt_in_a_browser_without_any_cookie(card: SaleCard) -> None:
    owner, page = owner_of(card)
    other = Browser()
    assert other.get(page).status_code == 404
    answer = other.get(owner.link(page))
    assert (answer.status_code, answer["Location"]) == (303, page)
    assert "It is yours" in other.text(page)
    answer = other.press(page, "payment")
    assert (answer.status_code, answer["Location"].startswith("/sandbox/pay/")) == (303, True)
    hear(happen(begin(page.split("/")[2]), "captured"))
    for browser in (owner, other):
        assert "This page is your receipt" in browser.text(page)


def test_a_ticket_that_waits_is_opened_too_and_can_be_given_back(card: SaleCard) -> None:
    owner, page = owner_of(card, is_settled=False)
    other = opened(owner.link(page))
    text = other.text(page)
    assert "Your place in line" in text
    # The API does not know this browser, and a signed ticket is of no use to another buyer.
    assert ('data-status-url=""' in text, 'data-proof=""' in text) == (True, True)
    assert other.press(page, "cancel").status_code == 303
    assert "You left the line" in owner.text(page)


def test_the_owner_who_opened_their_own_link_brings_a_lost_place_back(card: SaleCard) -> None:
    owner = Browser(buyers.issue_buyer()[0])
    form = {"quantity": "1", "idempotency_key": "first-press"}
    page = owner.client.post(f"/sales/{card.slug}/", form, headers={"sec-fetch-site": "same-origin"})["Location"]
    link = owner.link(page)
    stranger, _ = buyers.issue_buyer()
    other = opened(link, buyer=stranger)
    assert owner.get(link).status_code == 303
    assert "Your place in line" in owner.text(page)
    redis.run_commands(redis.connect(), [("UNLINK", *keys.all_of(card.sku))])
    # The link by itself brings nothing back: only the ticket does, which the browser that asked keeps.
    assert other.get(page).status_code == 404
    assert "Your place in line" in owner.text(page)
    assert "Your place in line" in other.text(page)


def test_the_secret_is_exchanged_at_once_and_no_page_is_told_of_it(card: SaleCard) -> None:
    owner, page = owner_of(card)
    answer = Browser().get(owner.link(page))
    cookie = answer.cookies["link"]
    assert (cookie["path"], cookie["httponly"], cookie["samesite"]) == (page, True, "Lax")
    assert answer["Referrer-Policy"] == "no-referrer"
    assert "no-store" in answer["Cache-Control"]
    assert answer.content == b""
    refused = Browser().get(owner.link(page)[:-2] + "x/")
    assert (refused.status_code, refused["Referrer-Policy"]) == (404, "no-referrer")


@pytest.mark.parametrize("change", ["signature", "generation", "request", "empty", "garbage"])
def test_a_guess_is_not_found_and_costs_no_read_of_a_generation(
    card: SaleCard, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, page = owner_of(card)
    _, other_page = owner_of(card)
    link = owner.link(page)
    secret = link.split("/")[3]
    guesses = {
        "signature": link.replace(secret, f"0.{'A' * 22}"),
        "generation": link.replace(secret, f"1.{secret[2:]}"),
        "request": link.replace(page.split("/")[2], other_page.split("/")[2]),
        "empty": link.replace(secret, "0."),
        "garbage": link.replace(secret, "0.\u4e00%00"),
    }

    def no_read(request_id: str) -> int:
        raise AssertionError("a guess was looked up")

    monkeypatch.setattr(ticket_links, "_generation", no_read)
    guesser = Browser()
    answer = guesser.get(guesses[change])
    assert (answer.status_code, "link" in answer.cookies) == (404, False)
    monkeypatch.undo()
    assert Browser().get(link).status_code == 303


def test_a_replaced_link_and_the_browsers_it_opened_are_refused(card: SaleCard) -> None:
    owner, page = owner_of(card)
    old = owner.link(page)
    other = opened(old)
    assert other.get(page).status_code == 200
    assert owner.press(page, "link").status_code == 303
    assert other.get(page).status_code == 404
    for what in ("payment", "cancel"):
        token = other.client.cookies["csrftoken"].value
        assert other.client.post(f"{page}{what}/", {"csrfmiddlewaretoken": token}).status_code == 404
    assert Browser().get(old).status_code == 404
    assert owner.link(page) != old
    assert "It is yours" in opened(owner.link(page)).text(page)
    owner.press(page, "link")
    assert TicketLink.objects.get(pk=page.split("/")[2]).generation == 2


def test_a_browser_opened_by_the_link_cannot_replace_it(card: SaleCard) -> None:
    owner, page = owner_of(card)
    link = owner.link(page)
    other = opened(link)
    assert f'action="{page}link/"' not in other.text(page)
    token = other.client.cookies["csrftoken"].value
    assert other.client.post(f"{page}link/", {"csrfmiddlewaretoken": token}).status_code == 404
    assert owner.link(page) == link
    stranger, _ = buyers.issue_buyer()
    assert Browser(stranger).client.post(f"{page}link/", {}).status_code == 403


def test_another_buyer_keeps_what_is_theirs_and_sees_only_the_ticket_of_the_link(
    card: SaleCard, new_sku: Callable[[], str]
) -> None:
    owner, page = owner_of(card)
    other, own_page = owner_of(make_sale(new_sku(), units=1))
    _, third_page = owner_of(make_sale(new_sku(), units=1))
    token = other.client.cookies[buyers.COOKIE_NAME].value
    assert other.get(owner.link(page)).status_code == 303
    assert other.client.cookies[buyers.COOKIE_NAME].value == token
    assert ("You opened this ticket by its link" in other.text(page), other.get(own_page).status_code) == (True, 200)
    assert "You opened this ticket by its link" not in other.text(own_page)
    assert other.get(third_page).status_code == 404
    # The cookie of one ticket on the path of another: a browser would not send it, and it opens nothing.
    other.client.cookies["link"] = owner.link(page).split("/")[3]
    assert other.get(third_page).status_code == 404


def test_a_link_is_still_good_after_its_key_was_rotated(card: SaleCard, settings: Any) -> None:
    owner, page = owner_of(card)
    link = owner.link(page)
    try:
        settings.TOKEN_KEYS = ["a-new-key-of-32-characters------", *settings.TOKEN_KEYS]
        signer_for.cache_clear()
        assert owner.link(page) != link
        assert "It is yours" in opened(link).text(page)
        settings.TOKEN_KEYS = settings.TOKEN_KEYS[:1]
        signer_for.cache_clear()
        assert Browser().get(link).status_code == 404
    finally:
        signer_for.cache_clear()


def test_the_page_shows_the_link_as_text_and_as_a_drawing_and_stays_small(card: SaleCard) -> None:
    owner, page = owner_of(card)
    pay(page.split("/")[2])
    answer = owner.get(page)
    link = f"http://testserver{owner.link(page)}"
    assert ticket_links.qr_code(link) in answer.content.decode()
    assert len(answer.content) < TOO_LARGE_BYTES
    assert answer["Referrer-Policy"] == "same-origin"


@pytest.mark.parametrize("is_paid", [False, True], ids=["held", "paid"])
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_a_ticket_with_everything_on_it_is_small_with_its_scripts_and_its_style(
    card: SaleCard, settings: Any, language: str, is_paid: bool
) -> None:
    """As a browser that keeps nothing loads it: only the picture of the goods is the shop's own affair."""
    settings.MAIL_ON, settings.PUBLIC_URL = True, f"https://{'long-' * 10}shop.example"
    Sale.objects.filter(pk=card.sale_id).update(ships=True, title="长" * 80, title_zh="长" * 80)
    owner, page = owner_of(card)
    owner.client.cookies["language"] = language
    name = page.split("/")[2]
    sizes = {"name": 100, "lines": 300, "postcode": 20, "city": 100, "country": 80}
    deliveries.keep_address(name, {field: "长" * size for field, size in sizes.items()})
    mails.keep_address(name, f"{'a' * 60}@{'b' * 60}.example", language=language, root=settings.PUBLIC_URL)
    if is_paid:
        pay(name)
    shown = owner.get(page).content
    text = shown.decode()
    assert ("长" * 300 in text, "bbb.example" in text, "<svg" in text) == (True, True, True)
    parts = [Path(finders.find(each)).read_bytes() for each in loaded_by(text)]
    assert {"shop/ticket.js", "shop/press.js", "shop/shop.css"} <= set(loaded_by(text))
    print(f"{len(shown):,} bytes, with scripts, style and drawings {len(shown) + sum(map(len, parts)):,}")
    assert len(shown) + sum(map(len, parts)) < TOO_LARGE_BYTES


def loaded_by(text: str) -> list[str]:
    """Return the static files that a page names, each once."""
    return sorted(set(re.findall(r'(?:src|href)="/static/([^"]+)"', text)))


def test_the_public_address_of_the_shop_is_in_the_link(card: SaleCard, settings: Any) -> None:
    owner, page = owner_of(card)
    settings.PUBLIC_URL = "https://shop.example"
    assert "<code>https://shop.example/links/" in owner.text(page)


def test_no_log_has_the_secret() -> None:
    path = f"/links/2a-{'b' * 22}/0.{'c' * 22}/"
    line = HideSecrets([])(None, "", f'event="Not Found: {path}" request="GET {path}" n=1')
    shown = f"/links/2a-{'b' * 22}/.../"
    assert line == f'event="Not Found: {shown}" request="GET {shown}" n=1'
