"""Terms of a sale: the bounds that every form of them has, and terms that are kept under a name to begin a sale with.
A sale copies them: to change or delete what was kept changes no sale.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.utils import translation
from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy

from inventory.exceptions import InvalidRequest
from shop.models import Sale, TermsTemplate
from shop.names.changes import VALUES, TellsChanges, change_in_words
from shop.orders.requests import MAX_UNITS
from shop.payments import providers

TERMS = ("price", "currency", "per_buyer_limit", "hold_seconds", "line_capacity")


@dataclass(frozen=True)
class Bounds:
    """What a number of a form may be, and why, as the end of a sentence."""

    minimum: int
    maximum: int
    why: Promise

    def check(self, value: int) -> None:
        """Raise ValidationError, which says why, for a number out of bounds."""
        if not self.minimum <= value <= self.maximum:
            named = {"least": f"{self.minimum:,}", "most": f"{self.maximum:,}", "why": self.why}
            raise forms.ValidationError(gettext("Between %(least)s and %(most)s: %(why)s") % named)


BOUNDS = {
    "per_buyer_limit": Bounds(1, MAX_UNITS, gettext_lazy("nobody can ask for less, or for more at once.")),
    "hold_seconds": Bounds(
        5,
        23 * 3600,
        gettext_lazy("nobody pays faster, and payment providers end within a day what was not paid."),
    ),
    "line_capacity": Bounds(0, 1_000_000, gettext_lazy("each request in line takes memory of Redis.")),
    "units": Bounds(
        1,
        1_000_000,
        gettext_lazy("a sale needs something to sell, and a larger number is most likely a slip. Restock adds more."),
    ),
}
# The active currencies of ISO 4217 (list one), without funds, metals and testing codes.
_CODES = (
    "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY "
    "COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR "
    "ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK "
    "MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF "
    "SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU "
    "UZS VED VES VND VUV WST XAF XCD XOF XPF YER ZAR ZMW ZWG"
)
CURRENCIES = frozenset(_CODES.split())
HELP = {
    "price": gettext_lazy("What one unit costs in this sale."),
    "currency": gettext_lazy("Three letters, like EUR."),
    "per_buyer_limit": gettext_lazy("How many units one buyer may have in this sale."),
    "hold_seconds": gettext_lazy("How long a buyer has to pay before the units go to the next in line."),
    "line_capacity": gettext_lazy("How many requests may wait in line beyond the stock, for units that come back."),
}
LABELS = {
    "per_buyer_limit": gettext_lazy("Limit per buyer"),
    "hold_seconds": gettext_lazy("Hold time in seconds"),
    "line_capacity": gettext_lazy("Line capacity"),
}


def check_price(price: Decimal) -> Decimal:
    """Return a price. Raises ValidationError, which says why, for one below nothing."""
    if price < 0:
        raise forms.ValidationError(gettext("It cannot be less than 0: the shop would pay its buyers."))
    return price


class TermsForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form with the terms of a sale, each within its bounds."""

    def clean_currency(self) -> str:
        """Return the code of the currency. Raises ValidationError for what is none."""
        code: str = self.cleaned_data["currency"].upper()
        if code not in CURRENCIES:
            raise forms.ValidationError(gettext("%(code)s is not a currency of ISO 4217.") % {"code": code})
        return code

    def clean_price(self) -> Decimal:
        """Return the price. Raises ValidationError for one below nothing."""
        return check_price(self.cleaned_data["price"])

    def clean(self) -> dict[str, Any]:
        """Refuse a price that nobody could pay, unless it is there already."""
        data = super().clean() or self.cleaned_data
        if {"price", "currency"} <= data.keys() and {"price", "currency"} & set(self.changed_data):
            try:
                providers.check_price(data["price"], currency=data["currency"])
            except InvalidRequest as error:
                self.add_error("price", error.detail)
        return data

    def clean_per_buyer_limit(self) -> int:
        """Return the limit. Raises ValidationError out of bounds."""
        return self._bounded("per_buyer_limit")

    def clean_hold_seconds(self) -> int:
        """Return the hold time. Raises ValidationError out of bounds."""
        return self._bounded("hold_seconds")

    def clean_line_capacity(self) -> int:
        """Return the line capacity. Raises ValidationError out of bounds."""
        return self._bounded("line_capacity")

    def _bounded(self, name: str) -> int:
        value: int = self.cleaned_data[name]
        # What a sale has already is no mistake of the person who changes something else.
        if value != getattr(self.instance, name):
            BOUNDS[name].check(value)
        return value


class TermsTemplateForm(TermsForm):
    """Terms with the name under which they are kept."""

    class Meta:
        model = TermsTemplate
        fields = ("name", *TERMS)
        help_texts = HELP
        labels = LABELS


@admin.register(TermsTemplate)
class TermsTemplateAdmin(TellsChanges):
    """The terms that were kept; a new sale begins with them by a link in its form."""

    form = TermsTemplateForm
    list_display = ("name", *TERMS)
    search_fields = ("name",)


def keeps_terms(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Say whether `user` may keep terms, also in the place of others."""
    return user.has_perms(("shop.add_termstemplate", "shop.change_termstemplate"))  # type: ignore[union-attr]


def keep_terms(sale: Sale, *, name: str, user: AbstractBaseUser | AnonymousUser) -> None:
    """Keep the terms of `sale` under `name`, in the place of those that had the name; the history says who did it."""
    new = terms_of(sale)
    old = TermsTemplate.objects.select_for_update().filter(name=name).values(*TERMS).first()
    kept, is_new = TermsTemplate.objects.update_or_create(name=name, defaults=new)
    changed = [each for each in TERMS if old and old[each] != new[each]]
    if not is_new and not changed:
        return
    values = ", ".join(change_in_words(each, old[each], new[each]) for each in changed if old)
    with translation.override(None):  # pages translate it
        labels = [str(TermsTemplateForm.base_fields[each].label) for each in changed]
    part: dict[str, Any] = {"added": {}} if is_new else {"changed": {"fields": labels, VALUES: values}}
    flag = ADDITION if is_new else CHANGE
    LogEntry.objects.log_actions(int(user.pk or 0), [kept], flag, change_message=[part], single_object=True)


def kept_terms() -> list[tuple[str, str]]:
    """Return the name of each template with the query of a form that begins with its terms, in the order of names."""
    found = TermsTemplate.objects.values("name", *TERMS)
    return [(each.pop("name"), urlencode(each)) for each in found]


def terms_of(sale: Sale) -> dict[str, Any]:
    """Return what another sale may begin with."""
    return {name: getattr(sale, name) for name in TERMS}
