"""Lets staff do to a sale in the admin what `manage.py sale` does: each act asks for a reason and a confirmation.
Never changes a sale itself: every act is a service of sale_control.py. Called by the sale's admin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from inventory.exceptions import FairdropError
from shop import sale_control
from shop.models import Sale


class Act(NamedTuple):
    """One act: its service, its name on the page, what it does in a sentence, and what it asks for."""

    service: Callable[..., Any]
    title: str
    meaning: str
    asks_units: bool = False
    reason_required: bool = False


ACTS = {
    "open_now": Act(sale_control.open_now, "Open now", "People may ask from this moment on."),
    "pause": Act(
        sale_control.pause,
        "Pause",
        "Nobody is let in and nobody in line is decided until it is resumed; holds may be paid. "
        "Buyers read the reason.",
        reason_required=True,
    ),
    "resume": Act(sale_control.resume, "Resume", "The line goes on where it stood."),
    "close": Act(
        sale_control.close,
        "Close",
        "Who is in line gets what is free, the rest is told sold out. There is no way back.",
    ),
    "restock": Act(
        sale_control.restock, "Restock", "Units that came in; they go to the head of the line.", asks_units=True
    ),
    "adjust": Act(
        sale_control.adjust,
        "Adjust the count",
        "Corrects the count, up or down, never below what is held and sold.",
        asks_units=True,
        reason_required=True,
    ),
}


class ActForm(forms.Form):
    """Reason and, where it matters, units of one act."""

    units = forms.IntegerField(min_value=-1_000_000, max_value=1_000_000)
    reason = forms.CharField(max_length=sale_control.LONGEST_REASON, required=False)
    # Units in all when the page was made: a form that is sent twice, or lay open, changes no count.
    seen_total = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, act: Act, data: Any = None, *, seen_total: int | None = None) -> None:
        super().__init__(data, initial={"seen_total": seen_total})
        self.fields["reason"].required = act.reason_required
        if not act.asks_units:
            del self.fields["units"], self.fields["seen_total"]


def action_for(name: str) -> Callable[[Any, HttpRequest, QuerySet[Sale]], HttpResponse | None]:
    """Return the admin action `name`: the first call asks, the confirmed one acts."""
    act = ACTS[name]

    @admin.action(description=act.title, permissions=["change"])
    def run(model_admin: Any, request: HttpRequest, queryset: QuerySet[Sale]) -> HttpResponse | None:
        confirmed = "confirm" in request.POST
        first = queryset.select_related("stock").first()
        form = ActForm(act, request.POST if confirmed else None, seen_total=first.stock.total if first else None)
        if act.asks_units and queryset.count() != 1:
            model_admin.message_user(request, "Choose one sale.", level=messages.ERROR)
            return None
        if not confirmed or not form.is_valid():
            return _ask(model_admin, request, queryset, name=name, act=act, form=form)
        for sale in queryset:
            _do(model_admin, request, sale, act=act, values=form.cleaned_data)
        return None

    run.__name__ = name
    return run


def _ask(
    model_admin: Any, request: HttpRequest, queryset: QuerySet[Sale], *, name: str, act: Act, form: ActForm
) -> HttpResponse:
    context = {
        **model_admin.admin_site.each_context(request),
        "title": act.title,
        "act": act,
        "action": name,
        "sales": queryset.select_related("stock"),
        "form": form,
        "checkbox": ACTION_CHECKBOX_NAME,
        "opts": model_admin.opts,
    }
    return TemplateResponse(request, "admin/shop/sale/act.html", context)


def _do(model_admin: Any, request: HttpRequest, sale: Sale, *, act: Act, values: dict[str, Any]) -> None:
    try:
        act.service(sale.slug, actor=request.user.get_username(), **values)
    except FairdropError as error:
        model_admin.message_user(request, f"{sale.slug}: {error.detail}", level=messages.ERROR)
    else:
        model_admin.message_user(request, f"{sale.slug}: {act.title.lower()}, done.", level=messages.SUCCESS)
