"""What somebody has typed and not sent yet outlives every change that the ticket page makes by itself, and so does the
place at which they type. On a phone and on a desk, in both languages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from shop.models import Contact, DeliveryAddress, Order, Sale
from shop.orders import holds
from shop.sales.catalogue import SaleCard
from tests.journeys.visits import DESKTOP, PHONE, Visit, take_all
from tests.support.shopkeeping import let_holds_end, pay
from tests.support.waiting import wait_until

MakeSale = Callable[..., SaleCard]
OpenVisit = Callable[..., Visit]
SCRIPT = Path(__file__).resolve().parents[2] / "shop" / "static" / "shop" / "ticket.js"
# What puts texts back; without it everything typed is lost.
GUARD = "if (before.value !== before.defaultValue) field.value = before.value;"
HOLDER = "holder-0000000000000000"  # of take_all
LOOKS = [{"viewport": PHONE}, {"viewport": DESKTOP, "locale": "zh-CN"}]


def without_guard(buyer: Visit) -> None:
    """Let this browser get a ticket.js that puts nothing back."""
    text = SCRIPT.read_text()
    assert text.count(GUARD) == 1
    altered = text.replace(GUARD, "")
    buyer.context.route("**/ticket*.js", lambda route: route.fulfill(body=altered, content_type="text/javascript"))


def field_of(buyer: Visit, name: str) -> Locator:
    return buyer.page.locator(f"[data-ticket] [name={name}]:not([type=hidden])")


def type_half_an_email_address(buyer: Visit) -> Locator:
    """Open the form of the e-mail address, and stop in the middle of typing one."""
    buyer.page.locator("details:has([name=address]) summary").click()
    field = field_of(buyer, "address")
    field.press_sequentially("ada@exa")
    return field


@pytest.mark.parametrize("terms", LOOKS, ids=["phone", "desktop-zh"])
def test_an_email_address_goes_on_where_it_was_when_the_hold_begins_and_ends(
    open_sale: MakeSale, visit: OpenVisit, terms: dict[str, object]
) -> None:
    card, buyer = open_sale(units=1), visit(**terms)
    holder = take_all(card)
    ticket = buyer.wait_in_line(card)
    field = type_half_an_email_address(buyer)
    holds.cancel(holder, buyer=HOLDER)
    buyer.sees_state("held")
    expect(field).to_have_value("ada@exa")
    expect(field).to_be_focused()
    buyer.page.keyboard.type("mple.c")
    let_holds_end(ticket)
    wait_until(lambda: Order.objects.filter(request_id=ticket, state="expired").exists(), what="the hold has ended")
    buyer.come_back()
    buyer.sees_state("expired")
    expect(field).to_have_value("ada@example.c")
    expect(field).to_be_focused()
    buyer.page.keyboard.type("om")
    buyer.check_page()
    buyer.picture(f"half-typed-{len(terms)}")
    field.press("Enter")
    expect(field).to_have_count(0)
    assert Contact.objects.get(request_id=ticket).address == "ada@example.com"


@pytest.fixture
def shipping(open_sale: MakeSale) -> SaleCard:
    """A sale whose goods are sent."""
    card = open_sale(units=1)
    Sale.objects.filter(pk=card.sale_id).update(ships=True)
    return card


@pytest.mark.parametrize("terms", LOOKS, ids=["phone", "desktop-zh"])
def test_a_delivery_address_is_as_it_was_typed_when_the_payment_comes(
    shipping: SaleCard, visit: OpenVisit, terms: dict[str, object]
) -> None:
    buyer = visit(**terms)
    ticket = buyer.get_one(shipping)
    field_of(buyer, "name").fill("李雷")
    lines = field_of(buyer, "lines")
    lines.press_sequentially("88 号\n3 楼 室")
    lines.press("ArrowLeft")
    pay(ticket)
    buyer.come_back()
    buyer.sees_state("paid")
    expect(field_of(buyer, "name")).to_have_value("李雷")
    expect(lines).to_be_focused()
    buyer.page.keyboard.type("1204 ")
    expect(lines).to_have_value("88 号\n3 楼 1204 室")
    buyer.give_address({"name": "李雷", "postcode": "100022", "city": "北京市", "country": "中国"})
    assert DeliveryAddress.objects.get(request_id=ticket).lines.splitlines() == ["88 号", "3 楼 1204 室"]


def test_the_control_without_its_guard_the_page_forgets_both(shipping: SaleCard, visit: OpenVisit) -> None:
    buyer = visit()
    without_guard(buyer)
    ticket = buyer.get_one(shipping)
    field_of(buyer, "name").fill("李雷")
    type_half_an_email_address(buyer)
    pay(ticket)
    buyer.come_back()
    buyer.sees_state("paid")
    for name in ("name", "address"):
        expect(field_of(buyer, name)).to_have_value("")


def test_one_who_types_nothing_is_still_led_to_what_is_theirs(open_sale: MakeSale, visit: OpenVisit) -> None:
    card, buyer = open_sale(units=1), visit()
    holder = take_all(card)
    buyer.wait_in_line(card)
    holds.cancel(holder, buyer=HOLDER)
    buyer.sees_state("held")
    expect(buyer.page.locator("[data-yours]")).to_be_focused()
    expect(buyer.page.locator("details[open]")).to_have_count(0)
