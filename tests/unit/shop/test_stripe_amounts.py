"""What Stripe is asked for is the price: in every currency, and back. Needs no server."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as some

from inventory.exceptions import InvalidRequest
from shop.payments.providers import check_price
from shop.sales import currencies
from shop.staff.setup.terms import CURRENCIES
from shop.stripe.amounts import (
    UNSUPPORTED,
    WHOLE_IN_HUNDREDTHS,
    WITH_THREE_DECIMALS,
    WITHOUT_DECIMALS,
    decimals_of,
    from_units,
    to_units,
)

HUNDREDTHS = ("EUR", "USD", "CNY", "HUF", "TWD")


@pytest.mark.parametrize(
    ("amount", "currency", "units"),
    [
        ("15.00", "EUR", 1500),
        ("0.01", "USD", 1),
        ("99999999.99", "CNY", 9999999999),
        ("1500.00", "JPY", 1500),
        ("1500", "KRW", 1500),
        ("15.00", "KWD", 15000),
        ("5.12", "BHD", 5120),
        ("40.00", "ISK", 4000),
        ("0.00", "EUR", 0),
    ],
)
def test_an_amount_in_stripes_units(amount: str, currency: str, units: int) -> None:
    assert to_units(Decimal(amount), currency=currency) == units
    assert from_units(units, currency=currency) == Decimal(amount)


@pytest.mark.parametrize(
    ("amount", "currency"), [("15.50", "JPY"), ("40.10", "ISK"), ("0.005", "EUR"), ("5.124", "KWD"), ("15.00", "UGX")]
)
def test_what_cannot_be_said_is_refused_and_never_rounded(amount: str, currency: str) -> None:
    with pytest.raises(InvalidRequest):
        to_units(Decimal(amount), currency=currency)


@pytest.mark.parametrize("units", [None, "1500", 15.0, True])
def test_only_a_whole_number_is_an_amount(units: object) -> None:
    with pytest.raises(InvalidRequest, match="whole number"):
        from_units(units, currency="EUR")


def test_no_currency_has_two_rules() -> None:
    kinds = (WITHOUT_DECIMALS, WITH_THREE_DECIMALS, WHOLE_IN_HUNDREDTHS, UNSUPPORTED)
    assert len(frozenset().union(*kinds)) == sum(map(len, kinds))


def test_stripe_reads_no_amount_otherwise_than_the_shop_writes_it() -> None:
    """But for two that have an own line in Stripe's list; what it does not list is refused."""
    found = {code for code in CURRENCIES - UNSUPPORTED if decimals_of(code) != currencies.decimals_of(code)}
    assert found == {"ISK", "MGA"}
    for code in UNSUPPORTED:
        with pytest.raises(InvalidRequest):
            to_units(Decimal(100), currency=code)


@given(
    some.integers(min_value=0, max_value=10**10),
    some.sampled_from([*HUNDREDTHS, *sorted(WITHOUT_DECIMALS | WITH_THREE_DECIMALS | WHOLE_IN_HUNDREDTHS)]),
)
def test_every_price_there_and_back_is_itself(cents: int, currency: str) -> None:
    price = Decimal(cents).scaleb(-2)
    try:
        units = to_units(price, currency=currency)
    except InvalidRequest:
        assert currency in WITHOUT_DECIMALS | WHOLE_IN_HUNDREDTHS
        assert price % 1
        return
    assert from_units(units, currency=currency) == price


@override_settings(PAYMENT_PROVIDERS={"stripe": "shop.stripe.provider.Stripe"})
@pytest.mark.parametrize(
    ("amount", "currency"),
    [("100", "UGX"), ("100", "IQD"), ("100", "IRR"), ("10.50", "ISK"), ("1500.50", "JPY"), ("1.50", "MGA")],
)
def test_no_price_is_offered_that_stripe_could_not_collect(amount: str, currency: str) -> None:
    with pytest.raises(InvalidRequest, match=f"no such amount in {currency}"):
        check_price(Decimal(amount), currency=currency)
    check_price(Decimal(amount), currency="EUR")
