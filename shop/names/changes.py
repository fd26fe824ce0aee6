"""Says what a form of the admin changed, as the log of acts shows it: field old → new.
Never shows a password, nor what a file contains.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.forms import ReadOnlyPasswordHashField
from django.http import HttpRequest
from django.utils.text import Truncator

# Of each value: the log has one line for all of them.
MAX_VALUE_LENGTH = 40
UNTOLD = (forms.FileField, ReadOnlyPasswordHashField)
VALUES = "values"


class TellsChanges(admin.ModelAdmin):  # type: ignore[type-arg]
    """An admin that keeps with the history of a row what each field was and is."""

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> list[dict[str, Any]]:
        """Return Django's message, with the values in a part of their own that its pages do not read."""
        message: list[dict[str, Any]] = super().construct_change_message(request, form, formsets, add)
        for part in message:
            if "changed" in part and "object" not in part["changed"]:
                part["changed"][VALUES] = ", ".join(_changes(form))
        return message


def change_in_words(field: str, old: object, new: object) -> str:
    """Return a change as the log of acts shows it: field old → new; moments in UTC, to the second."""
    return f"{field} {_in_words(old)} → {_in_words(new)}"


def changes_in(entry: LogEntry) -> str:
    """Return what an entry of the history keeps of values, '' for nothing."""
    if not entry.change_message.startswith("["):
        return ""
    parts = json.loads(entry.change_message)
    return ", ".join(part["changed"][VALUES] for part in parts if part.get("changed", {}).get(VALUES))


def _changes(form: Any) -> Iterable[str]:
    for name in form.changed_data:
        field = form.fields.get(name)
        # The form that sets a password has no field of that name.
        if field is None or isinstance(field, UNTOLD) or isinstance(field.widget, forms.PasswordInput):
            continue
        old, new = form.initial.get(name), form.cleaned_data[name]
        if isinstance(field, forms.ModelMultipleChoiceField):
            old, new = _differing(old or (), new)
        was, now = (Truncator(_in_words(each)).chars(MAX_VALUE_LENGTH) for each in (old, new))
        if was != now:  # a form drops the microseconds of moments
            yield change_in_words(name, was, now)


def _differing(old: Iterable[Any], new: Iterable[Any]) -> tuple[str, str]:
    """Return of two collections what is in one of them only: rights are too many to name those that stay."""
    before, after = ({str(getattr(each, "codename", each)) for each in some} for some in (old, new))
    return " ".join(sorted(before - after)), " ".join(sorted(after - before))


def _in_words(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value in (None, "") else str(value)
