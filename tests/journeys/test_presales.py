"""A presale in a real browser: the page counts down to the first opening and to everybody's, and then sells without a
code; staff send a list as a file.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.utils import timezone
from playwright.sync_api import expect

from shop.models import ListedEmail, Sale
from shop.sales.catalogue import SaleCard
from shop.sales.priming import prime_sale
from tests.journeys.visits import Visit

ADDRESSES = 5_000


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
