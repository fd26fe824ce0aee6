"""With nothing but the admin's password: a product with a picture and its sale, made, looked at before it is saved, and
seen by a buyer. Real Chromium, the real shop, no shell.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from shop.models import Product, Sale
from tests.journeys.visits import DESKTOP, Visit
from tests.support.pictures import SVG, picture
from tests.support.staff import new_user
from tests.support.waiting import wait_until

OpenVisit = Callable[..., Visit]
PASSWORD = "a long and secret password"
OPENS_IN = timedelta(minutes=3)


def log_in(visit: Visit) -> None:
    """Log in as a new manager, with a password and nothing else."""
    user = new_user("manager")
    user.set_password(PASSWORD)
    user.save()
    visit.go("/admin/")
    visit.page.get_by_label("Username").fill(user.username)
    visit.page.get_by_label("Password").fill(PASSWORD)
    visit.press("Log in")


def fill_in(visit: Visit, sku: str) -> None:
    """Fill in the form of a new product of 12 units and its sale, but for the picture and the password."""
    opens = timezone.now() + OPENS_IN
    fields = {
        "title": "Tea set", "slug": f"{sku}-drop", "sku": sku, "units": "12", "tagline": "Six cups", "price": "49",
        "currency": "EUR", "opens_at_0": f"{opens:%Y-%m-%d}", "opens_at_1": f"{opens:%H:%M:%S}",
        "closes_at_0": f"{opens + timedelta(days=2):%Y-%m-%d}", "closes_at_1": "00:00:00",
    }  # fmt: skip
    for name, text in fields.items():
        visit.page.locator(f"[name={name}]").fill(text)
        if name == "title":  # the form makes a slug of it, a moment after the field was left
            visit.page.locator("[name=title]").press("Tab")
            expect(visit.page.locator("[name=slug]")).to_have_value("tea-set")


def choose_file(visit: Visit, content: bytes, *, name: str = "tea.jpg") -> None:
    file = {"name": name, "mimeType": "image/jpeg", "buffer": content}
    visit.page.get_by_label("Picture").set_input_files(file)  # type: ignore[arg-type]


def is_shown(visit: Visit) -> bool:
    """Say whether the picture on the sale page was loaded and decoded."""
    return bool(
        visit.page.locator(".sale .pic img").evaluate("(image) => image.decode().then(() => image.naturalWidth)")
    )


@pytest.mark.usefixtures("shop_database")
def test_from_a_password_to_a_picture_that_a_buyer_sees(visit: OpenVisit, new_sku: Callable[[], str]) -> None:
    sku, manager = new_sku(), visit(viewport=DESKTOP)
    log_in(manager)
    manager.page.get_by_role("link", name="Sales", exact=True).first.click()
    manager.page.get_by_role("link", name="Add sale").first.click()
    fill_in(manager, sku)
    choose_file(manager, picture("JPEG", size=(1800, 1200)))
    with manager.context.expect_page() as opened:
        manager.press("Preview as buyers will see it")
    preview = opened.value
    for name, width in (("On a phone", 390), ("On a desk", 1280)):
        frame = preview.get_by_role("region", name=name).locator("iframe")
        inside = frame.content_frame
        expect(inside.get_by_role("heading", name="Tea set")).to_be_visible()
        assert inside.locator("html").evaluate("document.documentElement.scrollWidth") <= width
        assert inside.locator(".pic img").evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 1280
    assert not Sale.objects.filter(slug=f"{sku}-drop").exists()
    looked = Visit(manager.root, manager.context, preview)
    looked.check_page(preload=False)
    looked.picture("admin-preview")
    preview.close()
    manager.page.get_by_label("Your password, again").fill(PASSWORD)
    manager.press("Save and continue editing")
    manager.sees("was added successfully")
    buyer = visit()
    wait_until(lambda: "Tea set" in buyer.page.goto(f"{buyer.root}/sales/{sku}-drop/").text(), what="it is shown")
    buyer.sees("12")
    assert is_shown(buyer)
    assert buyer.page.locator(".sale .pic img").get_attribute("src") == f"/{Product.objects.get(slug=sku).picture}"
    buyer.picture("sale-with-upload")


@pytest.mark.usefixtures("shop_database")
def test_a_file_that_is_no_good_is_told_in_the_form_and_the_rest_stays(
    visit: OpenVisit, new_sku: Callable[[], str]
) -> None:
    sku, manager = new_sku(), visit(viewport=DESKTOP)
    log_in(manager)
    manager.go("/admin/shop/sale/add/")
    fill_in(manager, sku)
    manager.page.get_by_label("Your password, again").fill(PASSWORD)
    choose_file(manager, picture() + bytes(20 * 1024**2))
    expect(manager.page.get_by_role("alert")).to_have_text(
        "This file is too large to be sent: a picture may have 8 MB."
    )
    choose_file(manager, SVG)
    expect(manager.page.get_by_role("alert")).to_have_text("")
    manager.press("Save and continue editing")
    manager.sees("An SVG can carry scripts, so none is taken. Save the picture as PNG, JPEG or WebP.")
    manager.check_page(preload=False)
    manager.picture("admin-upload-refused")
    assert manager.page.locator("[name=title]").input_value() == "Tea set"
    choose_file(manager, b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR")
    manager.press("Save and continue editing")
    manager.sees("The picture is damaged: it cannot be read to its end.")
    choose_file(manager, picture())
    manager.press("Save and continue editing")
    manager.sees("was added successfully")


@pytest.mark.usefixtures("shop_database")
def test_kept_terms_fill_the_form_and_leave_the_rest(visit: OpenVisit, new_sku: Callable[[], str]) -> None:
    sku, manager = new_sku(), visit(viewport=DESKTOP)
    log_in(manager)
    manager.go("/admin/shop/sale/add/")
    fill_in(manager, sku)
    manager.page.locator("[name=per_buyer_limit]").fill("4")
    manager.page.get_by_label("Keep terms as").fill(f"Tea {sku}")
    manager.page.get_by_label("Your password, again").fill(PASSWORD)
    manager.press("Save and add another")
    manager.sees("was added successfully")
    manager.page.locator("[name=title]").fill("Another one")
    manager.page.get_by_role("link", name=f"Tea {sku}").click()
    for name, text in {"price": "49.00", "per_buyer_limit": "4", "title": "Another one"}.items():
        expect(manager.page.locator(f"[name={name}]")).to_have_value(text)
