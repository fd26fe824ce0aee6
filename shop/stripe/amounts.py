"""Amounts as Stripe writes them: whole numbers of a currency's smallest unit, which is not always a hundredth.
Pure. Never rounds: an amount that Stripe cannot take is refused.
"""

from __future__ import annotations

from decimal import Decimal

from inventory.exceptions import InvalidRequest

# https://docs.stripe.com/currencies: these have no smaller unit, or a thousandth; all others a hundredth.
WITHOUT_DECIMALS = frozenset(
    {"BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA", "PYG", "RWF", "VND", "VUV", "XAF", "XOF", "XPF"}
)
WITH_THREE_DECIMALS = frozenset({"BHD", "JOD", "KWD", "OMR", "TND"})
# Written in hundredths, and whole all the same.
WHOLE_IN_HUNDREDTHS = frozenset({"ISK"})
# UGX is named both as one without decimals and as one in hundredths: a guess could charge a hundred times the price.
# The others are not on the list of currencies to charge in: a hold could never be paid.
UNSUPPORTED = frozenset(
    {"CUP", "ERN", "IQD", "IRR", "KPW", "LYD", "SDG", "SSP", "SYP", "TMT", "UGX", "VED", "VES", "ZWG"}
)


def decimals_of(currency: str) -> int:
    """Return how many decimals Stripe's amounts in `currency` have. Raises InvalidRequest when that is not certain."""
    if currency in UNSUPPORTED:
        raise InvalidRequest(f"amounts in {currency} cannot be collected by Stripe here")
    if currency in WITHOUT_DECIMALS:
        return 0
    return 3 if currency in WITH_THREE_DECIMALS else 2


def to_units(amount: Decimal, *, currency: str) -> int:
    """Return `amount` in Stripe's units. Raises InvalidRequest for one that they cannot say."""
    units = amount.scaleb(decimals_of(currency))
    step = 100 if currency in WHOLE_IN_HUNDREDTHS else 10 if currency in WITH_THREE_DECIMALS else 1
    if units % step:
        raise InvalidRequest(f"{amount} {currency} is not an amount that Stripe can collect")
    return int(units)


def from_units(units: int, *, currency: str) -> Decimal:
    """Return Stripe's `units` as an amount. Raises InvalidRequest as decimals_of, and for what is no whole number."""
    if type(units) is not int:
        raise InvalidRequest("an amount of Stripe's must be a whole number")
    return Decimal(units).scaleb(-decimals_of(currency))
