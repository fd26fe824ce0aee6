"""A product's picture is a path that staff type. Whatever it says, every page is shown, with the files of production
and of development; and the form says what is wrong before it is saved. Uses the real servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.templatetags.static import static
from django.test import Client, override_settings

from inventory.models import Stock
from shop.models import Product
from shop.sales.catalogue import SaleCard
from shop.web import sale_presenter
from shop.web.sale_presenter import picture_url
from tests.integration.shop.staff.test_uploads import product_form
from tests.support.shopkeeping import make_sale
from tests.support.staff import browser_of

pytestmark = pytest.mark.usefixtures("shop_database")
PICTURE = "shop/products/lantern.svg"
WRONG = (
    "shop/products/lantern.swg", "products/lantern.svg", "/shop/products/lantern.svg", "shop/products/",
    "shop/products", "../settings.py", "../../../../etc/passwd", "https://example.org/kite.png", "kite.png?v=2", "#",
    "/", ".", "%00", "x" * 80, '"><script>', "C:\\kite.png", "shop/products/lantern.svg#x",
)  # fmt: skip
STORAGES = {
    "production": "shop.static_files.StaticFilesWithFingerprints",
    "development": "django.contrib.staticfiles.storage.StaticFilesStorage",
}


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the static files as a production image holds them."""
    root = tmp_path_factory.mktemp("static")
    with override_settings(STATIC_ROOT=root, STORAGES={"staticfiles": {"BACKEND": STORAGES["production"]}}):
        call_command("collectstatic", "--noinput", verbosity=0)
    return root


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, collected: Path) -> Iterator[str]:
    """Serve static files as production does, and as development does."""
    with override_settings(STATIC_ROOT=collected, STORAGES={"staticfiles": {"BACKEND": STORAGES[request.param]}}):
        yield request.param


@pytest.fixture
def sale(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=3)


def show_all(card: SaleCard, *, picture: str) -> list[str]:
    """Return the list, the sale and a ticket with that picture; each must be shown."""
    Product.objects.filter(slug=card.sku).update(picture=picture)
    client, page = Client(headers={"sec-fetch-site": "same-origin"}), f"/sales/{card.slug}/"
    answers = [client.get("/"), client.get(page)]
    answers.append(client.post(page, {"quantity": 1, "idempotency_key": "first-press"}, follow=True))
    assert [answer.status_code for answer in answers] == [200, 200, 200], picture
    return [answer.content.decode() for answer in answers]


def test_a_wrong_picture_takes_down_no_page(storage: str, sale: SaleCard) -> None:
    for picture in WRONG:
        for page in show_all(sale, picture=picture)[1:]:
            assert "Paper kite" in page
            assert '<img src="/static/shop/products' not in page, picture


def test_the_control_the_bare_path_takes_the_pages_of_production_down(
    storage: str, sale: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sale_presenter, "picture_url", static)
    if storage == "production":
        with pytest.raises(ValueError, match="Missing staticfiles manifest entry"):
            show_all(sale, picture=WRONG[0])
    else:
        assert f'<img src="/static/{WRONG[0]}"' in show_all(sale, picture=WRONG[0])[1]


def test_a_right_picture_is_shown_on_every_page(storage: str, sale: SaleCard) -> None:
    """The control: with the right path the same pages show it, in production by its hashed name."""
    address = picture_url(PICTURE)
    assert (address != f"/static/{PICTURE}") == (storage == "production")
    assert all(f'<img src="{address}"' in page for page in show_all(sale, picture=PICTURE))


def test_the_form_refuses_a_picture_that_does_not_exist(storage: str, sale: SaleCard) -> None:
    product, staff = Product.objects.get(slug=sale.sku), browser_of()
    for picture in WRONG:
        form = product_form(staff, product, title="Silk kite", picture=picture)
        answer = staff.post(f"/admin/shop/product/{product.pk}/change/", form)
        assert answer.status_code == 200, picture
        assert "There is no picture at" in answer.content.decode()
    assert Product.objects.get(pk=product.pk).title == "Paper kite"


@pytest.mark.parametrize("picture", ["", PICTURE])
def test_the_form_takes_a_picture_that_exists_and_none(storage: str, sale: SaleCard, picture: str) -> None:
    product, staff = Product.objects.get(slug=sale.sku), browser_of()
    form = product_form(staff, product, title="Silk kite", picture=picture)
    assert staff.post(f"/admin/shop/product/{product.pk}/change/", form).status_code == 302
    assert Product.objects.get(pk=product.pk).picture == picture


def test_a_new_product_is_asked_the_same(storage: str, sale: SaleCard) -> None:
    stock = Stock.objects.create(sku=f"{sale.sku}-new")
    form = {"slug": stock.sku, "title": "Kite", "list_price": "20", "stock": stock.pk, "picture": "kite.svg"}
    answer = browser_of().post("/admin/shop/product/add/", form)
    assert "There is no picture at kite.svg" in answer.content.decode()
    assert browser_of().post("/admin/shop/product/add/", {**form, "picture": PICTURE}).status_code == 302
