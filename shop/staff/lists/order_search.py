"""Finds orders for staff: by part of an order number, by buyer, request id or address, by day and sale.
Never shows an address: who may search for one has to know it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import CharField, Q, QuerySet
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy

from shop.models import Contact, Order, Sale
from shop.orders.numbers import PREFIX, read_order_number

# As typed: FD-1042, 1042, 042-7 with the check digit, or the digits of both without a hyphen.
PART = re.compile(rf"(?:{PREFIX})?[\s-]*(\d{{1,18}})(-\d)?", re.ASCII | re.IGNORECASE)
# With its check digit apart it can be nothing else: FD21 is the order FD-2-1, and part of FD-21-6.
WHOLE = re.compile(rf"{PREFIX}[\s-]*\d+[\s-]+\d", re.ASCII | re.IGNORECASE)
# Staff who may send mail to the address of an order may also search by it.
ADDRESS_RIGHT = "shop.mail_order"
MAX_SALES_OFFERED = 30


def find_orders(orders: QuerySet[Order], term: str, *, may_use_addresses: bool) -> QuerySet[Order]:
    """Return those of `orders` that `term` names. Raises PermissionDenied for an address without the right to it.

    term: an order number or part of one, a whole request id, a whole address, or part of a buyer.
    """
    term = term.strip()
    order_id = read_order_number(term)
    if order_id is not None and WHOLE.fullmatch(term):
        return orders.filter(pk=order_id)
    if "@" in term:
        if not may_use_addresses:
            raise PermissionDenied
        return orders.filter(request_id__in=Contact.objects.filter(address__iexact=term).values("request_id"))
    named = Q(request_id=term) | Q(buyer__contains=term)
    if part := PART.fullmatch(term):
        orders = orders.alias(id_text=Cast("pk", CharField()))
        named |= Q(id_text__endswith=part[1]) if part[2] else Q(id_text__contains=part[1])
        whole = read_order_number(f"{PREFIX}{part[1]}")
        named |= Q(pk=whole) if whole is not None else Q()
    return orders.filter(named)


class DayFilter(admin.ListFilter):
    """From one day to another, both included, by the day of the decision in UTC."""

    title = gettext_lazy("day of the decision (UTC)")
    template = "admin/shop/order/day_filter.html"
    names = ("from_day", "until_day")

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        typed = [_last(params.pop(name, "")) for name in self.names]
        self.used_parameters = dict(zip(self.names, typed, strict=True))
        self.days: list[date | None] | None = None
        try:
            self.days = [date.fromisoformat(text) if text else None for text in typed]
        except ValueError:
            messages.error(request, gettext("A day is written like 2026-12-31; nothing is shown."))
        # What else the list is filtered by, for the form of this one.
        self.others = [(name, value) for name, value in request.GET.items() if name not in (*self.names, "p", "e")]

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return list(self.names)

    def choices(self, changelist: Any) -> Iterator[Mapping[str, object]]:
        """Return what the template needs, as one choice."""
        yield {"typed": self.used_parameters, "others": self.others}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Order]) -> QuerySet[Order]:
        if self.days is None:
            return queryset.none()
        first, last = self.days
        if first is not None:
            queryset = queryset.filter(decided_at__gte=_midnight(first))
        if last is not None and last < date.max:
            queryset = queryset.filter(decided_at__lt=_midnight(last + timedelta(days=1)))
        return queryset


class SaleFilter(admin.SimpleListFilter):
    """The newest sales, and the one that is chosen: a shop may have had thousands."""

    title = gettext_lazy("sale")
    parameter_name = "sale__id__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        newest = Sale.objects.order_by("-pk").values_list("pk", "slug")[:MAX_SALES_OFFERED]
        found = [(str(pk), slug) for pk, slug in newest]
        chosen = request.GET.get(self.parameter_name, "")
        if chosen and chosen not in dict(found):
            found.append((chosen, chosen))
        return found

    def queryset(self, request: HttpRequest, queryset: QuerySet[Order]) -> QuerySet[Order]:
        chosen = self.value()
        if not chosen:
            return queryset
        return queryset.filter(sale_id=int(chosen)) if chosen.isascii() and chosen.isdecimal() else queryset.none()


def _last(value: Any) -> str:
    """Return a parameter as text; Django hands over a list of its values since 5.0."""
    return str(value[-1]) if isinstance(value, list) and value else str(value or "")


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, tzinfo=UTC)
