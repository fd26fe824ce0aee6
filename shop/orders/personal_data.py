"""Gives one buyer everything that the shop keeps of them, and forgets it.
Never changes what was sold, when, at which price and in which order: orders, history, ledger and audit stay right.

What is personal stands on the models (`personal`). Of a sale that is not retired its line knows the buyer's id, which
says nothing about anybody but makes a retry the same request: it is forgotten after all their sales were retired.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Model
from post_office.models import Email

from inventory import redis
from inventory.exceptions import RequestNotFound
from inventory.fault_injection import fault_point
from inventory.line.reading import known_skus
from inventory.line.repair import record_pages
from inventory.records import buyer_in, record_or_none
from shop.models import Contact, DeliveryAddress, Order, OrderEvent, Payment, Sale, StaffAct
from shop.orders import deliveries, email_codes, mails, ticket_links
from shop.orders.numbers import order_number, read_order_number

# Begins the id that stands for a buyer who was forgotten: the trigger of orders lets no other take a buyer's place.
FORGOTTEN = "gone-"
# What of a row only the shop itself can read anything from.
INTERNAL = {"id", "sale", "order", "told_event", "is_over"}


class Forgotten(NamedTuple):
    """What was forgotten. orders: how many; kept_in: sales of theirs that are not retired, so that their id stays."""

    orders: int
    kept_in: list[str]


def find_buyer(number: str) -> str:
    """Return the buyer of the order with this number. Raises RequestNotFound."""
    order = Order.objects.filter(pk=read_order_number(number) or 0).first()
    if order is None:
        raise RequestNotFound("there is no order with this number")
    return order.buyer


def export_buyer(buyer: str) -> dict[str, Any]:
    """Return everything that is kept of a buyer, as JSON can hold it. Raises RedisUnavailable."""
    orders = Order.objects.filter(buyer=buyer).select_related("sale").order_by("pk")
    return {
        "buyer": buyer,
        "orders": [_order(each) for each in orders],
        "codes_by_mail": [_mail(each) for each in email_codes.mails_of(buyer)],
        "waiting": [{**each, **_personal(each["request_id"])} for each in _waiting(buyer)],
    }


def forget_buyer(buyer: str, *, actor: str, reason: str) -> Forgotten:
    """Delete a buyer's addresses, mails, links and marks, and put an id that says nothing in their place.

    The id stays in all orders as long as one sale of theirs is not retired: each of their numbers leads to all of it
    when it is run again. In one transaction: a process that dies has forgotten nothing, and running it again ends it.
    reason: goes into the log of acts, so it must not name the person. Raises RedisUnavailable.
    """
    waiting = list(_waiting(buyer))
    with transaction.atomic():
        orders = list(Order.objects.filter(buyer=buyer).select_related("sale").order_by("pk"))
        for name in [*(each.request_id for each in orders), *(each["request_id"] for each in waiting)]:
            deliveries.forget_address(name)
            mails.forget_address(name)
            ticket_links.replace_link(name)
        fault_point("in_forget_buyer")
        email_codes.mails_of(buyer).delete()
        Payment.objects.filter(order__buyer=buyer).exclude(card="").update(card="")
        Order.objects.filter(buyer=buyer).exclude(network="").update(network="")
        known_to = {*(each.sale.slug for each in orders), *(each["sale"] for each in waiting)}
        kept_in = Sale.objects.filter(slug__in=known_to, retired_at__isnull=True).order_by("slug")
        if not kept_in.exists():
            # An order that came in meanwhile keeps its buyer, who can pay it.
            retired = Order.objects.filter(buyer=buyer, sale__retired_at__isnull=False)
            retired.update(buyer=FORGOTTEN + secrets.token_urlsafe(12))
        detail = f"orders of a buyer: {len(orders)}"
        StaffAct.objects.create(sale=None, act="forget_buyer", actor=actor, reason=reason, detail=detail)
        return Forgotten(len(orders), list(kept_in.values_list("slug", flat=True)))


def _order(order: Order) -> dict[str, Any]:
    return {
        "number": order_number(order.pk),
        "sale": order.sale.slug,
        "title": order.sale.title,
        **_fields(order),
        "history": [_fields(each) for each in OrderEvent.objects.filter(order=order)],
        "payments": [_fields(each) for each in Payment.objects.filter(order=order)],
        **_personal(order.request_id),
    }


def _personal(request_id: str) -> dict[str, Any]:
    """Return what is kept of a person by the id of their request."""
    headers = {mails.REQUEST_HEADER: request_id}
    return {
        "contact": [_fields(each) for each in Contact.objects.filter(request_id=request_id)],
        "delivery": [_fields(each) for each in DeliveryAddress.objects.filter(request_id=request_id)],
        "mails": [_mail(each) for each in Email.objects.filter(headers__contains=headers).order_by("pk")],
    }


def _mail(mail: Email) -> dict[str, Any]:
    return {"to": list(mail.to), "subject": mail.subject, "text": mail.message, "created": mail.created}


def _fields(row: Model) -> dict[str, Any]:
    return {each.attname: getattr(row, each.attname) for each in row._meta.concrete_fields if each.name not in INTERNAL}


def _waiting(buyer: str) -> Iterator[dict[str, Any]]:
    """Yield what the lines know of a buyer who has no order for it yet. Raises RedisUnavailable."""
    client = redis.connect()
    for sku in known_skus(client):
        for page in record_pages(client, sku):
            for name, text in page.items():
                record = record_or_none(text) if buyer_in(text) == buyer else None
                if record is not None and not Order.objects.filter(request_id=name).exists():
                    sale = Sale.objects.filter(pk=record.sale_id).values_list("slug", flat=True).first()
                    yield {"request_id": name, "sale": sale, "state": record.state.value, "quantity": record.quantity}
