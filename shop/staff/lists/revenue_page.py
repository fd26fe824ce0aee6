"""The page of revenue per day and per sale, and the same as CSV. Never changes anything."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy

from shop.sales.currencies import in_minor_units
from shop.staff.lists import revenue
from shop.staff.lists.csv_export import streamed_csv
from shop.web.sale_presenter import money

COLUMNS = ("day", "sale", "currency", "units_sold", "units_refunded", "taken", "refunded", "revenue")
SHOWN_DAYS, MAX_DAYS = 31, 366
# Of a longer list the page shows the newest; the CSV has all.
MAX_ROWS = 200


class DayInput(forms.DateInput):
    """Where a browser shows its calendar: it takes a day in this form only, whatever the language."""

    input_type = "date"

    def __init__(self) -> None:
        super().__init__(format="%Y-%m-%d")


class Days(forms.Form):
    """From one day to another, both included."""

    from_day = forms.DateField(label=gettext_lazy("From"), widget=DayInput)
    until_day = forms.DateField(label=gettext_lazy("Until"), widget=DayInput)

    def clean(self) -> dict[str, Any]:
        """Refuse days in the wrong order, and more than a year."""
        data = super().clean() or self.cleaned_data
        first, last = data.get("from_day"), data.get("until_day")
        if first and last and not timedelta() <= last - first < timedelta(days=MAX_DAYS):
            raise forms.ValidationError(gettext("Choose days of at most one year, the first one first."))
        return data


def revenue_page(request: HttpRequest) -> HttpResponseBase:
    """Show the money of the last SHOWN_DAYS days, or of ?from_day= to ?until_day=; ?format=csv for a spreadsheet."""
    if not request.user.has_perm("shop.view_order"):
        raise PermissionDenied
    today = timezone.now().date()
    default = {"from_day": today - timedelta(days=SHOWN_DAYS - 1), "until_day": today}
    form = Days({name: request.GET.get(name) or day for name, day in default.items()})
    rows = []
    if form.is_valid():
        rows = revenue.read_rows(form.cleaned_data["from_day"], form.cleaned_data["until_day"])
        if request.GET.get("format") == "csv":
            return streamed_csv("revenue", COLUMNS, _csv_rows(rows))
    days, sales = revenue.by_day(rows), revenue.by_sale(rows)
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": gettext("Revenue"),
        "form": form,
        "query": request.GET.urlencode(),
        "totals": [_shown("", currency, sums) for currency, sums in revenue.in_all(rows)],
        "days": [_shown(str(day), currency, sums) for day, currency, sums in days[:MAX_ROWS]],
        "sales": [{**_shown(slug, currency, sums), "id": pk} for pk, slug, currency, sums in sales[:MAX_ROWS]],
        "is_cut": max(len(days), len(sales)) > MAX_ROWS,
    }
    return TemplateResponse(request, "admin/shop/revenue.html", context, status=200 if form.is_valid() else 400)


def _shown(name: str, currency: str, sums: revenue.Money) -> dict[str, Any]:
    amounts = {"taken": sums.taken, "returned": sums.returned, "net": sums.net}
    shown = {key: money(amount, currency=currency) for key, amount in amounts.items()}
    return {"name": name, "currency": currency, "units": sums.units - sums.units_returned, **shown}


def _csv_rows(rows: list[revenue.MoneyRow]) -> Iterator[tuple[object, ...]]:
    for row in rows:
        sums = row.money
        amounts = (in_minor_units(each, currency=row.currency) for each in (sums.taken, sums.returned, sums.net))
        yield (row.day.isoformat(), row.slug, row.currency, sums.units, sums.units_returned, *amounts)
