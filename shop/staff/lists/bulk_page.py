"""The pages of a bulk act: what will happen and to whom, a reason, then what came of it.
Never acts without the right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext, gettext_lazy

from inventory.exceptions import InvalidRequest
from shop.accounts.forms import PasswordAgain
from shop.models import Order
from shop.names.sentences import in_words
from shop.staff.lists import bulk_acts
from shop.staff.lists.bulk_acts import BULK_ACTS, MAX_AT_ONCE, BulkPlan, BulkReason, Planned
from shop.staff.lists.order_acts import ORDER_ACTS
from shop.staff.lists.rights import ActsByRight
from shop.web.sale_presenter import money

TITLES = {
    "refund": gettext_lazy("Refund several orders"),
    "cancel": gettext_lazy("Cancel several holds"),
    "void": gettext_lazy("Void before shipping"),
}
MEANINGS = {
    "refund": gettext_lazy("The whole amount of each goes back to its buyer, and the units are free again."),
    "cancel": gettext_lazy("Each hold ends now, and its units go to the next in line."),
    "void": gettext_lazy(
        "Nothing of these is shipped: what was paid goes back, holds end, and the units go to the next in line. "
        "The public log of the sale counts each, with the reason and without the note."
    ),
}
MAX_ID_DIGITS = 18
MAX_NOTE_LENGTH = 150


class BulkForm(PasswordAgain):
    """Which orders, why, and for money the password again."""

    orders = forms.CharField(widget=forms.HiddenInput)
    why = forms.ChoiceField(label=gettext_lazy("Reason"), choices=[("", "–"), *BulkReason.choices])
    note = forms.CharField(
        label=gettext_lazy("Note"),
        max_length=MAX_NOTE_LENGTH,
        required=False,
        widget=forms.TextInput({"class": "vTextField"}),
    )

    def clean_orders(self) -> list[int]:
        """Return the ids. Raises ValidationError for anything else, or too many."""
        ids = read_ids(self.cleaned_data["orders"])
        if not 1 <= len(ids) <= MAX_AT_ONCE:
            raise forms.ValidationError(gettext("Choose 1 to %(n)d orders.") % {"n": MAX_AT_ONCE})
        return ids

    @property
    def reason(self) -> str:
        """The value that is stored, and the note when there is one."""
        why, note = self.cleaned_data["why"], self.cleaned_data["note"]
        return f"{why}: {note}" if note else str(why)


def read_ids(text: str) -> list[int]:
    """Return the ids of a form, none when one of them is not a number."""
    parts = text.split(",")
    good = all(part.isascii() and part.isdecimal() and len(part) <= MAX_ID_DIGITS for part in parts)
    return sorted({int(part) for part in parts}) if good else []


class BulkActs(ActsByRight):
    """The list of orders with the acts on many that anyone who looks at it may do."""

    rights = {name: ORDER_ACTS[name].permission for name in BULK_ACTS}

    def get_urls(self) -> list[URLPattern]:
        page = path("bulk/<slug:name>/", self.admin_site.admin_view(self.bulk), name="shop_order_bulk")
        return [page, *super().get_urls()]

    def bulk(self, request: HttpRequest, name: str) -> HttpResponse:
        """Do the act with the orders of the form, and show what came of each; a wrong form is shown again."""
        if name not in BULK_ACTS:
            raise Http404
        if not (self.has_view_permission(request) and self._may(request, name)):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseRedirect(reverse("admin:shop_order_changelist"))
        if "why" not in request.POST:  # chosen on another page: nothing was asked yet
            chosen = read_ids(",".join(request.POST.getlist("orders")))[:MAX_AT_ONCE]
            intended = bulk_acts.plan(name, chosen)
            return self.ask(request, name, form=_form(request, name, intended), intended=intended)
        form = BulkForm(request, request.POST, asks_password=ORDER_ACTS[name].asks_password)
        if not form.is_valid():
            ids = read_ids(request.POST.get("orders", ""))[:MAX_AT_ONCE]
            return self.ask(request, name, form=form, intended=bulk_acts.plan(name, ids))
        ids = form.cleaned_data["orders"]
        try:
            done, failed = bulk_acts.run(name, ids, actor=request.user.get_username(), reason=form.reason)
        except InvalidRequest as busy:
            self.message_user(request, in_words(busy.detail), level=messages.ERROR)
            return self.ask(request, name, form=form, intended=bulk_acts.plan(name, ids))
        again = bulk_acts.plan(name, [each.order.pk for each in failed])
        left = BulkPlan(again.able, [])
        return self.ask(request, name, form=_form(request, name, left), intended=left, done=done, failed=failed)

    def ask(
        self,
        request: HttpRequest,
        name: str,
        *,
        form: BulkForm,
        intended: BulkPlan,
        done: Sequence[Planned] | None = None,
        failed: Sequence[Planned] = (),
    ) -> HttpResponse:
        """Show what will happen, with the form. done, failed: what has happened, None before the first press."""
        context = {
            **self.admin_site.each_context(request),
            "title": TITLES[name],
            "meaning": MEANINGS[name],
            "name": name,
            "form": form,
            "plan": intended,
            "sums": _in_words(intended.money),
            "done": done,
            "done_sums": _in_words(bulk_acts.add_up(done or [])),
            "failed": failed,
        }
        return TemplateResponse(request, "admin/shop/order/bulk.html", context)


def bulk_action(name: str) -> Callable[[Any, HttpRequest, QuerySet[Order]], HttpResponse | None]:
    """Return the admin action `name`: it shows what would happen to the orders that are chosen."""

    @admin.action(description=TITLES[name])
    def show(model_admin: BulkActs, request: HttpRequest, queryset: QuerySet[Order]) -> HttpResponse | None:
        ids = list(queryset.order_by("pk").values_list("pk", flat=True)[: MAX_AT_ONCE + 1])
        if len(ids) > MAX_AT_ONCE:
            text = gettext("At most %(n)d orders at once; choose fewer.") % {"n": MAX_AT_ONCE}
            model_admin.message_user(request, text, level=messages.ERROR)
            return None
        intended = bulk_acts.plan(name, ids)
        return model_admin.ask(request, name, form=_form(request, name, intended), intended=intended)

    show.__name__ = name
    return show


def _form(request: HttpRequest, name: str, intended: BulkPlan) -> BulkForm:
    ids = ",".join(str(each.order.pk) for each in intended.able)
    return BulkForm(request, asks_password=ORDER_ACTS[name].asks_password, initial={"orders": ids})


def _in_words(sums: Sequence[tuple[str, Any]]) -> list[str]:
    return [money(amount, currency=currency) for currency, amount in sums]
