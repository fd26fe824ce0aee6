"""Shows staff an order with everything that ever happened to it, and lets them cancel or refund it with a reason.
Never changes an order itself: the services do.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.text import Truncator
from django.utils.translation import gettext, gettext_lazy

from inventory import redis
from inventory.admin import ReadOnly
from inventory.exceptions import FairdropError
from inventory.line import reading
from inventory.models import StockMovement
from inventory.records import sale_id_of
from inventory.states import WAITING_STATES, Reason, State
from shop.models import Order, OrderEvent, Payment, PaymentNotice, StaffAct
from shop.names.sentences import in_words, reason_in_words
from shop.orders import deliveries, mails
from shop.orders.numbers import order_number
from shop.payments import refunds, tries
from shop.payments.notices import DECLINES
from shop.sales import catalogue
from shop.staff.lists.bulk_acts import BULK_ACTS
from shop.staff.lists.bulk_page import BulkActs, bulk_action
from shop.staff.lists.order_acts import ORDER_ACTS, ReasonForm, do_act
from shop.staff.lists.order_export import OrderExport
from shop.staff.lists.order_search import ADDRESS_RIGHT, DayFilter, SaleFilter, find_orders
from shop.web.sale_presenter import money

SHORT_BUYER = 14


class Moment(NamedTuple):
    """One line of an order's timeline."""

    at: datetime
    what: str
    actor: str
    detail: str


def place_in_line(request_id: str) -> str:
    """Return where a request that has no order yet stands, in a sentence; '' when it is none that waits."""
    sale_id = sale_id_of(request_id)
    if sale_id is None:
        return ""
    try:
        card = catalogue.find_sale_by_id(sale_id)
        (place,) = reading.places(redis.connect(), card.sku, [request_id])
    except FairdropError:
        return ""
    if place is None or place.record.state not in WAITING_STATES:
        return ""
    text = (
        gettext("Request %(id)s is not decided yet: it is at place %(place)d in the line of %(name)s, for %(n)d units.")
        if place.position
        else gettext("Request %(id)s is not decided yet: it is with a settler of %(name)s, for %(n)d units.")
    )
    return text % {"id": request_id, "place": place.position, "name": card.slug, "n": place.record.quantity}


def timeline(order: Order) -> list[Moment]:
    """Return what happened to `order` in the order of time: history, payments, notices, units that moved."""
    moments = [
        Moment(
            each.at,
            f"{gettext(each.from_state or 'asked')} → {gettext(each.to_state)}",
            each.actor,
            reason_in_words(each.reason),
        )
        for each in OrderEvent.objects.filter(order=order)
    ]
    moments += _payment_moments(order)
    moments += [
        Moment(
            moved.created_at,
            gettext("units: %(kind)s %(n)s") % {"kind": gettext(moved.kind), "n": f"{moved.delta:+d}"},
            moved.actor,
            reason_in_words(moved.reason),
        )
        for moved in StockMovement.objects.filter(request_id=order.request_id)
    ]
    return sorted(moments, key=lambda each: each.at)


def _payment_moments(order: Order) -> Iterator[Moment]:
    """Yield what happened to the payments of `order`, and what their providers said."""
    payments = Payment.objects.filter(order=order)
    notices = PaymentNotice.objects.filter(reference__in=[each.reference for each in payments]).order_by("id")
    for notice in notices:
        what = gettext("notice: %(kind)s") % {"kind": gettext(notice.kind)}
        yield Moment(notice.received_at, what, notice.provider, gettext(notice.result))
    declined_at = {notice.reference: notice.received_at for notice in notices if notice.result in DECLINES}
    for each in payments:
        amount = f"{each.amount} {each.currency}, {each.reference}"
        yield Moment(each.created_at, gettext("payment begun"), each.provider, amount)
        if each.state != Payment.State.PENDING:
            # A declined payment is still asked about, which moves changed_at; one that was never collected is not.
            was_told = each.state == Payment.State.DECLINED and each.reason != Reason.NEVER_COLLECTED
            at = declined_at.get(each.reference, each.changed_at) if was_told else each.changed_at
            detail = f"{each.reference} {reason_in_words(each.reason)}".strip()
            what = gettext("payment %(state)s") % {"state": each.get_state_display()}
            yield Moment(at, what, each.provider, detail)


@admin.register(Order)
class OrderAdmin(ReadOnly, OrderExport, BulkActs):
    """What was decided, to be found by part of its number, by buyer, address, state, sale and day."""

    class Media:
        css = {"all": ["shop/admin/live.css"]}

    change_form_template = "admin/shop/order/change_form.html"
    list_display = ("number", "state", "sale", "short_buyer", "quantity", "amount", "decided")
    list_select_related = ("sale",)
    list_filter = ("state", SaleFilter, DayFilter)
    search_fields = ("request_id__exact",)  # as a sign that there is a search; find_orders does it
    actions = tuple(bulk_action(name) for name in BULK_ACTS)
    show_full_result_count = False
    list_per_page = 50

    @admin.display(description=gettext_lazy("order number"), ordering="id")
    def number(self, obj: Order) -> str:
        return order_number(obj.pk)

    @admin.display(description=gettext_lazy("buyer"))
    def short_buyer(self, obj: Order) -> str:
        return format_html('<span title="{}">{}</span>', obj.buyer, Truncator(obj.buyer).chars(SHORT_BUYER))

    @admin.display(description=gettext_lazy("amount"))
    def amount(self, obj: Order) -> str:
        return money(obj.quantity * obj.unit_price, currency=obj.currency)

    @admin.display(description=gettext_lazy("decided (UTC)"), ordering="id")
    def decided(self, obj: Order) -> str:
        return obj.decided_at.strftime("%Y-%m-%d %H:%M:%S")

    @admin.display(description=gettext_lazy("reason"))
    def why(self, obj: Order) -> str:
        return reason_in_words(obj.reason)

    def get_fields(self, request: HttpRequest, obj: Order | None = None) -> Any:
        return ["why" if name == "reason" else name for name in super().get_fields(request, obj)]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Order], search_term: str
    ) -> tuple[QuerySet[Order], bool]:
        if not search_term.strip():
            return queryset, False
        if told := place_in_line(search_term.strip()):
            self.message_user(request, told, messages.INFO)
        may_use_addresses = request.user.has_perm(ADDRESS_RIGHT)
        return find_orders(queryset, search_term, may_use_addresses=may_use_addresses), False

    def get_urls(self) -> list[URLPattern]:
        act = path("<int:order_id>/<slug:name>/", self.admin_site.admin_view(self.act), name="shop_order_act")
        # Behind Django's own, which have names of their own (history, change).
        own: list[URLPattern] = super().get_urls()
        return [*own[:-1], act, own[-1]]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the order, its timeline, and the acts that its state and the reader's rights allow."""
        order = self.get_object(request, object_id)
        shown: dict[str, Any] = {}
        if order is not None and self.has_view_permission(request, order):
            sent_to = deliveries.find_address(order.request_id)
            mailed_to, has_failed = mails.find_address(order.request_id), refunds.has_failed(order.request_id)
            stays_open = {"sent": has_failed, "mail": mailed_to, "forget": mailed_to or sent_to}
            allowed = [
                (name, act)
                for name, act in ORDER_ACTS.items()
                if (order.state in act.states or stays_open.get(name)) and request.user.has_perm(act.permission)
            ]
            shown = {"number": order_number(order.pk), "timeline": timeline(order), "order_acts": allowed}
            shown["declined"] = tries.count(order) if order.state == State.HELD else None
            if request.user.has_perm("shop.view_deliveryaddress"):
                shown["sent_to"] = sent_to
        answer: HttpResponse = super().change_view(request, object_id, form_url, {**(extra_context or {}), **shown})
        return answer

    def act(self, request: HttpRequest, order_id: int, name: str) -> HttpResponse:
        """Ask for a reason; when it is given, act and go back to the order."""
        act = ORDER_ACTS.get(name)
        order = Order.objects.select_related("sale").filter(pk=order_id).first()
        if act is None or order is None:
            raise Http404
        if not (self.has_view_permission(request, order) and request.user.has_perm(act.permission)):
            raise PermissionDenied
        data = request.POST if request.method == "POST" else None
        form, error = ReasonForm(request, data, asks_password=act.asks_password), ""
        if form.is_valid():
            try:
                told = do_act(order, name, actor=request.user.get_username(), reason=form.cleaned_data["reason"])
            except FairdropError as refused:
                error = in_words(refused.detail)
            else:
                done = gettext("%(name)s: %(act)s, %(told)s.")
                said = {"name": order_number(order.pk), "act": gettext(act.title).lower(), "told": told}
                self.message_user(request, done % said, messages.SUCCESS)
                return HttpResponseRedirect(reverse("admin:shop_order_change", args=[order.pk]))
        context = {
            **self.admin_site.each_context(request),
            "title": f"{gettext(act.title)} {order_number(order.pk)}",
            "order": order,
            "act": act,
            "form": form,
            "error": error,
        }
        return TemplateResponse(request, "admin/shop/order/act.html", context, status=409 if error else 200)


class ActFilter(admin.AllValuesFieldListFilter):
    """The acts that there are, by name."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        for each in super().choices(changelist):
            yield {**each, "display": gettext(str(each["display"]))}


@admin.register(StaffAct)
class StaffActAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    """What staff did, to which sale, when and why."""

    list_display = ("at", "sale", "act_text", "actor", "why", "detail_text")
    fields = ("sale", "act_text", "actor", "why", "detail_text", "at")
    list_select_related = ("sale",)
    show_full_result_count = False
    list_filter = (("act", ActFilter),)
    search_fields = ("sale__slug", "actor")

    @admin.display(description=gettext_lazy("act"), ordering="act")
    def act_text(self, obj: StaffAct) -> str:
        return gettext(obj.act)

    @admin.display(description=gettext_lazy("reason"), ordering="reason")
    def why(self, obj: StaffAct) -> str:
        return reason_in_words(obj.reason)

    @admin.display(description=gettext_lazy("detail"), ordering="detail")
    def detail_text(self, obj: StaffAct) -> str:
        return in_words(obj.detail)
