"""The form of a delivery address: what stands on a parcel in any country and any script, within bounds.
Never keeps anything.
"""

from __future__ import annotations

import unicodedata

from django import forms
from django.forms.models import model_to_dict
from django.utils.translation import gettext_lazy as _

from shop.orders.deliveries import FIELDS, Delivery

MAX_LINES = 4
# What would turn the order of letters on a label; joiners stay, because Persian and Hindi are written with them.
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def check_text(text: str) -> None:
    """Raise ValidationError for what no label can show, and for text without a letter or digit of any script."""
    if any(each in TURNING or (unicodedata.category(each) in ("Cc", "Cs") and each != "\n") for each in text):
        raise forms.ValidationError(_("This has characters that cannot be printed."))
    if not any(each.isalnum() for each in text):
        raise forms.ValidationError(_("Write it out in letters."))


class Words(forms.CharField):
    """One line of text in any script, with single spaces."""

    def to_python(self, value: object) -> str:
        """Return the text as it is kept: composed, and without space around it."""
        return " ".join(unicodedata.normalize("NFC", super().to_python(value) or "").split())


class Lines(forms.CharField):
    """Up to MAX_LINES lines of text; empty ones are left out."""

    def to_python(self, value: object) -> str:
        """Return the lines as they are kept. Raises ValidationError for too many."""
        text = unicodedata.normalize("NFC", super().to_python(value) or "")
        lines = [line for line in (" ".join(each.split()) for each in text.splitlines()) if line]
        if len(lines) > MAX_LINES:
            raise forms.ValidationError(_("Use four lines at most."))
        return "\n".join(lines)


class DeliveryForm(forms.Form):
    """Where the goods go, as it stands on the parcel: nothing in it is of one country only."""

    name = Words(label=_("Name"), max_length=100, validators=[check_text])
    lines = Lines(label=_("Street and number, or whatever leads to the door"), max_length=300, validators=[check_text])
    postcode = Words(label=_("Postcode, where there is one"), required=False, max_length=20, validators=[check_text])
    city = Words(label=_("Town"), max_length=100, validators=[check_text])
    country = Words(label=_("Country"), max_length=80, validators=[check_text])

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})  # type: ignore[arg-type]
        self.fields["lines"].widget = forms.Textarea({"rows": 2, "maxlength": 300})
        tokens = ("name", "street-address", "postal-code", "address-level2", "country-name")
        for field, token in zip(self.fields.values(), tokens, strict=True):
            # The browser fills in what it knows.
            field.widget.attrs["autocomplete"] = f"shipping {token}"


def form_of(delivery: Delivery | None) -> DeliveryForm | None:
    """Return the form of a ticket's delivery, with what is kept in it; None when nothing can be changed."""
    if delivery is None or not delivery.is_open:
        return None
    return DeliveryForm(initial=model_to_dict(delivery.address, FIELDS) if delivery.address else None)
