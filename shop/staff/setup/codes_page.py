"""The page of the admin that makes access codes for a sale, and hands them out as a file once. It shows how far each
batch is used, and never a code.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Count, Min, Sum
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext, gettext_lazy

from shop.access import codes
from shop.models import AccessCode, StaffAct
from shop.staff.lists.csv_export import streamed_csv

RIGHT = "shop.make_codes"
MAX_CODES, MAX_USES = 10_000, 1_000_000


class CodesForm(forms.Form):
    """How many codes, and for what."""

    batch = forms.CharField(
        label=gettext_lazy("Batch"),
        max_length=60,
        help_text=gettext_lazy("A name by which you know them, such as the newsletter of March."),
    )
    number = forms.IntegerField(label=gettext_lazy("How many"), min_value=1, max_value=MAX_CODES)
    uses = forms.IntegerField(label=gettext_lazy("Uses of each"), min_value=1, max_value=MAX_USES, initial=1)
    counts_units = forms.ChoiceField(
        label=gettext_lazy("A use is"),
        choices=[("", gettext_lazy("a request")), ("units", gettext_lazy("a unit"))],
        required=False,
        help_text=gettext_lazy("A request keeps its use, whatever becomes of it."),
    )


class CodesPage(admin.ModelAdmin):  # type: ignore[type-arg]
    """The admin of sales with a page for the codes of each."""

    def get_urls(self) -> list[URLPattern]:
        page = path("<int:sale_id>/codes/", self.admin_site.admin_view(self.codes_page), name="shop_sale_codes")
        return [page, *super().get_urls()]

    def codes_page(self, request: HttpRequest, sale_id: int) -> HttpResponseBase:
        """Show the batches and the form; a POST makes codes and answers with them. Raises Http404, PermissionDenied."""
        sale = self.viewed_sale(request, sale_id)  # type: ignore[attr-defined]
        if not request.user.has_perm(RIGHT):
            raise PermissionDenied
        form = CodesForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            given = {**form.cleaned_data, "counts_units": form.cleaned_data["counts_units"] == "units"}
            with transaction.atomic():
                made = codes.make_codes(sale_id, **given)
                detail = f"{given['number']} of {given['uses']} {'units' if given['counts_units'] else 'requests'}"
                actor = request.user.get_username()
                StaffAct.objects.create(sale=sale, act="codes", actor=actor, reason=given["batch"], detail=detail)
            return streamed_csv(f"codes-{sale.slug}", ["code"], ([code] for code in made))
        batches = AccessCode.objects.filter(sale_id=sale_id).values("batch", "counts_units").order_by("batch")
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": gettext("Access codes of %(sale)s") % {"sale": sale.slug},
            "sale": sale,
            "form": form,
            "batches": batches.annotate(codes=Count("pk"), made=Min("made_at"), all=Sum("uses"), unused=Sum("left")),
        }
        return TemplateResponse(request, "admin/shop/sale/codes.html", context, status=400 if form.errors else 200)
