"""Deletes what orders keep of the network that asked, and payments of the card: personal data, as old as addresses are
when they go (shop/orders/deliveries.py). Never changes anything else of an order or a payment.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import connection
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from shop.models import Order, Payment, Sale

MAX_DELETED = 1_000


def delete_old() -> tuple[int, int]:
    """Delete marks of networks, of sales that ended so long ago, and of cards; return how many, MAX_DELETED each."""
    oldest = Now() - timedelta(days=settings.KEEP_ADDRESSES_DAYS)
    kept = Order.objects.filter(~Q(network=""), sale=OuterRef("pk"))
    over = Sale.objects.filter(Exists(kept), closes_at__lt=oldest).order_by("pk").values_list("pk", flat=True).first()
    networks = _forget_networks(over) if over else 0
    known = Payment.objects.filter(~Q(card=""), created_at__lt=oldest).order_by("created_at")
    cards = Payment.objects.filter(pk__in=known.values("pk")[:MAX_DELETED]).update(card="")
    return networks, cards


def _forget_networks(sale_id: int) -> int:
    with connection.cursor() as cursor:
        # A function of the tables' owner: this process may write nothing of an order.
        cursor.execute("SELECT shop_forget_networks(%s, %s)", [sale_id, MAX_DELETED])
        return int(cursor.fetchone()[0])
