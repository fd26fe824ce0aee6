"""A browser without script shows that its buyer reads an address, and buys with the proof; forms need their token."""

from __future__ import annotations

import html
import re
import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from post_office.models import Email

from shop.access import lists
from shop.models import Sale
from shop.sales.catalogue import SaleCard
from tests.support.servers.faulty_caches import cache_without_writes
from tests.support.shopkeeping import make_sale

pytestmark = pytest.mark.usefixtures("shop_database")
CODE = re.compile(r"^[0-9A-Z]{4}-[0-9A-Z]{4}$", re.MULTILINE)


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """A sale that asks for an e-mail, and takes one request for each."""
    cache.delete_pattern("mail*")  # type: ignore[attr-defined]
    return make_sale(new_sku(), units=50, limit=5, email_mode="once")


@pytest.fixture
def address() -> str:
    """An address that no other test uses."""
    return f"ann-{secrets.token_hex(6)}@example.com"


def send(browser: Client, card: SaleCard, **fields: str) -> HttpResponse:
    return browser.post(f"/sales/{card.slug}/email/", fields)


def code_of(address: str) -> str:
    last = Email.objects.filter(to=address).last()
    assert last is not None
    assert not CODE.search(last.subject)
    found = CODE.search(last.message)
    assert found
    return found[0]


def press(browser: Client, card: SaleCard, key: str = "first-press") -> HttpResponse:
    form = {"quantity": "1", "idempotency_key": key}
    return browser.post(f"/sales/{card.slug}/", form, headers={"sec-fetch-site": "same-origin"})


def test_from_the_address_to_the_line(card: SaleCard, address: str) -> None:
    browser = Client()
    assert f"/sales/{card.slug}/email/".encode() in browser.get(f"/sales/{card.slug}/").content
    refused = press(browser, card)
    assert (refused.status_code, b"A verified e-mail address is needed here" in refused.content) == (403, True)
    sent = send(browser, card, address=address)
    assert (sent.status_code, b'name="code"' in sent.content) == (200, True)
    wrong = send(browser, card, address=address, code="WRONG")
    assert (wrong.status_code, b"That is not the code, or it has ended" in wrong.content) == (403, True)
    done = send(browser, card, address=address, code=code_of(address))
    assert (done.status_code, address.encode() in done.content) == (200, False)
    assert (done.cookies["email"]["path"], done.cookies["email"]["httponly"]) == (f"/sales/{card.slug}/", True)
    assert press(browser, card).status_code == 303
    again = press(browser, card, key="second-press")
    assert (again.status_code, b"Your e-mail address has had its request" in again.content) == (409, True)
    # The control: another one who did not verify.
    assert press(Client(), card).status_code == 403


def test_who_comes_back_from_the_mail_has_a_field_for_the_code(card: SaleCard, address: str) -> None:
    """The mail leads to the page, and a phone forgets one that it has left."""
    browser = Client()
    send(browser, card, address=address)
    page = browser.get(f"/sales/{card.slug}/email/").content.decode()
    form = next(form for form in page.split("<form")[1:] if 'name="code"' in form)
    assert re.findall(r'<input [^>]*name="(address|code)"', form) == ["address", "code"]
    done = send(browser, card, address=address, code=code_of(address))
    assert b"Your address is verified." in done.content


def test_what_is_no_address_is_said(card: SaleCard) -> None:
    said = send(Client(), card, address="rubbish")
    assert (said.status_code, b"That is not an e-mail address" in said.content) == (400, True)
    assert b'name="code"' not in said.content


def field(page: HttpResponse, name: str, *, form: int = 0) -> str:
    """Return a field of one of the forms of a page, with what is said of it."""
    text = html.unescape(page.content.decode()).split('<form method="post"')[form + 1]
    found = re.search(rf'<input [^>]*name="{name}".*?</label>', text)
    assert found
    return found[0]


def test_what_was_typed_stays_with_what_is_wrong_at_its_field(card: SaleCard, address: str) -> None:
    browser, typed = Client(), {"address": 'a"b@example', "code": "12AB-CD34"}
    refused = send(browser, card, **typed)
    assert (refused.status_code, b"<details open>" in refused.content) == (400, True)
    for name, value in typed.items():
        assert f'value="{value}"' in field(refused, name)
    assert "That is not an e-mail address" in field(refused, "address")
    send(browser, card, address=address)
    wrong = send(browser, card, address=address, code=typed["code"])
    assert f'value="{typed["code"]}" aria-invalid="true"' in field(wrong, "code")
    assert "That is not the code, or it has ended" in field(wrong, "code")
    assert f'value="{address}"' in field(wrong, "address", form=1)
    # The control: nothing is said of a field that nobody has filled in.
    for page in (browser.get(f"/sales/{card.slug}/email/"), send(browser, card, address=address)):
        assert b"aria-invalid" not in page.content


def test_too_many_mails_are_said(card: SaleCard, address: str) -> None:
    found = [send(Client(), card, address=address) for _ in range(4)]
    assert [each.status_code for each in found] == [200, 200, 200, 429]
    assert b"Too many mails were asked for" in found[-1].content


def test_a_mail_that_was_not_sent_is_not_asked_about(card: SaleCard, address: str) -> None:
    """The control is a code of a mail that was sent: it cannot be checked, and is asked for again."""
    browser = Client()
    with cache_without_writes():
        unsent = send(browser, card, address=address)
    assert (unsent.status_code, b'name="code"' in unsent.content) == (503, False)
    assert not Email.objects.filter(to=address).exists()
    send(browser, card, address=address)
    with cache_without_writes():
        unchecked = send(browser, card, address=address, code=code_of(address))
    assert (unchecked.status_code, f'value="{code_of(address)}">' in field(unchecked, "code")) == (503, True)


def test_a_form_of_another_site_mails_nothing(card: SaleCard, address: str) -> None:
    assert send(Client(enforce_csrf_checks=True), card, address=address).status_code == 403
    assert not Email.objects.filter(to=address).exists()


@pytest.mark.parametrize("is_listed", [True, False])
def test_the_page_of_a_presale_says_when_it_opens_for_this_address(
    is_listed: bool, card: SaleCard, address: str
) -> None:
    opens, public = (timezone.now() + timedelta(minutes=each) for each in (20, 40))
    Sale.objects.filter(pk=card.sale_id).update(opens_at=opens, public_at=public)
    lists.put_list(card.sale_id, [address if is_listed else "eve@example.com"], replaces=True)
    browser = Client()
    said = send(browser, card, address=address).content.decode()
    assert "says that the address is not on the list" in said
    page = send(browser, card, address=address, code=code_of(address)).content.decode()
    own = opens if is_listed else public
    assert f'data-until="{int(own.timestamp() * 1000)}"' in page
    assert ("It is on the list of this drop." in page) == is_listed


def test_without_a_presale_no_proof_is_given_for_what_is_not_listed(card: SaleCard, address: str) -> None:
    lists.put_list(card.sale_id, ["eve@example.com"], replaces=True)
    browser = Client()
    assert send(browser, card, address=address).status_code == 200
    last = Email.objects.filter(to=address).last()
    assert last is not None
    assert not CODE.search(last.message)
    assert press(browser, card).status_code == 403


def test_a_sale_that_asks_for_none_has_no_such_page(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=5)
    found: Any = Client().get(f"/sales/{card.slug}/email/")
    assert (found.status_code, found.url) == (302, f"/sales/{card.slug}/")
    assert b"e-mail address" not in Client().get(f"/sales/{card.slug}/").content


def test_the_page_speaks_chinese(card: SaleCard, address: str) -> None:
    browser = Client(headers={"accept-language": "zh-CN"})
    page = browser.get(f"/sales/{card.slug}/email/").content.decode()
    assert "邮箱" in page
    send(browser, card, address=address)
    last = Email.objects.filter(to=address).last()
    assert last is not None
    assert "验证码" in last.subject
