"""Makes a sale and orders whose pages can be looked at, and reads and presses like a browser without script.
Needs the real servers; starts no process.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from inventory.ledger import load_stock
from shop import buyers
from shop.models import Order, Product, Sale
from shop.orders import requests as requests_service
from shop.sales import catalogue, priming

# What a browser says of a press on one of our pages.
OWN_PAGE = {"sec-fetch-site": "same-origin"}


def make_kite_sale(sku: str, *, units: int = 5, opens: int = -5, closes: int = 60, limit: int = 1, **more: Any) -> Sale:
    """Make a primed sale of a new SKU; minutes count from now."""
    now = timezone.now()
    with transaction.atomic(), connection.cursor() as cursor:
        stock_id = load_stock(cursor, sku=sku, units=units, actor="test", reason="first load")
    product = Product.objects.create(
        slug=sku, title="Paper kite", list_price="20.00", stock_id=stock_id, picture="shop/products/lantern.svg"
    )
    sale = Sale.objects.create(
        slug=sku,
        product=product,
        stock_id=stock_id,
        title="Paper kite",
        price="15.00",
        opens_at=now + timedelta(minutes=opens),
        closes_at=now + timedelta(minutes=closes),
        per_buyer_limit=limit,
        **more,
    )
    priming.prime_sale(sale.slug)
    return sale


def text_of(response: HttpResponse) -> str:
    return response.content.decode()


def page_of(sale: Sale) -> str:
    return f"/sales/{sale.slug}/"


def key_in(response: HttpResponse) -> str:
    found = re.search(r'name="idempotency_key" value="([^"]+)"', text_of(response))
    assert found
    return found[1]


def press(client: Client, sale: Sale, *, quantity: str = "1", key: str = "") -> HttpResponse:
    """Load the page as a person does and send its form."""
    key = key or key_in(client.get(page_of(sale)))
    return client.post(page_of(sale), {"quantity": quantity, "idempotency_key": key}, headers=OWN_PAGE)


def decided(sale: Sale, *, buyer: str, state: str, reason: str = "", quantity: int = 1) -> Order:
    """Write an order as settlement leaves it; what comes after a hold as a change of it."""
    card = catalogue.find_sale(sale.slug)
    wish = requests_service.ask(card, buyer=buyer, quantity=quantity, idempotency_key=f"key-{state}")
    first = "held" if state in {"paid", "expired", "cancelled"} else state
    order = Order.objects.create(
        request_id=wish.request_id,
        sale=sale,
        buyer=buyer,
        quantity=quantity,
        buyer_limit=quantity,
        seq=wish.seq,
        state=first,
        reason=reason,
        unit_price=sale.price,
        currency=sale.currency,
        hold_expires_at=timezone.now() + timedelta(minutes=10) if first == "held" else None,
    )
    if state != first:
        Order.objects.filter(pk=order.pk).update(state=state)
    return order


def known_client() -> tuple[Client, str]:
    """Return a browser that has a buyer cookie, and its buyer."""
    buyer, token = buyers.issue_buyer()
    client = Client()
    client.cookies[buyers.COOKIE_NAME] = token
    return client, buyer
