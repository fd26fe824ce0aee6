"""Amounts have the decimals of their currency, and nothing is rounded away. Needs no server."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.utils import translation

from shop.sales.currencies import decimals_of, in_minor_units
from shop.web.sale_presenter import money

AMOUNTS = [
    ("1500.00", "JPY", "1500", "¥1,500"),
    ("1500.50", "JPY", "1500.5", "¥1,500.5"),
    ("0.00", "JPY", "0", "¥0"),
    ("1000000.00", "KRW", "1000000", "1,000,000 KRW"),
    ("15.00", "EUR", "15.00", "€15.00"),
    ("-15.00", "EUR", "-15.00", "€-15.00"),
    ("0", "EUR", "0.00", "€0.00"),
    ("2.50", "KWD", "2.500", "2.500 KWD"),
    ("99999999.99", "USD", "99999999.99", "$99,999,999.99"),
]


@pytest.mark.parametrize(("amount", "currency", "exact", "shown"), AMOUNTS)
def test_an_amount_has_the_decimals_of_its_currency(amount: str, currency: str, exact: str, shown: str) -> None:
    assert str(in_minor_units(Decimal(amount), currency=currency)) == exact
    with translation.override("en"):
        assert money(Decimal(amount), currency=currency) == shown


def test_most_currencies_have_two() -> None:
    assert [decimals_of(code) for code in ("EUR", "CNY", "JPY", "KWD", "ISK", "TND")] == [2, 2, 0, 3, 0, 3]
