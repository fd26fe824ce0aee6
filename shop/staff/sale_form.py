"""The form of a sale, and from nothing to a sale in one step: product, first units, terms and window.
Never changes units that exist: they come and go by the acts of a sale.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.admin.widgets import AdminIntegerFieldWidget, AdminTextareaWidget, AdminTextInputWidget
from django.core.validators import RegexValidator
from django.db import connection
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy

from inventory.ledger import load_stock, lock_stock
from inventory.models import Stock
from inventory.postgres import TwoKeyAdvisoryLock
from inventory.redis import clocks
from inventory.redis.keys import SKU_PATTERN
from shop.accounts import sessions
from shop.accounts.forms import PasswordAgain, check_password_again
from shop.models import HAS_WINDOW, Product, Sale
from shop.staff.setup.pictures import CHANGED_MEANWHILE, UploadField, check_picture, path_field
from shop.staff.setup.preview import new_product
from shop.staff.setup.terms import BOUNDS, HELP, LABELS, TermsForm, check_price

MAX_WINDOW = timedelta(days=366)
# More than a form takes that waits for a settler that hangs: what is saved must be committed before the sale is over.
MAX_SAVE = timedelta(seconds=30)
NEW_PRODUCT = (
    "sku",
    "units",
    "list_price",
    "tagline",
    "tagline_zh",
    "description",
    "description_zh",
    "upload",
    "picture",
)


class SaleForm(TermsForm):
    """A sale always counts the stock of its product, so the form never asks for the stock of one.

    Pausing and closing are acts with a reason (actions.py), no fields of a form that may lie open for an hour.
    """

    keep_terms_as = forms.CharField(
        label=gettext_lazy("Keep terms as"),
        required=False,
        max_length=60,
        widget=AdminTextInputWidget,
        help_text=gettext_lazy(
            "A name, to begin other sales with these terms. Terms that have the name already are replaced."
        ),
    )
    seen_version = forms.IntegerField(label=gettext_lazy("Version"), widget=forms.HiddenInput, required=False)

    class Meta:
        model = Sale
        exclude = ("stock", "operator_state", "pause_reason")
        help_texts = {
            "slug": gettext_lazy("The end of its address, like tea-set in /sales/tea-set/. It never changes."),
            **HELP,
            "title_zh": gettext_lazy("For readers of Chinese; empty: they read the title."),
            "ships": gettext_lazy("Then buyers give a delivery address before they pay on their ticket."),
            "per_network_limit": gettext_lazy(
                "How many units the buyers of one network (/24, of IPv6 /48) are let in for. Empty: "
                "a twentieth of the units, and 10 at least; 0: any number. Many people may share one address."
            ),
            "pass_mode": gettext_lazy(
                "Whether buyers need a pass. It costs their device some seconds of work before the opening, "
                "or a minute of waiting without script, and makes many false buyers dear."
            ),
            "pass_rush": gettext_lazy(
                "In a rush: a pass is needed from so many requests, or new tokens asked for by the API, a second in "
                "one web process."
            ),
            "codes_required": gettext_lazy("Then a request needs a code; once it is saved, a link below makes them."),
            "email_mode": gettext_lazy(
                "Whether buyers show that they read an e-mail address, by a code that is mailed to them. It may be one "
                "request for each address, whatever becomes of it; tags after a plus make no other address."
            ),
            "opens_at": "UTC.",
            "closes_at": "UTC.",
            "public_at": gettext_lazy(
                "UTC. Then the sale opens sooner for those on its list, or with a code, and from then on neither is "
                "asked for. Empty: they are asked for until the end."
            ),
        }
        labels = {
            **LABELS,
            "per_network_limit": gettext_lazy("Limit per network"),
            "pass_mode": gettext_lazy("Pass"),
            "pass_rush": gettext_lazy("Rush from"),
            "email_mode": gettext_lazy("Verified e-mail"),
            "public_at": gettext_lazy("For everybody from"),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["seen_version"], self.initial["keep_terms_as"] = self.instance.revision, ""
        # Staff who may only look have no fields.
        for name in self.fields.keys() & {"opens_at", "closes_at", "public_at"}:
            # The admin shows one label for two inputs, which a screen reader hears for neither.
            label = self.fields[name].label
            said = (gettext("%(field)s, date (UTC)"), gettext("%(field)s, time (UTC)"))
            for text, widget in zip(said, self.fields[name].widget.widgets, strict=True):
                widget.attrs["aria-label"] = text % {"field": label}
        for name in self.fields.keys() & {"pass_mode", "pass_rush", "email_mode"}:
            self.fields[name].required = False

    def clean_pass_mode(self) -> str:
        """Return whether a pass is needed; what the sale has already when nothing was chosen."""
        chosen: str = self.cleaned_data["pass_mode"] or self.instance.pass_mode
        return chosen

    def clean_email_mode(self) -> str:
        """Return whether an e-mail is needed. Raises ValidationError in a shop that could send no code."""
        chosen: str = self.cleaned_data["email_mode"] or self.instance.email_mode
        if chosen != Sale.EmailMode.NEVER and not settings.MAIL_ON:
            raise forms.ValidationError(
                gettext("This shop sends no mails (FAIRDROP_MAIL_URL): nobody could get a code.")
            )
        if chosen == Sale.EmailMode.NEVER and self.instance.email_list:
            raise forms.ValidationError(gettext("It has a list of e-mail addresses: take the list away first."))
        return chosen

    def clean_pass_rush(self) -> int:
        """Return from what pace it is a rush; what the sale has already when nothing was typed."""
        typed: int = self.cleaned_data["pass_rush"] or self.instance.pass_rush
        return typed

    def clean(self) -> dict[str, Any]:
        """Give the sale its stock before the database's own rules (no overlap) are checked."""
        data = super().clean() or self.cleaned_data
        self._check_window(data)
        if self.instance.retired_at is not None:
            raise forms.ValidationError(gettext("This sale is retired; nothing about it can be changed."))
        if not self.instance._state.adding:
            if data.get("seen_version") != self.instance.revision:
                raise forms.ValidationError(gettext(CHANGED_MEANWHILE))
        elif product := data.get("product"):
            self.instance.stock = product.stock
        if self.instance.stock_id and self.instance.operator_state != Sale.OperatorState.CLOSED:
            self._check_overlap(data)
        return data

    def _check_window(self, data: dict[str, Any]) -> None:
        opens, closes = data.get("opens_at"), data.get("closes_at")
        ended, now = None if self.instance._state.adding else self.initial.get("closes_at"), clocks.now()
        # The form shows no microseconds.
        is_same = ended is not None and closes in (ended, ended.replace(microsecond=0))
        if is_same:
            data["closes_at"] = closes = ended
        elif closes and ended and ended <= now + MAX_SAVE:
            # Those who waited were told so, and so was the public log: no word is taken back.
            text = gettext("This sale is over, or is within seconds, and its buyers are told so. Duplicate it instead.")
            self.add_error("closes_at", text)
            return
        # Errors of the field: without them PostgreSQL would be asked about a range that ends before it begins.
        if opens and closes and closes <= opens:
            self.add_error("closes_at", gettext("The sale must close after it opens."))
        elif closes and closes <= now and not is_same:
            # A slip of the year: once it is saved, nobody could correct it.
            self.add_error("closes_at", gettext("The sale would be over at once. To end one that runs, use Close."))
        elif opens and closes and closes - opens > MAX_WINDOW:
            text = gettext("A sale is open for at most %(n)d days: Redis keeps its whole line for as long.")
            text %= {"n": MAX_WINDOW.days}
            self.add_error("closes_at", text)
        public = data.get("public_at")
        if public and not (data.get("codes_required") or self.instance.email_list):
            text = gettext("Only for a sale with a list of e-mail addresses or with access codes.")
            self.add_error("public_at", text)
        elif public and opens and closes and not opens < public < closes:
            self.add_error("public_at", gettext("It must be after the sale opens, and before it closes."))

    def _check_overlap(self, data: dict[str, Any]) -> None:
        opens, closes = data.get("opens_at"), data.get("closes_at")
        if not opens or not closes or "closes_at" in self.errors:
            return
        if self.instance._state.adding or {"opens_at", "closes_at"} & {*self.changed_data}:
            with connection.cursor() as cursor:  # the second of two clicks waits here, and sees what the first made
                cursor.execute("SET LOCAL lock_timeout = '8s'")  # until the server has ended a settler that hangs
                lock_stock(cursor, sku=self.instance.stock.sku)
        others = Sale.objects.filter(HAS_WINDOW, stock=self.instance.stock_id).exclude(pk=self.instance.pk)
        other = others.filter(opens_at__lt=closes, closes_at__gt=opens).first()
        if other is not None:
            text = gettext(
                "%(name)s sells the same units from %(first)s to %(last)s UTC; two sales of a product must not overlap."
            )
            first, last = (f"{each:%Y-%m-%d %H:%M}" for each in (other.opens_at, other.closes_at))
            self.add_error("opens_at", text % {"name": other.slug, "first": first, "last": last})

    def _get_validation_exclusions(self) -> set[str]:
        # Django leaves out fields that are not in the form; the overlap rule needs the stock once it is known, and
        # whether staff closed the sale.
        left_out: set[str] = super()._get_validation_exclusions()  # type: ignore[misc]
        return left_out - {"stock", "operator_state"} if self.instance.stock_id else left_out


class NewSaleForm(SaleForm):
    """A sale of a product there is, or of a new one whose first units come into the shop with it."""

    sku = forms.CharField(
        label="SKU",
        required=False,
        max_length=40,
        widget=AdminTextInputWidget,
        validators=[
            RegexValidator(rf"\A(?:{SKU_PATTERN.pattern})\Z", gettext_lazy("Small letters, digits and hyphens only."))
        ],
        help_text=gettext_lazy(
            "What counts its units, like tea-set-2. Small letters, digits and hyphens; it never changes."
        ),
    )
    units = forms.IntegerField(
        label=gettext_lazy("Units"),
        required=False,
        widget=AdminIntegerFieldWidget,
        help_text=gettext_lazy("How many units there are to sell."),
    )
    list_price = forms.DecimalField(
        label=gettext_lazy("List price"),
        required=False,
        max_digits=10,
        decimal_places=2,
        help_text=gettext_lazy("What it costs elsewhere; may be empty."),
    )
    tagline = forms.CharField(
        label=gettext_lazy("Tagline"),
        required=False,
        max_length=120,
        widget=AdminTextInputWidget,
        help_text=gettext_lazy("One line under the title."),
    )
    tagline_zh = forms.CharField(
        label=gettext_lazy("Tagline in Chinese"), required=False, max_length=120, widget=AdminTextInputWidget
    )
    description = forms.CharField(label=gettext_lazy("Description"), required=False, widget=AdminTextareaWidget)
    description_zh = forms.CharField(
        label=gettext_lazy("Description in Chinese"), required=False, widget=AdminTextareaWidget
    )
    upload = UploadField()
    picture = path_field()
    password = PasswordAgain.base_fields["password"]
    # The one that brings the form; the admin makes a class for each (shop/admin.py).
    request: HttpRequest

    class Meta(SaleForm.Meta):
        help_texts = {**SaleForm.Meta.help_texts, "product": gettext_lazy("Leave it empty for a new product.")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["product"].required = False
        # Asked for by what brings units into the shop, unless it was given a moment ago.
        password, is_fresh = self.fields["password"], sessions.has_fresh_password(self.request.session)
        password.required = not is_fresh and not self.data.get("product")
        if is_fresh:
            password.disabled, password.widget = True, forms.HiddenInput()

    def clean_picture(self) -> str:
        """Return the path of the picture. Raises ValidationError when no page could show it."""
        return check_picture(self.cleaned_data["picture"])

    def clean_password(self) -> str:
        """Check the password, when there is one. Raises ValidationError for a wrong one."""
        if self.cleaned_data["password"]:
            check_password_again(self.request, self.cleaned_data["password"])
        return ""

    def clean_units(self) -> int | None:
        """Return how many units there are, when it was said. Raises ValidationError out of bounds."""
        units: int | None = self.cleaned_data["units"]
        if units is not None:
            BOUNDS["units"].check(units)
        return units

    def clean_list_price(self) -> Decimal | None:
        """Return the list price, when there is one. Raises ValidationError for one below nothing."""
        price: Decimal | None = self.cleaned_data["list_price"]
        return None if price is None else check_price(price)

    def clean_sku(self) -> str:
        """Return the SKU. Raises ValidationError when there is stock or a product of this name already."""
        sku: str = self.cleaned_data["sku"]
        with connection.cursor() as cursor:  # the second of two clicks waits here, and then finds what the first made
            cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [TwoKeyAdvisoryLock.NEW_SKU, sku])
        if Stock.objects.filter(sku=sku).exists() or Product.objects.filter(slug=sku).exists():
            text = gettext("There is a product %(sku)s already: choose it above, or take another SKU.")
            raise forms.ValidationError(text % {"sku": sku})
        return sku

    def clean(self) -> dict[str, Any]:
        """Take either a product or all that makes a new one."""
        data = super().clean()
        if data.get("product") is not None:
            for name in NEW_PRODUCT:
                if data.get(name):
                    text = gettext("Only for a new product; leave it empty, or choose no product above.")
                    self.add_error(name, text)
            return data
        for name in ("sku", "units"):
            if not data.get(name) and name not in self.errors:
                self.add_error(name, gettext("A new product needs it. Or choose a product that there is."))
        return data

    def make_product(self, *, actor: str) -> Product:
        """Bring the first units into the books and make their product, in the caller's transaction."""
        data = self.cleaned_data
        product = new_product(data)
        with connection.cursor() as cursor:
            sku, units = product.slug, data["units"]
            product.stock_id = load_stock(cursor, sku=sku, units=units, actor=actor, reason="first units")
        product.save()
        return product
