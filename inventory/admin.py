"""Shows stock and its ledger to staff. Never writes either: every form here is read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.forms import BaseInlineFormSet
from django.http import HttpRequest
from django.utils.text import format_lazy
from django.utils.translation import gettext, gettext_lazy

from inventory.balances import balances
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


class Reasons:
    """A column with why units moved: a person's words as they are, the shop's own in the reader's language."""

    @admin.display(description=gettext_lazy("reason"))
    def why(self, obj: StockMovement) -> str:
        return gettext(obj.reason)


class MovementInline(ReadOnly, Reasons, admin.TabularInline):  # type: ignore[type-arg]
    model = StockMovement
    formset = LastMovements
    fields = readonly_fields = ("created_at", "kind", "delta", "request_id", "fence", "actor", "why")
    verbose_name_plural = format_lazy(gettext_lazy("last {n} movements, newest first"), n=LAST_MOVEMENTS)
    extra = 0


class SellingFilter(admin.SimpleListFilter):
    """Sold out means that no unit is free and none can come back."""

    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("selling", gettext("selling")), ("all_held", gettext("all held")), ("sold_out", gettext("sold out"))]

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


class Ledger(ChangeList):
    """One page of the ledger with the balance behind each movement, in one query more."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, then its balances: by the ledger itself, whatever the page leaves out."""
        super().get_results(request)
        page = list(self.result_list)
        found = balances([movement.pk for movement in page])
        for movement in page:
            movement.balance = found.get(movement.pk)
        self.result_list = page


@admin.register(StockMovement)
class StockMovementAdmin(ReadOnly, Reasons, admin.ModelAdmin):  # type: ignore[type-arg]
    """The ledger: every movement of every SKU, newest first, and how many units were free after it."""

    list_display = ("at", "stock", "kind", "delta", "balance", "request_id", "actor", "why", "fence")
    list_display_links = None
    list_select_related = ("stock",)
    list_filter = ("kind",)
    search_fields = ("stock__sku__exact", "request_id__exact")
    search_help_text = gettext_lazy("A whole SKU or request id.")
    show_full_result_count = False
    list_per_page = 50
    ordering = ("-id",)
    sortable_by = ()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return Ledger

    @admin.display(description=gettext_lazy("at (UTC)"))
    def at(self, obj: StockMovement) -> str:
        return obj.created_at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

    @admin.display(description=gettext_lazy("free after it"))
    def balance(self, obj: StockMovement) -> int:
        return obj.balance  # type: ignore[attr-defined,no-any-return]
