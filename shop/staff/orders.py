"""Shows staff an order with everything that ever happened to it, and lets them cancel or refund it with a reason.
Never changes an order itself: the services do.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from inventory import redis
from inventory.admin import ReadOnly
from inventory.exceptions import FairdropError, InvalidRequest
from inventory.line import reading
from inventory.models import StockMovement
from inventory.records import sale_id_of
from inventory.states import WAITING_STATES, State
from shop.accounts.forms import PasswordAgain
from shop.models import Order, OrderEvent, Payment, PaymentNotice, StaffAct
from shop.orders import deliveries, holds, mails
from shop.orders.numbers import order_number, read_order_number
from shop.payments import refunds
from shop.sales import catalogue
from shop.staff.sale_control import MAX_REASON_LENGTH


class OrderAct(NamedTuple):
    """One act: its service, name and meaning, the state an order must be in (None: any), and the right it needs.

    asks_password: again, unless it was given a moment ago.
    """

    service: Callable[..., str]
    title: str
    meaning: str
    state: State | None
    permission: str
    asks_password: bool = False


class Moment(NamedTuple):
    """One line of an order's timeline."""

    at: datetime
    what: str
    actor: str
    detail: str


def cancel_order(order: Order, *, actor: str, reason: str) -> str:
    """End a hold before its time; its units are free at once. Raises NotPayable, Unavailable."""
    holds.cancel(order.request_id, buyer=order.buyer, actor=actor, reason=reason)
    return "its units are free"


def refund_order(order: Order, *, actor: str, reason: str) -> str:
    """Give the money back and make the units free; say how far the money has come. Raises NotPayable, Unavailable."""
    refunds.refund_order(order.request_id, actor=actor, reason=reason)
    if Payment.objects.filter(order=order, state=Payment.State.REFUND_DUE).exists():
        return "its units are free; the provider does not answer, and is asked for the money again and again"
    return "its units are free and the money went back"


def send_link(order: Order, *, actor: str, reason: str) -> str:
    """Send the secret link again, to the address that is kept and to no other. Raises InvalidRequest without one."""
    mails.send_link_again(order)
    return "queued for the address that its buyer gave"


def delete_address(order: Order, *, actor: str, reason: str) -> str:
    """Delete the addresses of an order's buyer, and the mails to them."""
    mails.forget_address(order.request_id)
    deliveries.forget_address(order.request_id)
    return "no address is kept"


ORDER_ACTS = {
    "cancel": OrderAct(
        cancel_order,
        "Cancel",
        "The hold ends now, and its units go to the next in line.",
        State.HELD,
        "shop.cancel_order",
    ),
    "refund": OrderAct(
        refund_order,
        "Refund",
        "The whole amount goes back to the buyer, and the units are free again.",
        State.PAID,
        "shop.refund_order",
        asks_password=True,
    ),
    "mail": OrderAct(
        send_link,
        "Send the link",
        "The secret link goes to the address that the buyer gave, and to no other. Nobody here sees either.",
        None,
        "shop.mail_order",
    ),
    "forget": OrderAct(
        delete_address,
        "Delete the address",
        "The buyer's e-mail address is deleted, every mail to it that is kept or waits, and the delivery address.",
        None,
        "shop.mail_order",
    ),
}


class ReasonForm(PasswordAgain):
    """Why; it stands in the order's history for ever. Some acts ask for the password again too."""

    reason = forms.CharField(max_length=MAX_REASON_LENGTH, widget=forms.TextInput({"class": "vTextField"}))


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
    where = f"at place {place.position} in the line" if place.position else "with a settler"
    return f"{request_id} is not decided yet: it is {where} of {card.slug}, for {place.record.quantity} units."


def timeline(order: Order) -> list[Moment]:
    """Return what happened to `order` in the order of time: history, payments, notices, units that moved."""
    moments = [
        Moment(each.at, f"{each.from_state or 'asked'} → {each.to_state}", each.actor, each.reason)
        for each in OrderEvent.objects.filter(order=order)
    ]
    payments = list(Payment.objects.filter(order=order))
    for each in payments:
        amount = f"{each.amount} {each.currency}, {each.reference}"
        moments.append(Moment(each.created_at, "payment begun", each.provider, amount))
        if each.state != Payment.State.PENDING:
            detail = f"{each.reference} {each.reason}".strip()
            moments.append(Moment(each.changed_at, f"payment {each.get_state_display()}", each.provider, detail))
    moments += [
        Moment(notice.received_at, f"notice: {notice.kind}", notice.provider, notice.result)
        for notice in PaymentNotice.objects.filter(reference__in=[each.reference for each in payments])
    ]
    moments += [
        Moment(moved.created_at, f"units: {moved.kind} {moved.delta:+d}", moved.actor, moved.reason)
        for moved in StockMovement.objects.filter(request_id=order.request_id)
    ]
    return sorted(moments, key=lambda each: each.at)


@admin.register(Order)
class OrderAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    """What was decided, to be found by order number, request id or buyer."""

    change_form_template = "admin/shop/order/change_form.html"
    list_display = ("number", "state", "sale", "buyer", "quantity", "reason", "decided_at", "request_id")
    list_select_related = ("sale",)
    list_filter = ("state", "sale")
    search_fields = ("request_id__exact", "buyer__exact")
    search_help_text = "A whole order number (FD-1042-7), request id or buyer."
    show_full_result_count = False

    @admin.display(description="order number", ordering="id")
    def number(self, obj: Order) -> str:
        return order_number(obj.pk)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Order], search_term: str
    ) -> tuple[QuerySet[Order], bool]:
        order_id = read_order_number(search_term)
        if order_id is not None:
            return queryset.filter(pk=order_id), False
        if told := place_in_line(search_term.strip()):
            self.message_user(request, told, messages.INFO)
        return super().get_search_results(request, queryset, search_term)

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
            has_address = bool(sent_to or mails.find_address(order.request_id))
            allowed = [
                (name, act)
                for name, act in ORDER_ACTS.items()
                if (act.state == order.state or (act.state is None and has_address))
                and request.user.has_perm(act.permission)
            ]
            shown = {"number": order_number(order.pk), "timeline": timeline(order), "order_acts": allowed}
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
                told = _do(order, name, act, actor=request.user.get_username(), reason=form.cleaned_data["reason"])
            except FairdropError as refused:
                error = refused.detail
            else:
                self.message_user(request, f"{order_number(order.pk)}: {act.title.lower()}, {told}.", messages.SUCCESS)
                return HttpResponseRedirect(reverse("admin:shop_order_change", args=[order.pk]))
        context = {
            **self.admin_site.each_context(request),
            "title": f"{act.title} {order_number(order.pk)}",
            "order": order,
            "act": act,
            "form": form,
            "error": error,
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/shop/order/act.html", context, status=409 if error else 200)


def _do(order: Order, name: str, act: OrderAct, *, actor: str, reason: str) -> str:
    """Act, and add it to what staff did to the sale; the order's own history is written with the act itself.

    Returns what came of it. Raises InvalidRequest when the order is not in the state that its page had shown; else
    as the service.
    """
    if act.state not in (None, order.state):
        raise InvalidRequest(f"this order is {order.state.replace('_', ' ')} by now; nothing was done")
    told = act.service(order, actor=actor, reason=reason)
    StaffAct.objects.create(
        sale=order.sale, act=f"{name}_order", actor=actor, reason=reason, detail=order_number(order.pk)
    )
    return told


@admin.register(StaffAct)
class StaffActAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    """What staff did, to which sale, when and why."""

    list_display = ("at", "sale", "act", "actor", "reason", "detail")
    list_select_related = ("sale",)
    list_filter = ("act",)
    search_fields = ("sale__slug", "actor")
