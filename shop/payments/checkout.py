"""Takes a buyer from a hold to payment: at once, or by the provider's page. Never decides what money buys."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import NamedTuple

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from inventory.exceptions import InvalidRequest, NotPayable, RequestNotFound
from inventory.records import sale_id_of
from inventory.redis import clocks
from inventory.states import Reason, State
from shop.models import CHARGE_LIFE, Order, Payment
from shop.orders import holds, requests
from shop.payments import notices, tries
from shop.payments.providers import Charge, provider
from shop.payments.rows import NoticeResult

# However long a hold is, its charge ends within a charge's life; an hour is for providers that end it a little later.
PAGE_LIFE = CHARGE_LIFE - timedelta(hours=1)
# By how much a payment says of an order that is not held any more: money may still come, or came, or must go back.
_SAYS = [Payment.State(each) for each in ("declined", "pending", "refunded", "captured", "refund_due")]


class Bill(NamedTuple):
    """What an order costs by its own terms, and how the payment that counts stands ('' when none was begun).

    takes_cards: False after too many that were declined. is_taken_by_bank: in a dispute; the shop gave nothing back.
    is_refund_failed: the buyer's bank did not take it, and nobody asks again.
    """

    amount: Decimal
    currency: str
    payment_state: str
    takes_cards: bool
    is_taken_by_bank: bool
    is_refund_failed: bool


def root_of(request: HttpRequest) -> str:
    """Return where the world reaches this shop, without a slash at the end: the setting, else as this call came in."""
    return settings.PUBLIC_URL or request.build_absolute_uri("/").rstrip("/")


def pay_at_once(request_id: str, *, buyer: str, provider_name: str, root: str) -> None:
    """Let `buyer` pay a hold with what the provider has of them; a request that is paid stays so. root: see root_of.

    Raises RequestNotFound, NotPayable (not held, declined, too late: then the money goes back), PaymentsLimited,
    Unavailable, InvalidRequest when the provider collects on its page only.
    """
    order = find_payable(request_id, buyer=buyer)
    if order.state != State.PAID and not provider(provider_name).pays_at_once:
        raise InvalidRequest(f'{provider_name} collects on its page only: ask for it with {{"page": true}}')
    payment = _begin(order, provider_name=provider_name)
    if payment is None:
        return
    notice = provider(provider_name).pay_at_once(_charge(order, payment, root))
    result = notices.take_notice(notice, provider_name=provider_name)
    if result is NoticeResult.PAID:
        return
    order = _look_again(order)
    if order.state != State.PAID:
        if result is NoticeResult.DECLINED:
            raise NotPayable("the payment was declined; nothing was taken from you", state=order.state)
        # The money may be on its way back only: the provider may be away just now.
        raise NotPayable(f"this request is {order.state}; what was taken from you is given back", state=order.state)


def begin_page(request_id: str, *, buyer: str, provider_name: str, root: str) -> str:
    """Return the address of the page where `buyer` pays a hold, '' when it is paid already.

    The provider is given the title in the language that is active when it first hears of the payment.
    Raises RequestNotFound, NotPayable, PaymentsLimited, Unavailable.
    """
    order = find_payable(request_id, buyer=buyer)
    payment = _begin(order, provider_name=provider_name)
    if payment is None:
        return ""
    try:
        return provider(provider_name).begin(_charge(order, payment, root))
    except NotPayable as refused:
        raise NotPayable(refused.detail, state=_look_again(order).state) from refused


def find_payable(request_id: str, *, buyer: str) -> Order:
    """Return `buyer`'s order, held or paid. Raises RequestNotFound, NotPayable also while it waits in line."""
    if sale_id_of(request_id) is None:
        raise RequestNotFound
    try:
        return notices.find_payable(request_id, buyer=buyer)
    except RequestNotFound:
        view = requests.look_up(request_id, buyer=buyer)
        raise NotPayable(f"this request is {view.state}; only a hold can be paid", state=view.state) from None


def find_bill(request_id: str) -> Bill | None:
    """Return what a decided request costs, None when it has no order. The caller checks who may see it."""
    order = Order.objects.filter(request_id=request_id).first() if sale_id_of(request_id) else None
    if order is None:
        return None

    ends_at = order.hold_expires_at
    is_held = order.state == State.HELD and ends_at is not None and ends_at > clocks.DATABASE.now()

    def weight(payment: Payment) -> tuple[int, int]:
        # A hold shows what its buyer did last.
        return 0 if is_held else _SAYS.index(Payment.State(payment.state)), payment.pk

    told = max(order.payments.all(), key=weight, default=None)
    state = told.state if told else ""
    takes_cards = state != Payment.State.DECLINED or not tries.count(order).are_too_many
    why = told.reason if told else ""
    by_bank, has_failed = why == Reason.TAKEN_BY_BANK, why == Reason.REFUND_FAILED
    return Bill(order.unit_price * order.quantity, order.currency, state, takes_cards, by_bank, has_failed)


def _look_again(order: Order) -> Order:
    order = Order.objects.select_related("sale__stock").get(pk=order.pk)
    holds.catch_up(order)
    return order


def _begin(order: Order, *, provider_name: str) -> Payment | None:
    """Return the payment to be made, None when the order is paid already."""
    if order.state == State.PAID:
        return None
    try:
        return notices.begin(order, provider_name=provider_name)
    except NotPayable:
        # Another click may have paid between our two looks; anything else is no different now.
        find_payable(order.request_id, buyer=order.buyer)
        return None


def _charge(order: Order, payment: Payment, root: str) -> Charge:
    ends = payment.created_at + PAGE_LIFE
    return Charge(
        reference=payment.reference,
        amount=payment.amount,
        currency=payment.currency,
        title=f"{order.quantity} × {order.sale.shown_title}",
        return_url=reverse("ticket", args=[order.request_id]),
        notice_url=root + reverse("payment-notices", args=[payment.provider]),
        ends_at=min(order.hold_expires_at or ends, ends),
    )
