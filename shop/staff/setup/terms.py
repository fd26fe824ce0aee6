"""Terms of a sale: the bounds that every form of them has, and terms that are kept under a name to begin a sale with.
A sale copies them: to change or delete what was kept changes no sale.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.utils.translation import gettext, gettext_lazy

from shop.models import Sale, TermsTemplate

TERMS = ("price", "currency", "per_buyer_limit", "hold_seconds", "room")
MAX_LIMIT = 1_000
MAX_ROOM = 1_000_000
# A payment that was begun must be good to the end of its hold, and providers end theirs within a day.
MIN_HOLD_SECONDS, MAX_HOLD_SECONDS = 5, 23 * 3600
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
    "room": gettext_lazy("How many requests may wait in line beyond the stock, for units that come back."),
}
LABELS = {
    "per_buyer_limit": gettext_lazy("Limit per buyer"),
    "hold_seconds": gettext_lazy("Hold time in seconds"),
    "room": gettext_lazy("Line capacity"),
}


class TermsForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form with the terms of a sale, each within its bounds."""

    def clean_currency(self) -> str:
        """Return the code of the currency. Raises ValidationError for what is none."""
        code: str = self.cleaned_data["currency"].upper()
        if code not in CURRENCIES:
            raise forms.ValidationError(gettext("%(code)s is not a currency of ISO 4217.") % {"code": code})
        return code

    def clean_per_buyer_limit(self) -> int:
        """Return the limit. Raises ValidationError out of bounds."""
        return self._bounded("per_buyer_limit", least=1, most=MAX_LIMIT)

    def clean_hold_seconds(self) -> int:
        """Return the hold time. Raises ValidationError out of bounds."""
        return self._bounded("hold_seconds", least=MIN_HOLD_SECONDS, most=MAX_HOLD_SECONDS)

    def clean_room(self) -> int:
        """Return the room. Raises ValidationError out of bounds."""
        return self._bounded("room", least=0, most=MAX_ROOM)

    def _bounded(self, name: str, *, least: int, most: int) -> int:
        value: int = self.cleaned_data[name]
        # What a sale has already is no mistake of the person who changes something else.
        if not least <= value <= most and value != getattr(self.instance, name):
            text = gettext("Between %(least)s and %(most)s.") % {"least": f"{least:,}", "most": f"{most:,}"}
            raise forms.ValidationError(text)
        return value


class TermsTemplateForm(TermsForm):
    """Terms with the name under which they are kept."""

    class Meta:
        model = TermsTemplate
        fields = ("name", *TERMS)
        help_texts = HELP
        labels = LABELS


@admin.register(TermsTemplate)
class TermsTemplateAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The terms that were kept; a new sale begins with them by a link in its form."""

    form = TermsTemplateForm
    list_display = ("name", *TERMS)
    search_fields = ("name",)


def keeps_terms(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Say whether `user` may keep terms, also in the place of others."""
    return user.has_perms(("shop.add_termstemplate", "shop.change_termstemplate"))  # type: ignore[union-attr]


def keep_terms(sale: Sale, *, name: str) -> None:
    """Keep the terms of `sale` under `name`, in the place of those that had the name."""
    TermsTemplate.objects.update_or_create(name=name, defaults=terms_of(sale))


def kept_terms() -> list[tuple[str, str]]:
    """Return the name of each template with the query of a form that begins with its terms, in the order of names."""
    found = TermsTemplate.objects.values("name", *TERMS)
    return [(each.pop("name"), urlencode(each)) for each in found]


def terms_of(sale: Sale) -> dict[str, Any]:
    """Return what another sale may begin with."""
    return {name: getattr(sale, name) for name in TERMS}
