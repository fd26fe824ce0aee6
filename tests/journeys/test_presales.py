"""A presale in a real browser: the page counts down to the first opening and to everybody's, and then sells without a
code; staff send a list as a file. The page of a proven address counts down too, also after its phone has slept.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from shop.access import lists
from shop.models import ListedEmail, Sale
from shop.sales.catalogue import SaleCard
from shop.sales.priming import prime_sale
from tests.integration.shop.web.test_email_pages import code_of
from tests.journeys.test_list_follows import leave_and_come_back, without_clock
from tests.journeys.visits import Visit
from tests.support.waiting import wait_until

ADDRESSES = 5_000
SLEPT_SECONDS = 300
# The clock by which a page counts stands still while its phone sleeps.
PHONE_THAT_SLEEPS = """
window.slept = 0;
const counted = performance.now.bind(performance);
performance.now = () => counted() - window.slept;
"""


def test_a_presale_becomes_everybodys_on_an_open_page(
    open_sale: Callable[..., SaleCard], visit: Callable[..., Visit]
) -> None:
    card, buyer = open_sale(units=5, opens_in_seconds=900), visit()
    now = timezone.now()
    Sale.objects.filter(pk=card.sale_id).update(codes_required=True, public_at=now + timedelta(seconds=1_200))
    prime_sale(card.slug)
    buyer.see_sale(card)
    buyer.sees("Opens with a code in")
    buyer.sees("Opens for everybody in")
    expect(buyer.page.locator(".timer")).to_have_count(2)
    buyer.check_page()
    Sale.objects.filter(pk=card.sale_id).update(
        opens_at=now - timedelta(seconds=5), public_at=now + timedelta(seconds=600)
    )
    prime_sale(card.slug)
    buyer.see_sale(card)
    expect(buyer.page.locator(".timer:visible")).to_have_count(1)
    buyer.check_page()
    buyer.press("Get mine")
    buyer.sees("An access code is needed here")
    Sale.objects.filter(pk=card.sale_id).update(public_at=timezone.now() + timedelta(seconds=3))
    prime_sale(card.slug)
    expect(buyer.page.locator(".timer")).to_have_count(0)
    buyer.press("Get mine")
    buyer.sees_state("held")


def test_staff_send_a_list_as_a_file(open_sale: Callable[..., SaleCard], staff: Callable[..., Visit]) -> None:
    """It is larger than a page may be: the gate takes it from staff for this page."""
    card, manager = open_sale(units=5, email_mode="once"), staff()
    text = "\n".join(f"buyer-{number}@example.com" for number in range(ADDRESSES))
    manager.go(f"/admin/shop/sale/{card.sale_id}/list/")
    file = {"name": "list.csv", "mimeType": "text/csv", "buffer": text.encode()}
    manager.page.get_by_label("Or a file").set_input_files(file)  # type: ignore[arg-type]
    manager.press("Change the list")
    manager.sees("5000 addresses are on the list.")
    assert ListedEmail.objects.filter(sale_id=card.sale_id).count() == ADDRESSES


def prove_address(buyer: Visit, card: SaleCard) -> None:
    """Show by a code from a mail that this buyer reads an address on the list of a sale."""
    address = f"ann-{secrets.token_hex(6)}@example.com"
    lists.put_list(card.sale_id, [address], replaces=True)
    buyer.go(f"/sales/{card.slug}/email/")
    buyer.page.locator("form.code:not(:has([name=code])) [name=address]").fill(address)
    buyer.press("Send me a code")
    buyer.page.locator("[name=code]").fill(code_of(address))
    buyer.press("Verify")
    buyer.sees("It is on the list of this drop.")


def seconds_late(buyer: Visit, card: SaleCard) -> float:
    """Return how many seconds the countdown of a page is behind."""
    minutes, seconds = map(int, buyer.page.locator(".timer").inner_text().split(":"))
    return minutes * 60 + seconds - (card.opens_at - timezone.now()).total_seconds()


@pytest.mark.parametrize("asks_again", [True, False])
def test_after_a_sleep_the_page_of_an_address_counts_by_the_server(
    asks_again: bool, open_sale: Callable[..., SaleCard], visit: Callable[..., Visit]
) -> None:
    """The control is the page without the address of the server's clock."""
    card, buyer = open_sale(units=5, opens_in_seconds=1_800, email_mode="once"), visit()
    if not asks_again:
        buyer.context.route("**/email/", without_clock)
    buyer.context.add_init_script(PHONE_THAT_SLEEPS)
    prove_address(buyer, card)
    expect(buyer.page.locator(".timer")).not_to_be_empty()  # it is filled in by a script
    wait_until(lambda: abs(seconds_late(buyer, card)) <= 2, what="it counts down")
    buyer.page.wait_for_load_state("networkidle")  # an ask that is under way during the sleep would be timed wrongly
    buyer.page.evaluate("seconds => { window.slept = 1000 * seconds; }", SLEPT_SECONDS)
    wait_until(lambda: seconds_late(buyer, card) > SLEPT_SECONDS - 2, what="the page has missed the sleep")
    leave_and_come_back(buyer)
    if asks_again:
        wait_until(lambda: abs(seconds_late(buyer, card)) <= 2, what="it counts from the server's moment")
    else:
        for _ in range(3):
            expect(buyer.page.locator(".timer")).not_to_have_text(buyer.page.locator(".timer").inner_text())
        assert seconds_late(buyer, card) > SLEPT_SECONDS - 2


def test_the_page_of_an_address_says_that_its_sale_is_open(
    open_sale: Callable[..., SaleCard], visit: Callable[..., Visit]
) -> None:
    card, buyer = open_sale(units=5, opens_in_seconds=1_800, email_mode="once"), visit()
    buyer.page.clock.install()
    prove_address(buyer, card)
    expect(buyer.page.locator(".timer")).to_be_visible()
    expect(buyer.page.get_by_text("Open now")).to_be_hidden()
    buyer.check_page()
    said = buyer.page.locator("[data-when=open]")
    wait_until(lambda: buyer.page.clock.fast_forward(600_000) or said.is_visible(), what="it says that it is open")
    expect(said).to_have_text("Open now")
    expect(buyer.page.locator(".timer")).to_be_hidden()
    expect(buyer.page.locator("[data-announce]")).to_have_text("Open now")
