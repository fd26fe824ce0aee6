"""One buyer whom everything happens to: they press offline, look at another tab while they wait, lose their cookies,
and go on with another device. They still pay, give the address the goods go to, and print the receipt on one page.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from shop.models import Order, Sale
from shop.orders.numbers import order_number
from shop.sales.catalogue import SaleCard
from tests.journeys.broken_networks import TRYING, charges_of, orders_of, payments_of, requests_in_books
from tests.journeys.visits import DESKTOP, HIDE, PHONE, SCREENS, Visit, take_all
from tests.support.shopkeeping import assert_books_balance, let_holds_end

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
ADDRESS = {
    "name": "Ada Lovelace",
    "lines": "12 St James's Square\nThird floor",
    "postcode": "SW1Y 4JH",
    "city": "London",
    "country": "United Kingdom",
}


def press_offline(buyer: Visit, card: SaleCard) -> None:
    """Press the button without a network; when it is back, the press leads to the ticket."""
    buyer.see_sale(card)
    expect(buyer.page.get_by_role("button", name="Join the line")).to_be_visible()  # it knows that the unit is taken
    buyer.context.set_offline(True)
    buyer.press("Join the line")
    buyer.sees(TRYING)
    buyer.context.set_offline(False)
    buyer.page.wait_for_url("**/requests/**")
    buyer.sees_state("waitlisted")


def pages_of(printed: bytes) -> int:
    """Return on how many pages a PDF is."""
    return len(re.findall(rb"/Type\s*/Page\b", printed))


def print_receipt(buyer: Visit, name: str) -> int:
    """Print the page as the browser does; return on how many pages it came out."""
    SCREENS.mkdir(parents=True, exist_ok=True)
    buyer.page.emulate_media(media="print")
    for text in (*ADDRESS["lines"].splitlines(), ADDRESS["city"], ADDRESS["country"]):
        expect(buyer.page.locator(".delivery address")).to_contain_text(text)
    for button in buyer.page.locator("button").all():
        expect(button).to_be_hidden()
    buyer.page.screenshot(path=SCREENS / f"{name}-print.png", full_page=True)
    printed = buyer.page.pdf(path=SCREENS / f"{name}.pdf", format="A4")
    buyer.page.emulate_media(media="screen")
    return pages_of(printed)


@pytest.mark.parametrize(
    ("first", "second"), [(PHONE, DESKTOP), (DESKTOP, PHONE)], ids=["phone-to-desktop", "desktop-to-phone"]
)
def test_a_buyer_who_loses_everything_but_the_link_pays_and_prints_the_receipt(
    open_sale: MakeSale, visit: OpenVisit, first: dict[str, int], second: dict[str, int]
) -> None:
    card, buyer, other = open_sale(units=1), visit(viewport=first), visit(viewport=second)
    Sale.objects.filter(pk=card.sale_id).update(ships=True)
    holder = take_all(card)
    press_offline(buyer, card)
    buyer.page.locator("details.keep summary").click()
    link = buyer.page.locator("details.keep code").inner_text()
    # Another tab is looked at; the title of this one says when the unit is theirs.
    buyer.page.evaluate(HIDE, True)
    let_holds_end(holder)
    expect(buyer.page).to_have_title(re.compile("^Yours: pay within"))
    # Their browser forgets who they are, and knows the ticket no more.
    buyer.context.clear_cookies()
    buyer.reload()
    expect(buyer.page.locator("h1")).to_be_visible()
    assert buyer.page.locator("[data-ticket]").count() == 0
    # Another device has nothing but the link.
    other.page.goto(link)
    other.sees_state("held")
    other.sees("Say where it goes, then you can pay.")
    other.check_page()
    other.give_address(ADDRESS)
    other.pay()
    other.sees_state("paid")
    order = Order.objects.get(request_id=other.request_id)
    expect(other.page.locator(".receipt code")).to_have_text(order_number(order.pk))
    assert print_receipt(other, f"receipt-{second['width']}") == 1
    assert requests_in_books(card) == 2
    assert (orders_of(card), payments_of(card), charges_of(card)) == (["expired", "paid"], ["captured"], ["captured"])
    assert_books_balance(card)


def test_the_control_two_printed_pages_are_counted_as_two(visit: OpenVisit, tmp_path: Path) -> None:
    reader = visit()
    reader.page.set_content('<p>one</p><p style="break-before: page">two</p>')
    assert pages_of(reader.page.pdf()) == 2
