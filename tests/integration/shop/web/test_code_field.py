"""A browser without script keeps an access code that was typed before the opening: the page does not load itself again,
and has a button that works. No script runs here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from shop.access import codes
from shop.models import Sale
from shop.staff import sale_control
from tests.support.pages import key_in, make_kite_sale, page_of, text_of

pytestmark = pytest.mark.usefixtures("shop_database")
RELOADS = '<meta http-equiv="refresh"'
MakeSale = Callable[..., Sale]


@pytest.fixture
def make_sale(new_sku: Callable[[], str]) -> MakeSale:
    """Return a function that makes a sale that asks for a code, unless it is told otherwise."""
    return lambda **terms: make_kite_sale(new_sku(), **{"codes_required": True, **terms})


def button_in(page: HttpResponse) -> list[str]:
    """Return what stands on the buttons that a browser without script has at the field of the code."""
    return re.findall(r'<noscript>[^/]*<button class="button" form="buy">([^<]*)</button>', text_of(page))


def test_a_code_that_was_typed_before_the_opening_is_pressed_at_it(make_sale: MakeSale) -> None:
    sale, browser = make_sale(opens=30), Client()
    (code,) = codes.make_codes(sale.pk, number=1, uses=1, counts_units=False, batch="of a test")
    page = browser.get(page_of(sale))
    assert (RELOADS in text_of(page), button_in(page)) == (False, ["Get mine"])

    def press() -> HttpResponse:
        form = {"quantity": "1", "idempotency_key": key_in(page), "code": code}
        return browser.post(page_of(sale), form, headers={"sec-fetch-site": "same-origin"})

    early = press()
    assert (early.status_code, f'name="code" form="buy" value="{code}"' in text_of(early)) == (425, True)
    assert (RELOADS in text_of(early), button_in(early)) == (False, ["Get mine"])
    sale_control.open_now(sale.slug, actor="anna")
    assert press().status_code == 303


@pytest.mark.parametrize(
    ("terms", "says"),
    [({"opens": 30}, "so that your code stays"), ({"operator_state": "paused"}, "load it again to see whether")],
    ids=["scheduled", "paused"],
)
def test_a_page_with_that_field_waits_for_its_reader(make_sale: MakeSale, terms: dict[str, Any], says: str) -> None:
    shown = text_of(Client().get(page_of(make_sale(**terms))))
    assert (RELOADS in shown, says in shown, "opens by itself" in shown) == (False, True, False)
    # The control: a page without that field does.
    shown = text_of(Client().get(page_of(make_sale(**terms, codes_required=False))))
    assert (RELOADS in shown, says in shown) == (True, False)
