"""Staff make access codes in bulk and see them once; who may not, sees nothing; each batch stands in the log."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from shop.access import codes
from shop.models import AccessCode, StaffAct
from shop.sales.catalogue import SaleCard
from tests.support.shopkeeping import make_sale
from tests.support.staff import ROLES, browser_of

pytestmark = pytest.mark.usefixtures("shop_database")
GIVEN = {"batch": "newsletter", "number": "25", "uses": "3", "counts_units": "units"}


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=3)


def address(card: SaleCard) -> str:
    return reverse("admin:shop_sale_codes", args=[card.sale_id])


def made(answer: HttpResponse) -> list[str]:
    text = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    return [row[0] for row in csv.reader(text.splitlines())]


@pytest.mark.parametrize("role", [*ROLES, "none"])
def test_only_managers_make_codes(card: SaleCard, role: str) -> None:
    browser, status = browser_of(role), 200 if role == "manager" else 403
    assert browser.get(address(card)).status_code == status
    assert browser.post(address(card), GIVEN).status_code == status
    assert AccessCode.objects.filter(sale_id=card.sale_id).exists() == (role == "manager")
    change = browser.get(reverse("admin:shop_sale_change", args=[card.sale_id]))
    assert (address(card).encode() in change.content) == (role == "manager")


def test_who_is_not_signed_in_is_sent_to_the_login(card: SaleCard) -> None:
    assert Client().get(address(card)).status_code == 302


def test_codes_are_shown_once_and_are_good(card: SaleCard) -> None:
    browser = browser_of("manager")
    answer = browser.post(address(card), GIVEN)
    assert answer["Content-Disposition"].startswith(f'attachment; filename="codes-{card.slug}')
    head, *found = made(answer)
    assert (head, len(found), len(set(found))) == ("code", 25, 25)
    assert all(re.fullmatch(r"(?:[0-9A-HJKMNP-TV-Z]{4}-?){3}", code) for code in found)
    assert codes._use(found[0], card, request_id=f"r-{card.sale_id}", quantity=2)
    page = browser.get(address(card)).content.decode()
    assert not any(code in page for code in found)
    assert "75 units" in page
    assert "<td>73</td>" in page
    act = StaffAct.objects.get(sale_id=card.sale_id)
    assert (act.act, act.reason, act.detail) == ("codes", "newsletter", "25 of 3 units")


BAD = ({"batch": ""}, {"number": "0"}, {"number": "10001"}, {"uses": "0"}, {"uses": "x"}, {"counts_units": "cups"},
       {"batch": "x" * 61}, {"uses": "1000001"})  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD)))
def test_a_form_that_is_wrong_makes_none(number: int, card: SaleCard) -> None:
    answer = browser_of("manager").post(address(card), GIVEN | BAD[number])
    assert answer.status_code == 400
    assert not AccessCode.objects.filter(sale_id=card.sale_id).exists()


def test_a_sale_that_there_is_not(card: SaleCard) -> None:
    assert browser_of("manager").get(reverse("admin:shop_sale_codes", args=[10**9])).status_code == 404
