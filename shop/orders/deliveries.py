"""Keeps where the goods of a request go, apart from its order, and deletes it when it is not needed any more.
Never logs what it keeps, and never keeps an address of an order that is neither held nor paid, nor may be paid late.

An address is given and changed while the order is held, and for CHANGED_FOR after it was paid; deleted at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from inventory.exceptions import NotPayable, RequestNotFound
from inventory.records import sale_id_of
from inventory.redis import clocks
from inventory.states import State
from shop.models import LAST_CAPTURE, DeliveryAddress, Order, Sale

# Longer than a typing error goes unnoticed, shorter than a parcel takes to leave.
CHANGED_FOR = timedelta(hours=24)
FIELDS = ("name", "lines", "postcode", "city", "country")
SENT_TO = (State.HELD, State.PAID)
MAX_DELETED = 1_000
# A hold that is over may still be paid for, by a payment that was begun before: STILL_ASKED_ABOUT, in SQL.
DELETE_DELIVERIES = """
DELETE FROM shop_deliveryaddress WHERE id IN (
    SELECT id FROM shop_deliveryaddress d
    WHERE changed_at < now() - make_interval(days => %(days)s) OR EXISTS (
        SELECT FROM shop_order o WHERE o.request_id = d.request_id AND o.state <> ALL(%(sent_to)s) AND NOT EXISTS (
            SELECT FROM shop_payment p WHERE p.order_id = o.id AND o.state = 'expired'
            AND (p.state = 'pending' OR p.state = 'declined' AND p.changed_at - p.created_at < %(last_capture)s)))
    ORDER BY id LIMIT %(limit)s)
"""
DELETE_CONTACTS = """
DELETE FROM shop_contact WHERE id IN (
    SELECT id FROM shop_contact WHERE created_at < now() - make_interval(days => %(days)s)
    ORDER BY id LIMIT %(limit)s)
"""


class Delivery(NamedTuple):
    """What a ticket shows. address: None when none is kept; is_open: it may be given or changed now.

    until: the moment at which a change ends, None while the order is held.
    """

    address: DeliveryAddress | None
    is_open: bool
    until: datetime | None


def find_address(request_id: str) -> DeliveryAddress | None:
    """Return the address that is kept for a request. The caller checks who may see it."""
    return DeliveryAddress.objects.filter(request_id=request_id).first()


def find_delivery(request_id: str) -> Delivery | None:
    """Return the delivery of a request, None when its goods are not sent. The caller checks who may see it."""
    address = find_address(request_id)
    order = Order.objects.filter(request_id=request_id, sale__ships=True, state__in=SENT_TO).first()
    if order is None:
        return Delivery(address, is_open=False, until=None) if address else None
    until = order.changed_at + CHANGED_FOR if order.state == State.PAID else None
    return Delivery(address, is_open=until is None or clocks.DATABASE.now() < until, until=until)


def keep_address(request_id: str, wanted: Mapping[str, str]) -> None:
    """Keep the address of a request; wanted: a text for each of FIELDS. The same once more changes nothing.

    Raises RequestNotFound when nothing is sent for it, NotPayable when it is too late.
    """
    if DeliveryAddress.objects.filter(request_id=request_id, **wanted).exists():
        return
    delivery = find_delivery(request_id)
    if delivery is None:
        raise RequestNotFound
    if not delivery.is_open:
        raise NotPayable("the delivery address cannot be changed any more")
    DeliveryAddress.objects.update_or_create(request_id=request_id, defaults={**wanted, "changed_at": Now()})


def is_missing(request_id: str) -> bool:
    """Say whether the goods of a request are sent, and nobody knows where to."""
    sale_id = sale_id_of(request_id)
    ships = sale_id is not None and Sale.objects.filter(pk=sale_id, ships=True).exists()
    return ships and find_address(request_id) is None


def forget_address(request_id: str) -> None:
    """Delete the address of a request."""
    DeliveryAddress.objects.filter(request_id=request_id).delete()


def delete_old() -> tuple[int, int]:
    """Delete addresses that are not needed any more; return how many of deliveries and of mails, MAX_DELETED at most.

    Those of deliveries go with the order's hold or payment too, whatever their age.
    """
    values = {
        "days": settings.KEEP_ADDRESSES_DAYS, "sent_to": list(SENT_TO), "limit": MAX_DELETED,
        "last_capture": LAST_CAPTURE,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(DELETE_DELIVERIES, values)
        deliveries = cursor.rowcount
        cursor.execute(DELETE_CONTACTS, values)
        return deliveries, cursor.rowcount
