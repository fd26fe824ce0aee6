"""Proves the preview of a sale: what buyers will see, from the form alone, with nothing written. Real servers."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, override_settings

from inventory.models import Stock, StockMovement
from shop.models import Product, Sale, StaffAct, TermsTemplate
from tests.integration.shop.staff.test_new_sale import ADD, filled
from tests.support.pictures import picture
from tests.support.shopkeeping import make_sale
from tests.support.staff import browser_of

pytestmark = pytest.mark.usefixtures("shop_database")
PREVIEW = f"{ADD}preview/"
WRITTEN = (Stock, StockMovement, Product, Sale, StaffAct, TermsTemplate)


@pytest.fixture(autouse=True)
def media(tmp_path: Path) -> Iterator[Path]:
    with override_settings(MEDIA_ROOT=str(tmp_path)):
        yield tmp_path


def shown(client: Client, form: dict[str, Any], *, path: str = PREVIEW) -> str:
    """Return the page of the sale inside the preview, which shows it twice and writes nothing."""
    before = [model.objects.count() for model in WRITTEN]
    answer = client.post(path, form)
    assert answer.status_code == 200
    assert [model.objects.count() for model in WRITTEN] == before
    pages = re.findall(r'<iframe [^>]*sandbox="allow-same-origin" srcdoc="([^"]*)"', answer.content.decode())
    assert len(pages) in (0, 2)
    return html.unescape(pages[0]) if pages else ""


def test_a_new_sale_is_shown_before_it_is_there(new_sku: Callable[[], str], media: Path) -> None:
    sku, client = new_sku(), browser_of("manager")
    form = filled(sku, picture="", upload=SimpleUploadedFile("kite.png", picture()), keep_terms_as="Ours")
    page = shown(client, form)
    for text in ("Tea set", "Six cups", "€49.00", "€90.00", "up to 2", "12 left", '<img src="data:image/webp;base64,'):
        assert text in page
    assert list(media.rglob("*")) == []
    # The control: saved, the page of the shop says the same.
    form["upload"] = SimpleUploadedFile("kite.png", picture())
    assert client.post(ADD, form).status_code == 302
    saved = Client().get(f"/sales/{sku}-drop/").content.decode()
    for text in ("Tea set", "Six cups", "€49.00", "€90.00", "up to 2", "12 left", '<img src="/pictures/'):
        assert text in saved


def test_a_sale_of_a_product_there_is_and_a_change_of_a_sale(new_sku: Callable[[], str]) -> None:
    client, card = browser_of("manager"), make_sale(new_sku(), units=3)
    product, sale = Product.objects.get(slug=card.sku), Sale.objects.get(slug=card.slug)
    only = {"product": product.pk, "sku": "", "units": "", "list_price": "", "tagline": "", "picture": ""}
    later = {"opens_at_0": "2100-01-01", "closes_at_0": "2100-01-02"}
    page = shown(client, filled(new_sku(), title="Kite, once more", price="7", **only, **later))
    assert "Kite, once more" in page
    assert "€20.00" in page
    form = {"title": "Silk kite", "seen_version": sale.revision, "price": "12", "currency": "EUR",
            "per_buyer_limit": 1, "hold_seconds": 60, "line_capacity": 5, **later,
            "opens_at_1": "00:00", "closes_at_1": "00:00"}  # fmt: skip
    assert "Silk kite" in shown(client, form, path=f"/admin/shop/sale/{sale.pk}/preview/")
    sale.refresh_from_db()
    assert sale.title == "Paper kite"


def test_it_shows_all_that_the_sales_page_will_show(new_sku: Callable[[], str]) -> None:
    """In Chinese, and with the field of a code; saved, the page has the same."""
    sku, client = new_sku(), browser_of("manager")
    client.cookies["language"] = "zh-hans"
    texts = {"title_zh": "茶具二", "tagline_zh": "六只杯", "description_zh": "来自景德镇"}
    form = filled(sku, description="From Jingdezhen", codes_required="on", **texts)
    reader = Client()
    reader.cookies["language"] = "zh-hans"
    page = shown(client, form)
    assert client.post(ADD, form).status_code == 302
    for each in (page, html.unescape(reader.get(f"/sales/{sku}-drop/").content.decode())):
        assert [text for text in (*texts.values(), 'name="code"') if text not in each] == []
        assert [text for text in ("Six cups", "From Jingdezhen") if text in each] == []


def test_a_form_that_cannot_be_saved_says_why(new_sku: Callable[[], str]) -> None:
    client = browser_of("manager")
    answer = client.post(PREVIEW, filled(new_sku(), currency="zz", units="", upload=SimpleUploadedFile("a", b"no")))
    text = html.unescape(answer.content.decode())
    for reason in ("ZZ is not a currency of ISO 4217.", "A new product needs it.", "This is not a picture"):
        assert reason in text
    assert "<iframe" not in text


def test_its_address_alone_leads_to_the_form(new_sku: Callable[[], str]) -> None:
    """The control is who may not change it: no way to the form is shown to them."""
    client, card = browser_of("manager"), make_sale(new_sku(), units=1)
    for form in (ADD, f"/admin/shop/sale/{card.sale_id}/change/"):
        answer = client.get(form.replace("/change/", "/") + "preview/", follow=True)
        assert answer.request["PATH_INFO"] == form
        assert 'name="title"' in answer.content.decode()
    assert browser_of("viewer").get(PREVIEW).status_code == 403


def test_what_is_typed_cannot_leave_the_frame(new_sku: Callable[[], str]) -> None:
    answer = browser_of("manager").post(
        PREVIEW, filled(new_sku(), title='"><script>alert(1)</script>', tagline="</iframe>")
    )
    text = answer.content.decode()
    assert "<script>alert(1)" not in text
    assert text.count("</iframe>") == 2
    assert "img-src 'self' data:" in answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    # The control: no other page lets a picture stand in the page itself.
    assert "data:" not in browser_of("manager").get(ADD).headers["Content-Security-Policy"]


def test_only_those_who_may_make_sales_see_a_preview(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=1)
    for role, status in (("viewer", 403), ("operator", 403), ("manager", 200)):
        for path in (PREVIEW, f"/admin/shop/sale/{card.sale_id}/preview/"):
            assert browser_of(role).post(path, {}).status_code == status
    assert Client().post(PREVIEW, {}).status_code == 302
    assert browser_of().post("/admin/shop/sale/0/preview/", {}).status_code == 404
