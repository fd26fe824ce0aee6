"""The list of sales: state, units, line and revenue of each, and its control room first. Never changes anything.
A page costs two queries and one look at Redis more than its rows.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.line import snapshot
from shop.models import Sale
from shop.staff.lists import revenue
from shop.web.sale_presenter import money

SALE_COLUMNS = (
    "room_link", "state", "free", "held", "sold", "in_line", "revenue", "price_text", "window", "more",
)  # fmt: skip
NOT_KNOWN = "?"


class OperatorStateFilter(admin.SimpleListFilter):
    """What staff set of a sale, under the parameter that is in bookmarks: the column's name."""

    title = gettext_lazy("switch")
    parameter_name = "switch__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return Sale._meta.get_field("operator_state").choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Sale]) -> QuerySet[Sale]:
        chosen = self.value()
        return queryset.filter(operator_state=chosen) if chosen else queryset


class SalePage(ChangeList):
    """One page of sales with the line and the revenue of each."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, then what Redis and the orders know of it."""
        super().get_results(request)
        page = list(self.result_list)
        try:
            live = [sale.stock.sku for sale in page if sale.retired_at is None]
            looks = snapshot.look_at(redis.connect(), sorted(set(live)))
        except RedisUnavailable:
            looks = {}
        earned = revenue.of_sales([sale.pk for sale in page])
        for sale in page:
            sale.earned = earned.get(sale.pk, [revenue.Earned(sale.currency, Decimal(0), 0)])
            sale.waiting = _waiting(sale, looks)
        self.result_list = page


class SaleList(admin.ModelAdmin):  # type: ignore[type-arg]
    """The columns of SALE_COLUMNS, but the last."""

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return SalePage

    @admin.display(description=gettext_lazy("control room"), ordering="slug")
    def room_link(self, obj: Sale) -> str:
        return format_html('<a href="{}">{}</a>', reverse("admin:shop_sale_room", args=[obj.pk]), obj.slug)

    @admin.display(description=gettext_lazy("state"))
    def state(self, obj: Sale) -> str:
        return gettext("retired" if obj.retired_at else obj.state_at(timezone.now()))

    @admin.display(description=gettext_lazy("free"))
    def free(self, obj: Sale) -> int:
        return obj.stock.available

    @admin.display(description=gettext_lazy("held"))
    def held(self, obj: Sale) -> int:
        return obj.stock.held

    @admin.display(description=gettext_lazy("sold"))
    def sold(self, obj: Sale) -> int:
        return obj.stock.sold

    @admin.display(description=gettext_lazy("in line"))
    def in_line(self, obj: Sale) -> int | str:
        return obj.waiting  # type: ignore[attr-defined,no-any-return]

    @admin.display(description=gettext_lazy("revenue"))
    def revenue(self, obj: Sale) -> str:
        return " + ".join(money(each.amount, currency=each.currency) for each in obj.earned)  # type: ignore[attr-defined]

    @admin.display(description=gettext_lazy("price"), ordering="price")
    def price_text(self, obj: Sale) -> str:
        return money(obj.price, currency=obj.currency)

    @admin.display(description=gettext_lazy("open (UTC)"), ordering="opens_at")
    def window(self, obj: Sale) -> str:
        moments = (each.strftime("%Y-%m-%d %H:%M") for each in (obj.opens_at, obj.closes_at))
        return format_html("{}<br>{}", *moments)


def _waiting(sale: Sale, looks: dict[str, snapshot.StockLook]) -> int | str:
    """Return how many wait for a decision; nobody does in a sale that is retired."""
    if sale.retired_at is not None:
        return 0
    look = looks.get(sale.stock.sku)
    return NOT_KNOWN if look is None else look.line.undecided
