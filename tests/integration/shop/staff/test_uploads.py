"""Proves the upload of pictures: what is no good picture is told so in the form and leaves nothing behind, what is good
becomes one kind of file that every page can show, and nobody's file outlives its use. Real servers, real files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client, override_settings
from PIL import Image

from inventory.models import Stock
from shop.models import Product, Sale
from shop.pictures import encoding
from shop.web.sale_presenter import picture_url
from tests.integration.shop.staff.test_new_sale import ADD, filled
from tests.support.pictures import bad_pictures, picture
from tests.support.shopkeeping import make_sale
from tests.support.staff import browser_of

pytestmark = pytest.mark.usefixtures("shop_database")
BAD = bad_pictures()
ODD_NAMES = {
    "a way up": b"../../../etc/cron.d/kite.png",
    "a NUL": b"kite\x00.png",
    "300 characters": b"k" * 300 + b".png",
    "chinese": "纸鸢.png".encode(),
    "another type": b"kite.svg",
    "no name of a type": b"kite",
    "windows": b"C:\\kite.png",
    "quotes": b"kite%22.png",
}


@pytest.fixture(autouse=True)
def media(tmp_path: Path) -> Iterator[Path]:
    """Keep pictures in a folder of the test; return it."""
    with override_settings(MEDIA_ROOT=str(tmp_path)):
        yield tmp_path


@pytest.fixture
def manager() -> Client:
    return browser_of("manager")


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def upload(client: Client, sku: str, content: bytes, *, name: str = "kite.png", **changes: Any) -> HttpResponse:
    """Send the form of a new sale with a picture."""
    return client.post(ADD, filled(sku, picture="", upload=SimpleUploadedFile(name, content), **changes))


def kept(product: Product) -> Image.Image:
    """Return the picture that is kept of a product."""
    with default_storage.open(product.picture) as file:
        return Image.open(BytesIO(file.read()))


def product_form(client: Client, product: Product, **changes: Any) -> dict[str, Any]:
    """Return what the form of a product sends that is opened now."""
    page = client.get(f"/admin/shop/product/{product.pk}/change/")
    values = {"slug": product.slug, "title": product.title, "list_price": "20", "picture": product.picture}
    return values | {"seen": page.context["adminform"].form["seen"].value()} | changes


def change(client: Client, product: Product, **changes: Any) -> HttpResponse:
    """Send the form of a product."""
    return client.post(f"/admin/shop/product/{product.pk}/change/", product_form(client, product, **changes))


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_good_picture_is_told_so_and_nothing_is_written(
    manager: Client, new_sku: Callable[[], str], media: Path, kind: str
) -> None:
    sku, (content, reason) = new_sku(), BAD[kind]
    answer = upload(manager, sku, content)
    assert answer.status_code == 200
    assert list(answer.context["adminform"].form.errors) == ["upload"]
    assert reason in answer.context["adminform"].form.errors["upload"][0]
    assert not Stock.objects.filter(sku=sku).exists()
    assert not Product.objects.filter(slug=sku).exists()
    assert not Sale.objects.filter(slug=f"{sku}-drop").exists()
    assert files_in(media) == []


def test_the_controls_a_good_picture_is_taken_and_the_bounds_are_what_refuses(
    manager: Client, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert upload(manager, new_sku(), picture()).status_code == 302
    many = picture(size=(8_000, 6_000), mode="1")
    assert upload(manager, new_sku(), many).status_code == 200
    monkeypatch.setattr(encoding, "MAX_PIXELS", 48_000_000)
    assert upload(manager, new_sku(), many).status_code == 302
    large = picture() + bytes(9 * 1024**2)
    assert upload(manager, new_sku(), large).status_code == 200
    monkeypatch.setattr(encoding, "MAX_FILE_BYTES", 10 * 1024**2)
    assert upload(manager, new_sku(), large).status_code == 302


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"mode": "L"}),
        ("JPEG", {"mode": "CMYK"}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("PNG", {"mode": "RGBA"}),
        ("PNG", {"mode": "LA"}),
        ("PNG", {"mode": "P", "transparency": 0}),
        ("PNG", {"mode": "1"}),
        ("PNG", {"mode": "I;16"}),
        ("WEBP", {"lossless": True}),
        ("PNG", {"size": (1, 1)}),
        ("PNG", {"size": (9_000, 2)}),
        ("JPEG", {"size": (3, 5_000)}),
    ],
)
def test_what_is_kept_is_a_small_webp_without_metadata(
    manager: Client, new_sku: Callable[[], str], media: Path, kind: str, options: dict[str, Any]
) -> None:
    sku, exif = new_sku(), Image.Exif()
    exif[0x010E], exif[0x8825] = "Where I live", {1: "N", 2: (52.0, 31.0, 0.0)}
    named = {"exif": exif} if kind == "JPEG" else {}
    assert upload(manager, sku, picture(kind, **options, **named)).status_code == 302
    product = Product.objects.get(slug=sku)
    assert files_in(media) == [product.picture]
    image = kept(product)
    assert (image.format, image.mode in ("RGB", "RGBA")) == ("WEBP", True)
    assert max(image.size) <= encoding.MAX_SIDE
    assert not image.getexif()
    assert not {"exif", "xmp", "icc_profile"} & image.info.keys()
    assert b"Where I live" not in (media / product.picture).read_bytes()


def test_a_photo_that_lies_on_its_side_stands_upright(manager: Client, new_sku: Callable[[], str]) -> None:
    sku, exif = new_sku(), Image.Exif()
    exif[0x0112] = 6  # turn it by a quarter to the right
    assert upload(manager, sku, picture("JPEG", size=(400, 200), exif=exif)).status_code == 302
    image = kept(Product.objects.get(slug=sku))
    assert image.size == (200, 400)
    # What was dark at the left is dark at the top.
    assert sum(image.getpixel((100, 20))[:3]) < 60 < sum(image.getpixel((100, 380))[:3])  # type: ignore[arg-type,index]


def test_a_deep_picture_keeps_its_light(manager: Client, new_sku: Callable[[], str]) -> None:
    """The control is Pillow's own conversion, which makes all of it white."""
    sku, deep, written = new_sku(), Image.new("I;16", (40, 40), 20_000), BytesIO()
    deep.save(written, "PNG")
    assert deep.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    assert upload(manager, sku, written.getvalue()).status_code == 302
    assert 60 <= kept(Product.objects.get(slug=sku)).getpixel((20, 20))[0] <= 100  # type: ignore[index]


@pytest.mark.parametrize("odd", ODD_NAMES)
def test_a_name_of_a_file_means_nothing(manager: Client, new_sku: Callable[[], str], media: Path, odd: str) -> None:
    sku, boundary = new_sku(), b"a-boundary"
    fields = {**filled(sku, picture=""), "opens_at_0": str(filled(sku)["opens_at_0"])}
    parts = [b'Content-Disposition: form-data; name="%b"\r\n\r\n%b' % (name.encode(), str(value).encode())
             for name, value in fields.items()]  # fmt: skip
    named = b'name="upload"; filename="%b"' % ODD_NAMES[odd]
    parts.append(b"Content-Disposition: form-data; %b\r\nContent-Type: image/png\r\n\r\n%b" % (named, picture()))
    body = b"".join(b"--%b\r\n%b\r\n" % (boundary, part) for part in parts) + b"--%b--\r\n" % boundary
    answer = manager.post(ADD, body, content_type="multipart/form-data; boundary=a-boundary")
    product = Product.objects.filter(slug=sku).first()
    assert answer.status_code == 302, answer.context["errors"]
    assert product is not None
    assert files_in(media) == [product.picture]
    assert picture_url(product.picture) == f"/{product.picture}"


def test_pages_show_it_and_the_browser_may_keep_it(manager: Client, new_sku: Callable[[], str]) -> None:
    sku = new_sku()
    assert upload(manager, sku, picture()).status_code == 302
    product = Product.objects.get(slug=sku)
    for path in ("/", f"/sales/{sku}-drop/"):
        assert f'<img src="/{product.picture}"' in Client().get(path).content.decode()
    answer = Client().get(f"/{product.picture}")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "image/webp"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "name", ["", "x.webp", "../secret", "..%2fsecret", "%00.webp", f"{'0' * 32}.svg", f"{'0' * 32}.webp%0a", "0" * 400]
)
def test_no_other_file_is_given_away(media: Path, name: str) -> None:
    (media / "secret").write_text("a key")
    (media / "pictures").mkdir()
    (media / "pictures" / "x.webp").write_text("not ours")
    assert Client().get(f"/pictures/{name}").status_code == 404


def test_a_picture_that_is_missing_breaks_no_page(manager: Client, new_sku: Callable[[], str], media: Path) -> None:
    sku = new_sku()
    assert upload(manager, sku, picture()).status_code == 302
    product = Product.objects.get(slug=sku)
    (media / product.picture).unlink()
    assert Client().get(f"/{product.picture}").status_code == 404
    assert [Client().get(path).status_code for path in ("/", f"/sales/{sku}-drop/")] == [200, 200]
    assert change(manager, product, title="Silk kite").status_code == 302


def test_the_picture_before_is_deleted_with_the_commit(new_sku: Callable[[], str], media: Path) -> None:
    client, card = browser_of(), make_sale(new_sku(), units=1)
    product = Product.objects.get(slug=card.sku)
    seen = []
    for _ in range(2):
        assert change(client, product, upload=SimpleUploadedFile("kite.png", picture())).status_code == 302
        product.refresh_from_db()
        assert files_in(media) == [product.picture]
        seen.append(product.picture)
    assert len(set(seen)) == 2
    # A form that is refused deletes nothing.
    assert change(client, product, title="", upload=SimpleUploadedFile("a.png", picture())).status_code == 200
    assert change(client, product, upload=SimpleUploadedFile("a.png", b"no")).status_code == 200
    assert files_in(media) == [product.picture]
    # Nor does one without a new picture; one that empties the path does.
    assert change(client, product, title="Silk kite").status_code == 302
    assert files_in(media) == [product.picture]
    assert change(client, product, picture="").status_code == 302
    assert files_in(media) == []


def test_a_static_picture_gives_way_and_comes_back(new_sku: Callable[[], str], media: Path) -> None:
    client, card, static = browser_of(), make_sale(new_sku(), units=1), "shop/products/lantern.svg"
    Product.objects.filter(slug=card.sku).update(picture=static)
    product = Product.objects.get(slug=card.sku)
    assert change(client, product, upload=SimpleUploadedFile("kite.png", picture())).status_code == 302
    product.refresh_from_db()
    assert files_in(media) == [product.picture]
    assert change(client, product, picture=static).status_code == 302
    assert files_in(media) == []
    assert Product.objects.get(pk=product.pk).picture == static


def test_nobody_names_the_picture_of_another_product(new_sku: Callable[[], str], media: Path) -> None:
    """Else the file would go with the first product that gives it up."""
    client = browser_of()
    first, second = (Product.objects.get(slug=make_sale(new_sku(), units=1).sku) for _ in range(2))
    assert change(client, first, upload=SimpleUploadedFile("kite.png", picture())).status_code == 302
    first.refresh_from_db()
    answer = change(client, second, picture=first.picture)
    assert list(answer.context["adminform"].form.errors) == ["picture"]
    answer = client.post(ADD, filled(new_sku(), picture=first.picture))
    assert list(answer.context["adminform"].form.errors) == ["picture"]
    assert files_in(media) == [first.picture]


def test_a_deleted_product_takes_its_picture_along(new_sku: Callable[[], str], media: Path) -> None:
    client = browser_of()
    stock = Stock.objects.create(sku=new_sku())
    form = {"slug": stock.sku, "title": "Kite", "list_price": "20", "stock": stock.pk}
    assert (
        client.post("/admin/shop/product/add/", form | {"upload": SimpleUploadedFile("a.png", picture())}).status_code
        == 302
    )
    product = Product.objects.get(slug=stock.sku)
    assert files_in(media) == [product.picture]
    assert client.post(f"/admin/shop/product/{product.pk}/delete/", {"post": "yes"}).status_code == 302
    assert files_in(media) == []


def test_a_storage_that_refuses_leaves_the_picture_from_before(new_sku: Callable[[], str], media: Path) -> None:
    client, card = browser_of(), make_sale(new_sku(), units=1)
    product = Product.objects.get(slug=card.sku)
    assert change(client, product, upload=SimpleUploadedFile("kite.png", picture())).status_code == 302
    product.refresh_from_db()
    with override_settings(MEDIA_ROOT=str(media / product.picture)):  # a file: nothing can be written below it
        answer = client.post(
            f"/admin/shop/product/{product.pk}/change/",
            product_form(client, product, title="Silk kite", upload=SimpleUploadedFile("a.png", picture())),
            follow=True,
        )
    assert "the picture could not be kept" in answer.content.decode()
    product.refresh_from_db()
    assert product.title == "Silk kite"
    assert files_in(media) == [product.picture]


def test_a_form_that_lay_open_takes_no_edit_and_no_picture_back(new_sku: Callable[[], str], media: Path) -> None:
    client, card = browser_of(), make_sale(new_sku(), units=1)
    product = Product.objects.get(slug=card.sku)
    stale = product_form(client, product, tagline="Six cups")
    file = SimpleUploadedFile("kite.png", picture())
    assert change(browser_of(), product, title="Silk kite", upload=file).status_code == 302
    answer = client.post(f"/admin/shop/product/{product.pk}/change/", stale)
    assert "This was changed after you had opened this page" in answer.content.decode()
    product.refresh_from_db()
    assert (product.title, product.tagline, files_in(media)) == ("Silk kite", "", [product.picture])
    assert change(client, product, tagline="Six cups").status_code == 302  # the control: opened again, it is saved
