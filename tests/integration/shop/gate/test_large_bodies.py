"""Proves that a large body is taken from staff alone, for a form with a picture alone, within its bounds of size and
time; nobody else's is read. Real servers, the real web process.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from django.conf import settings
from django.test import Client

from inventory.models import Stock
from shop.http import MAX_PAGE_BYTES, MAX_UPLOAD_BYTES
from shop.models import Product
from tests.integration.shop.staff.test_new_sale import filled
from tests.support.http_calls import Answer, Caller
from tests.support.pictures import picture
from tests.support.servers.shop_processes import PATIENT_WEB, program_with, web_process
from tests.support.staff import browser_of

ADD = "/admin/shop/sale/add/"
PATIENCE = 120
FORM = "multipart/form-data; boundary=a-boundary"


@pytest.fixture(scope="module")
def web(lasting_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    # The last of several bodies may come later than the shop waits for one.
    folder = tmp_path_factory.mktemp("web")
    with web_process(lasting_environment, folder=folder, program=program_with(PATIENT_WEB)) as caller:
        yield caller


def cookies_of(client: Client) -> dict[str, str]:
    """Return the headers of a browser that has opened a form."""
    session, token = client.cookies[settings.SESSION_COOKIE_NAME].value, "t" * 32
    text = f"{settings.SESSION_COOKIE_NAME}={session}; {settings.CSRF_COOKIE_NAME}={token}"
    return {"Cookie": text, "X-CSRFToken": token}


def form_with(sku: str, content: bytes) -> bytes:
    """Return the body of the form of a new sale with a file in it."""
    fields = {**filled(sku, picture="")}
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    named = b'Content-Disposition: form-data; name="upload"; filename="kite.png"\r\nContent-Type: image/png'
    parts.append(named + b"\r\n\r\n" + content)
    return b"".join(b"--a-boundary\r\n" + part + b"\r\n" for part in parts) + b"--a-boundary--\r\n"


def head_of(web: Caller, body: bytes, headers: dict[str, str], *, path: str = ADD) -> bytes:
    fields = {"Host": f"127.0.0.1:{web.port}", "Content-Type": FORM, "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode()


def send(web: Caller, body: bytes, headers: dict[str, str], *, path: str = ADD) -> Answer:
    """POST a body as a browser does that reads an early answer."""
    return web.send_raw(head_of(web, body, headers, path=path) + body, timeout_seconds=PATIENCE)


def padded(body: bytes, length: int) -> bytes:
    """Return a body of a form with as many bytes more as make `length`, which nobody reads."""
    return body + bytes(length - len(body))


@pytest.mark.usefixtures("shop_database")
def test_a_large_body_is_taken_from_staff_alone(web: Caller, new_sku: Callable[[], str]) -> None:
    large = picture(size=(900, 600), mode="RGB") + bytes(3 * 1024**2)
    for role, status in (("viewer", 413), ("operator", 413), ("manager", 302)):
        sku = new_sku()
        answer = send(web, form_with(sku, large), cookies_of(browser_of(role)))
        assert answer.status == status, role
        assert Stock.objects.filter(sku=sku).exists() == (status == 302)
        if status == 302:
            path = Product.objects.get(slug=sku).picture
            assert web.get(f"/{path}").headers["content-type"] == "image/webp"
    for cookie in ("", f"{settings.SESSION_COOKIE_NAME}=stolen", f"{settings.SESSION_COOKIE_NAME}={'0' * 32}"):
        answer = send(web, form_with(new_sku(), large), {"Cookie": cookie})
        assert (answer.status, answer.json()["code"]) == (413, "too_large")


@pytest.mark.usefixtures("shop_database")
@pytest.mark.parametrize(
    "path",
    ["/", "/admin/", "/admin/login/", "/admin/shop/order/", "/admin/shop/sale/", "/admin/uploads/",
     "/admin/shop/product/1/delete/", "/admin/shop/product/add/x", "/pictures/x"],
)  # fmt: skip
def test_other_addresses_take_no_large_body_of_staff_either(web: Caller, path: str) -> None:
    body = bytes(MAX_PAGE_BYTES + 1)
    assert send(web, body, cookies_of(browser_of()), path=path).status in (404, 405, 413)
    assert web.get("/healthz").status == 200


@pytest.mark.usefixtures("shop_database")
def test_an_upload_has_a_bound_too(web: Caller, new_sku: Callable[[], str]) -> None:
    """The control is the same body with as many bytes as are taken: Django answers it."""
    headers, sku = cookies_of(browser_of("manager")), new_sku()
    body = form_with(sku, picture())
    for length in (MAX_UPLOAD_BYTES + 1, 20 * 1024**2):
        answer = send(web, padded(body, length), headers)
        assert (answer.status, answer.json()["code"]) == (413, "too_large")
    assert not Stock.objects.filter(sku=sku).exists()
    assert send(web, padded(body, MAX_UPLOAD_BYTES), headers).status in (302, 400)


@pytest.mark.usefixtures("shop_database")
def test_an_upload_that_breaks_off_writes_nothing(web: Caller, new_sku: Callable[[], str]) -> None:
    headers, sku = cookies_of(browser_of("manager")), new_sku()
    body = form_with(sku, picture() + bytes(1024**2))
    with socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE) as connection:
        connection.sendall(head_of(web, body, headers) + body[: len(body) // 2])
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert not Stock.objects.filter(sku=sku).exists()


@pytest.mark.usefixtures("shop_database")
def test_many_uploads_at_once_are_taken_one_after_the_other(web: Caller, new_sku: Callable[[], str]) -> None:
    """More than a process reads at a time; buyers are answered meanwhile."""
    headers, skus = cookies_of(browser_of("manager")), [new_sku() for _ in range(5)]
    with ExitStack() as running:
        opened = []
        for sku in skus:
            body = form_with(sku, picture() + bytes(2 * 1024**2))
            connection = running.enter_context(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE))
            connection.sendall(head_of(web, body, headers))
            opened.append((connection, body))
        assert web.get("/api/v1/sales").status == 200
        for connection, body in reversed(opened):
            connection.sendall(body)
        assert {connection.recv(12) for connection, _ in opened} == {b"HTTP/1.1 302"}
    assert Stock.objects.filter(sku__in=skus).count() == len(skus)
