"""Shows stock and its movements to staff. Never writes either: every form here is read-only.
Called by Django's admin.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.forms import BaseInlineFormSet
from django.http import HttpRequest

from inventory.models import Stock, StockMovement

LAST_MOVEMENTS = 50


class ReadOnly:
    """No adding, changing or deleting, whatever rights the user has."""

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False


class LastMovements(BaseInlineFormSet):  # type: ignore[type-arg]
    """The newest movements only: a ledger of a million lines must not be one page."""

    def get_queryset(self) -> QuerySet[StockMovement]:
        if not hasattr(self, "_newest"):
            self._newest = super().get_queryset().order_by("-id")[:LAST_MOVEMENTS]
        return self._newest


class MovementInline(ReadOnly, admin.TabularInline):  # type: ignore[type-arg]
    model = StockMovement
    formset = LastMovements
    fields = readonly_fields = ("created_at", "kind", "delta", "request_id", "fence", "actor", "reason")
    verbose_name_plural = f"last {LAST_MOVEMENTS} movements, newest first"
    extra = 0


class SellingFilter(admin.SimpleListFilter):
    """Sold out means that no unit is free and none can come back."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("selling", "selling"), ("all_held", "all held"), ("sold_out", "sold out")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Stock]) -> QuerySet[Stock]:
        if self.value() == "selling":
            return queryset.filter(available__gt=0)
        if self.value() == "all_held":
            return queryset.filter(available=0, held__gt=0)
        if self.value() == "sold_out":
            return queryset.filter(available=0, held=0)
        return queryset


@admin.register(Stock)
class StockAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    """Every counter of a SKU; only the ledger writes them."""

    list_display = ("sku", "total", "available", "held", "sold", "fence", "version")
    list_filter = (SellingFilter,)
    search_fields = ("sku",)
    ordering = ("sku",)
    inlines = (MovementInline,)
