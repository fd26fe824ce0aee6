"""Hands the list of orders out as CSV, as it is filtered and searched. Never holds more than one page of orders.
Never contains an e-mail address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.db.models import CharField, Func, QuerySet, Value
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from shop.models import InUtc, Order, StaffAct
from shop.orders.numbers import order_number
from shop.sales.currencies import in_minor_units
from shop.staff.lists.csv_export import streamed_csv
from shop.staff.lists.order_search import DayFilter

COLUMNS = (
    "order_number", "request_id", "sale", "buyer", "state", "units", "unit_price", "amount", "currency", "decided_at",
    "changed_at", "changed_by", "reason",
)  # fmt: skip


def _iso(moment: str) -> Func:
    """Return a moment in UTC as ISO 8601 has it, written by the database: to read each here first costs far more."""
    return Func(InUtc(moment), Value('YYYY-MM-DD"T"HH24:MI:SS.US+00:00'), function="to_char", output_field=CharField())


# Plain values, in the order in which _row takes them.
FIELDS = (
    "pk", "request_id", "sale__slug", "buyer", "state", "quantity", "unit_price", "currency",
    _iso("decided_at"), _iso("changed_at"), "actor", "reason",
)  # fmt: skip
PAGE_ROWS = 2_000
Row = tuple[object, ...]


def export_rows(orders: QuerySet[Order]) -> Iterator[Row]:
    """Yield a row for each of `orders`, newest first, as COLUMNS says; a query for each PAGE_ROWS of them.

    A page begins after the last id of the one before: no cursor stays open while a reader is slow.
    """
    found = left = orders.order_by("-pk").values_list(*FIELDS)
    while True:
        page: list[tuple[Any, ...]] = list(left[:PAGE_ROWS])
        for fields in page:
            yield _row(*fields)
        if len(page) < PAGE_ROWS:
            return
        left = found.filter(pk__lt=page[-1][0])


class OrderExport(admin.ModelAdmin):  # type: ignore[type-arg]
    """The list of orders with its way out."""

    def get_urls(self) -> list[URLPattern]:
        page = path("export/", self.admin_site.admin_view(self.export), name="shop_order_export")
        return [page, *super().get_urls()]

    def export(self, request: HttpRequest) -> HttpResponseBase:
        """Stream what the list shows with the same query, all pages of it; a wrong filter leads back to the list."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        shown = reverse("admin:shop_order_changelist")
        try:
            changes = self.get_changelist_instance(request)
        except IncorrectLookupParameters:
            return HttpResponseRedirect(f"{shown}?e=1")
        if any(isinstance(each, DayFilter) and each.days is None for each in changes.filter_specs):
            return HttpResponseRedirect(f"{shown}?{request.GET.urlencode()}")
        StaffAct.objects.create(act="export_orders", actor=request.user.get_username())
        return streamed_csv("orders", COLUMNS, export_rows(changes.queryset))


def _row(order_id: int, *fields: Any) -> Row:
    *named, quantity, unit_price, currency, decided_at, changed_at, actor, reason = fields
    price = in_minor_units(unit_price, currency=currency)
    amounts = quantity, price, quantity * price, currency
    return order_number(order_id), *named, *amounts, decided_at, changed_at, actor, reason
