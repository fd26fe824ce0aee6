"""Says how many decimals the amounts of a currency have. Pure. Source: ISO 4217, list one, column "minor unit"."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

WITHOUT_DECIMALS = frozenset(
    {"BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF"}
)
WITH_THREE_DECIMALS = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})


def decimals_of(currency: str) -> int:
    """Return how many decimals amounts in `currency` (three letters) have: 0, 2 or 3."""
    if currency in WITHOUT_DECIMALS:
        return 0
    return 3 if currency in WITH_THREE_DECIMALS else 2


def is_whole(amount: Decimal, *, currency: str) -> bool:
    """Say whether `amount` is a whole number of the smallest unit of its currency."""
    return in_minor_units(amount, currency=currency).as_tuple().exponent == -decimals_of(currency)


# A shop has few prices, and an export has them 100,000 times.
@lru_cache(maxsize=1_000)
def in_minor_units(amount: Decimal, *, currency: str) -> Decimal:
    """Return `amount` with the decimals of its currency; more when it has more, so that nothing is ever rounded away.

    Amounts are stored with two decimals, whatever the currency: 1500.00 JPY is 1500.
    """
    decimals = decimals_of(currency)
    exact = amount.normalize()
    needed = -int(exact.as_tuple().exponent)
    return exact.quantize(Decimal(1).scaleb(-max(decimals, needed)))
