"""Staff put a list of e-mail addresses to a sale, pasted or as a file; nobody reads it again. The form of a sale says
from when it is everybody's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.test.utils import override_settings
from django.urls import reverse

from shop.access import lists
from shop.models import ListedEmail, Sale, StaffAct
from shop.sales import catalogue
from shop.sales.catalogue import SaleCard
from shop.staff import retiring, sale_control
from shop.staff.setup import list_page
from tests.support.shopkeeping import make_sale
from tests.support.staff import ROLES, browser_of

pytestmark = pytest.mark.usefixtures("shop_database")
PASTED = {"act": "extend", "pasted": "ann@example.com\n\n  BOB+x@Example.com \nann@EXAMPLE.com"}


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=3, email_mode="once")


def address(card: SaleCard) -> str:
    return reverse("admin:shop_sale_list", args=[card.sale_id])


def listed(card: SaleCard) -> int:
    return ListedEmail.objects.filter(sale_id=card.sale_id).count()


def file_of(text: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile("list.csv", text, content_type="text/csv")


@pytest.mark.parametrize("role", [*ROLES, "none"])
def test_only_managers_see_and_change_a_list(card: SaleCard, role: str) -> None:
    browser, may = browser_of(role), role == "manager"
    assert browser.get(address(card)).status_code == (200 if may else 403)
    assert browser.post(address(card), PASTED).status_code == (302 if may else 403)
    assert listed(card) == (2 if may else 0)
    change = browser.get(reverse("admin:shop_sale_change", args=[card.sale_id]))
    assert (address(card).encode() in change.content) == may


def test_who_is_not_signed_in_is_sent_to_the_login(card: SaleCard) -> None:
    assert Client().get(address(card)).status_code == 302


def test_a_list_is_counted_and_never_shown(card: SaleCard) -> None:
    browser = browser_of("manager")
    browser.post(address(card), PASTED)
    page = browser.get(address(card)).content.decode()
    assert "2 addresses are on the list." in page
    kept = str([vars(each) for each in ListedEmail.objects.filter(sale_id=card.sale_id)])
    acts = str([vars(each) for each in StaffAct.objects.filter(sale_id=card.sale_id)])
    shown = f"{page} {kept} {acts}".lower()  # a token of the page may hold any three letters, but no sign
    assert not any(part in shown for part in ("ann@", "bob@", "bob+"))
    assert lists.is_listed("bob@example.com", card)
    assert not lists.is_listed("eve@example.com", card)
    act = StaffAct.objects.get(sale_id=card.sale_id)
    assert (act.act, act.detail) == ("email_list", "extend: 2 addresses")


def test_a_list_grows_is_replaced_and_taken_away(card: SaleCard) -> None:
    browser = browser_of("manager")
    browser.post(address(card), PASTED)
    browser.post(
        address(card), {"act": "extend", "upload": file_of(b"\xef\xbb\xbfeve@example.com\r\nann@example.com\r\n")}
    )
    assert listed(card) == 3
    browser.post(address(card), {"act": "replace", "upload": file_of(b"dan@example.com")})
    assert (listed(card), lists.is_listed("ann@example.com", card)) == (1, False)
    assert catalogue.find_sale(card.slug).email_list
    browser.post(address(card), {"act": "take away"})
    assert (listed(card), catalogue.find_sale(card.slug).email_list) == (0, "")


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"pasted": "ann@example.com\nrubbish\nmore rubbish"}, "Line 2 is not taken"),
    ({"pasted": 'ann@example.com\n\n"a b"@example.com'}, "Line 3 is not taken"),
    ({"pasted": ""}, "Paste addresses or choose a file"),
    ({"pasted": " \n "}, "Paste addresses or choose a file"),
    ({"pasted": "ann@example.com", "act": "take away"}, "Paste addresses or choose a file"),
    ({"pasted": "ann@example.com", "act": "burn"}, "burn"),
    ({"upload": b"ann@example.com\n\xff\xfe"}, "no text in UTF-8"),
    ({"upload": b"\n \n"}, "There is no address in it"),
    ({"upload": b"ann@example.com", "pasted": "bob@example.com"}, "not both"),
    ({"upload": b"x" * (4 * 1024 * 1024 + 1)}, "too large"),
    ({"upload": b"\n".join(b"a%d@example.com" % number for number in range(21))}, "at most 20"),
)


@pytest.mark.parametrize("number", range(len(BAD)))
def test_what_is_no_list_is_said_and_changes_nothing(
    number: int, card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MAX_ADDRESSES", 20)
    given, says = BAD[number]
    if "upload" in given:
        given = {**given, "upload": file_of(given["upload"])}
    answer = browser_of("manager").post(address(card), {"act": "extend", **given})
    assert (answer.status_code, says in answer.content.decode()) == (400, True)
    assert b"more rubbish" not in answer.content.split(b"<textarea")[0]
    assert (listed(card), Sale.objects.get(pk=card.sale_id).email_list) == (0, "")


def test_a_list_has_so_many_addresses_at_most(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_ADDRESSES", 3)
    browser = browser_of("manager")
    browser.post(address(card), PASTED)
    more = browser.post(address(card), {"act": "extend", "pasted": "x@example.com\ny@example.com"})
    assert (more.status_code, listed(card)) == (400, 2)


def test_a_sale_that_asks_for_no_email_has_no_list(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=3)
    answer = browser_of("manager").post(address(card), PASTED)
    assert (answer.status_code, listed(card)) == (400, 0)
    assert b"asks for no verified e-mail yet" in answer.content


def test_a_sale_that_is_retired_has_no_list_any_more(card: SaleCard) -> None:
    browser = browser_of("manager")
    browser.post(address(card), PASTED)
    sale_control.close(card.slug, actor="ada")
    retiring.retire(card.slug, actor="ada")
    assert listed(card) == 0
    assert browser.post(address(card), PASTED).status_code == 400


def test_the_page_speaks_chinese(card: SaleCard) -> None:
    page = browser_of("manager").get(address(card), headers={"accept-language": "zh-CN"})
    assert "邮箱地址" in page.content.decode()


def change(browser: Client, card: SaleCard, **fields: str) -> Any:
    """Send the form of a sale as it is shown, but for `fields`."""
    url = reverse("admin:shop_sale_change", args=[card.sale_id])
    form = browser.get(url).context["adminform"].form
    sent: dict[str, Any] = {}
    for bound in form:
        value = bound.value()
        if isinstance(value, list) or hasattr(bound.field.widget, "widgets"):
            parts = bound.field.widget.decompress(value) if value else (None, None)
            sent |= {f"{bound.html_name}_{at}": str(part) for at, part in enumerate(parts) if part is not None}
        elif value not in (None, False):
            sent[bound.html_name] = "on" if value is True else str(value)
    return browser.post(url, {**sent, **fields})


def moment(card: SaleCard, **after_opening: float) -> dict[str, str]:
    at = card.opens_at + timedelta(**after_opening)
    return {"public_at_0": f"{at:%Y-%m-%d}", "public_at_1": f"{at:%H:%M:%S}"}


@pytest.mark.parametrize(
    ("fields", "hours", "says"),
    [
        ({"codes_required": "on"}, 0.5, ""),
        ({}, 0.5, "Only for a sale with a list of e-mail addresses or with access codes."),
        ({"codes_required": "on"}, -1, "It must be after the sale opens, and before it closes."),
        ({"codes_required": "on"}, 24, "It must be after the sale opens, and before it closes."),
    ],
)
def test_a_sale_is_everybodys_from_a_moment_within_it(
    card: SaleCard, fields: dict[str, str], hours: float, says: str
) -> None:
    with override_settings(MAIL_ON=True):
        answer = change(browser_of("manager"), card, **fields, **moment(card, hours=hours))
    assert answer.status_code == (200 if says else 302), answer.content.decode()
    assert says in answer.content.decode()
    assert (catalogue.find_sale(card.slug).public_at is None) == bool(says)


def test_a_list_may_have_a_presale_and_neither_is_left_without_the_other(card: SaleCard) -> None:
    browser = browser_of("manager")
    browser.post(address(card), PASTED)
    with override_settings(MAIL_ON=True):
        assert change(browser, card, **moment(card, hours=0.5)).status_code == 302
        never = change(browser, card, email_mode="never")
    assert b"take the list away first" in never.content
    kept = browser.post(address(card), {"act": "take away"})
    assert (kept.status_code, listed(card)) == (400, 2)


def test_a_large_list_is_kept(card: SaleCard) -> None:
    many = b"\n".join(b"buyer-%d@example.com" % number for number in range(lists.MAX_ADDRESSES))
    assert len(many) < list_page.MAX_FILE_BYTES
    assert browser_of("manager").post(address(card), {"act": "replace", "upload": file_of(many)}).status_code == 302
    assert listed(card) == lists.MAX_ADDRESSES
