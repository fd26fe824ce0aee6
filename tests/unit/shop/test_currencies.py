"""Amounts have the decimals of their currency, nothing is rounded away, and each language tells yen from yuan. Needs no
server.
"""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.utils import translation

from shop.sales.currencies import decimals_of, in_minor_units
from shop.web.sale_presenter import grouped, money

AMOUNTS = [
    ("1500.00", "JPY", "1500", "¥1,500"),
    ("1500.50", "JPY", "1500.5", "¥1,500.5"),
    ("0.00", "JPY", "0", "¥0"),
    ("1234.50", "CNY", "1234.50", "CN¥1,234.50"),
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


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        ("1500.00", "JPY", "JP¥1,500"),
        ("1234567.50", "CNY", "¥1,234,567.50"),
        ("1000000.00", "KRW", "1,000,000 KRW"),
        ("-1234.00", "EUR", "€-1,234.00"),
        ("2.50", "KWD", "2.500 KWD"),
    ],
)
def test_in_chinese_the_yen_has_the_longer_sign(amount: str, currency: str, shown: str) -> None:
    with translation.override("zh-hans"):
        assert money(Decimal(amount), currency=currency) == shown


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_yen_and_yuan_never_look_the_same(language: str) -> None:
    with translation.override(language):
        assert money(Decimal(1500), currency="JPY") != money(Decimal(1500), currency="CNY").removesuffix(".00")


def test_without_a_language_amounts_are_those_of_english() -> None:
    """As in a worker that translates nothing."""
    with translation.override(None):
        assert money(Decimal(1500), currency="CNY") == "CN¥1,500.00"


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_counts_have_groups_of_three_in_both_languages(language: str) -> None:
    with translation.override(language):
        assert [grouped(number) for number in (7, 999, 10_000, 1_234_567)] == ["7", "999", "10,000", "1,234,567"]


def test_most_currencies_have_two() -> None:
    assert [decimals_of(code) for code in ("EUR", "CNY", "JPY", "KWD", "ISK", "TND")] == [2, 2, 0, 3, 0, 3]
