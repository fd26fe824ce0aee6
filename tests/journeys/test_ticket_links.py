"""A ticket on another device, in a real browser: its link is copied by one press, opens elsewhere, pays there, and both
browsers show the receipt. With script and without, on a phone and on a desk, in both languages.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import zxingcpp
from PIL import Image
from playwright.sync_api import expect

from shop.models import Sale
from shop.sales.catalogue import SaleCard
from shop.sales.priming import prime_sale
from tests.journeys.visits import DESKTOP, PATIENCE_MS, PHONE, Visit, take_all
from tests.support.shopkeeping import let_holds_end

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]


def show_link(buyer: Visit) -> str:
    """Open the part of the ticket that shows its link; return the link."""
    buyer.page.locator("details.keep summary").click()
    expect(buyer.page.locator("details.keep .qr svg")).to_be_visible()
    return buyer.page.locator("details.keep code").inner_text()


def copy_link(buyer: Visit) -> str:
    """Copy the link by one press; return what is on the clipboard."""
    buyer.context.grant_permissions(["clipboard-read", "clipboard-write"])
    buyer.page.locator("[data-copy]").click()
    expect(buyer.page.locator("[data-copy]")).to_have_text("Link copied")
    copied: str = buyer.page.evaluate("navigator.clipboard.readText()")
    return copied


def read_codes(shown: Visit) -> list[str]:
    """Return what a reader of QR codes finds where the ticket draws its link, as it is on a screen."""
    picture = Image.open(io.BytesIO(shown.page.locator("details.keep .qr").screenshot()))
    return [code.text for code in zxingcpp.read_barcodes(picture)]


def test_a_copied_link_opens_the_ticket_on_another_device_which_pays_it(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer, other = open_sale(units=1), visit(viewport=PHONE), visit(viewport=DESKTOP)
    buyer.get_one(card)
    link = show_link(buyer)
    for scheme in ("dark", "light"):
        buyer.page.emulate_media(color_scheme=scheme)
        assert read_codes(buyer) == [link]
    buyer.check_page()
    buyer.picture("ticket-link")
    assert copy_link(buyer) == link
    other.page.goto(link)
    expect(other.page).to_have_url(buyer.page.url)
    assert other.page.evaluate("document.referrer") == ""
    other.sees_state("held")
    other.pay()
    for each in (other, buyer):
        each.reload()
        each.sees_state("paid")
        each.sees("This page is your receipt")
    show_link(other)
    other.sees("You opened this ticket by its link.")
    other.check_page()


def test_a_waiting_ticket_on_another_device_follows_its_turn(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer, other = open_sale(units=1), visit(), visit()
    holder = take_all(card)
    buyer.wait_in_line(card)
    other.page.goto(show_link(buyer))
    other.sees_state("waitlisted")
    other.page.evaluate("window.stayed = true")
    let_holds_end(holder)
    other.sees_state("held")
    assert other.page.evaluate("window.stayed")


def test_a_browser_whose_link_was_replaced_is_told_where_the_ticket_opens(
    open_sale: MakeSale, visit: OpenVisit
) -> None:
    card, buyer, other = open_sale(units=1), visit(), visit(locale="zh-CN")
    take_all(card)
    buyer.wait_in_line(card)
    other.page.goto(show_link(buyer))
    other.sees_state("waitlisted")
    buyer.press("Replace the link")
    buyer.page.wait_for_load_state()
    other.sees("这张票不属于此浏览器。")
    other.page.reload()
    other.sees("这张票不属于此浏览器。")


def open_second_in_line(card: SaleCard, open_visit: OpenVisit) -> tuple[Visit, Visit]:
    """Let two wait; return the first, and a browser that opened the ticket of the second by its link."""
    ahead, buyer, other = open_visit(), open_visit(), open_visit()
    take_all(card)
    ahead.wait_in_line(card)
    buyer.wait_in_line(card)
    other.page.goto(show_link(buyer))
    return ahead, other


def test_a_new_title_appears_on_a_ticket_that_waits(open_sale: MakeSale, visit: OpenVisit) -> None:
    card = open_sale(units=1)
    ahead, other = open_second_in_line(card, visit)
    expect(other.page).to_have_title("2 · Paper kite · Fairdrop")
    Sale.objects.filter(pk=card.sale_id).update(title="Silk kite")
    prime_sale(card.slug)
    ahead.page.locator(".acts summary").click()
    ahead.press("Leave the line")
    expect(other.page).to_have_title("1 · Silk kite · Fairdrop", timeout=PATIENCE_MS)
    expect(other.page.locator("h2 a")).to_have_text("Silk kite")


def test_what_is_open_and_in_focus_stays_while_the_place_moves(open_sale: MakeSale, visit: OpenVisit) -> None:
    """A ticket opened by its link asks for its whole page each time."""
    ahead, other = open_second_in_line(open_sale(units=1), visit)
    expect(other.page.locator("[data-place]")).to_have_text("2")
    other.page.locator(".acts summary").click()
    leave = other.page.get_by_role("button", name="Leave the line for good")
    leave.focus()
    ahead.page.locator(".acts summary").click()
    ahead.press("Leave the line for good")
    expect(other.page.locator("[data-place]")).to_have_text("1")
    expect(leave).to_be_focused()
    alert = other.page.get_by_role("button", name="Alert me when it is mine")
    expect(alert).to_be_visible()


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP])
def test_without_script_the_link_is_text_and_works(
    open_sale: MakeSale, visit: OpenVisit, viewport: dict[str, int]
) -> None:
    terms = {"java_script_enabled": False, "locale": "zh-CN", "viewport": viewport}
    card, buyer, other = open_sale(units=1), visit(**terms), visit(**terms)
    buyer.get_one(card)
    buyer.sees("保存此票")
    link = show_link(buyer)
    expect(buyer.page.locator("[data-copy]")).to_be_hidden()
    buyer.picture("ticket-link-zh-no-script")
    other.page.goto(link)
    other.sees_state("held")
    buyer.page.locator("details.keep form button").click()
    expect(buyer.page.locator("details.keep code")).not_to_have_text(link)  # the shop has made another
    replaced = show_link(buyer)
    assert read_codes(buyer) == [replaced]
    other.reload()
    expect(other.page.locator("h1")).to_be_visible()
    assert other.page.locator("[data-ticket]").count() == 0


@pytest.mark.parametrize(("locale", "name"), [("en-GB", "My tickets"), ("zh-CN", "我的票")])
def test_my_tickets_is_a_press_away_and_leads_back(
    open_sale: MakeSale, visit: OpenVisit, locale: str, name: str
) -> None:
    held, full, buyer = open_sale(units=1), open_sale(units=1), visit(locale=locale)
    take_all(full)
    ticket = buyer.get_one(held)
    waiting = buyer.wait_in_line(full)
    buyer.page.get_by_role("link", name=name, exact=True).click()
    buyer.page.wait_for_url("**/tickets/")
    expect(buyer.page.locator(".mine li")).to_have_count(2)
    assert [waiting in buyer.page.content(), ticket in buyer.page.content()] == [True, True]
    buyer.check_page()
    buyer.picture(f"my-tickets-{locale}")
    buyer.page.locator(".mine a").last.click()
    buyer.page.wait_for_url(f"**/requests/{ticket}/")
    buyer.check_page()


@pytest.mark.parametrize("terms", [{}, {"locale": "zh-CN", "java_script_enabled": False, "viewport": DESKTOP}])
def test_an_address_on_the_ticket_brings_the_link(open_sale: MakeSale, visit: OpenVisit, terms: dict[str, Any]) -> None:
    card, buyer, other = open_sale(units=1), visit(**terms), visit()
    ticket = buyer.get_one(card)
    address = f"ada-{ticket[-6:].strip('-_')}@example.com"
    buyer.page.locator("details:has([type=email]) summary").click()
    buyer.page.locator("[type=email]").fill(address)
    buyer.picture(f"ticket-mail-{len(terms)}")
    if not terms:
        buyer.check_page()
    buyer.page.locator("form:has([type=email]) button").click()
    buyer.sees(address)
    other.go("/mailbox/")
    other.page.locator("li", has_text=address).locator("a").first.click()
    other.sees_state("held")
    assert other.request_id == ticket
    if not terms:
        other.go("/mailbox/")
        other.check_page()
        other.picture("mailbox")
        other.page.locator("li", has_text=address).locator("a").last.click()
        other.check_page()
        other.page.locator("main button").click()
        other.sees("Your address was deleted.")
        buyer.reload()
        expect(buyer.page.get_by_text(address)).to_have_count(0)
