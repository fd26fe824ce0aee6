"""Buyers of a past sale are forgotten while staff give one of them their money back: neither ends the other."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection
from django.utils import timezone

from inventory.postgres import Connection
from shop.models import Order, Sale, StaffAct
from shop.orders.personal_data import FORGOTTEN
from shop.payments import refunds
from shop.sales.catalogue import SaleCard
from shop.staff import retiring
from tests.support import road
from tests.support.shopkeeping import assert_books_balance, close_sale, make_sale, pay
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database", "quiet_notices")

DAYS = 30
DEFINITION = "SELECT pg_get_functiondef('shop_forget_buyers(bigint, int, text, int)'::regprocedure)"
# A row that others name may be locked in the first way, and not in the second.
LOCK, OLD_LOCK = "FOR NO KEY UPDATE", "FOR UPDATE"


@pytest.fixture
def past_sale(new_sku: Callable[[], str]) -> tuple[SaleCard, list[str]]:
    """Return a retired sale whose buyers are due to be forgotten, and the requests that were paid in it."""
    card = make_sale(new_sku(), units=4)
    names = road.queue(card, f"ada-{card.sku}", f"bob-{card.sku}")
    road.settle_line(card)
    pay(*names)
    close_sale(card)
    road.settle_line(card)
    retiring.retire(card.slug, actor="anna")
    ended = timezone.now() - timedelta(days=2 * DAYS)
    Sale.objects.filter(pk=card.sale_id).update(opens_at=ended - timedelta(hours=1), closes_at=ended)
    return card, names


def as_it_was(other: Connection) -> str:
    """Return the name of the same function with the old lock, which only this connection has."""
    (text,) = other.execute(DEFINITION).fetchone() or ("",)
    assert text.count(LOCK) == 1
    text = text.replace(LOCK, OLD_LOCK).replace("shop_forget_buyers", "forget_buyers")
    other.execute(re.sub(r"FUNCTION \w+\.", "FUNCTION pg_temp.", text, count=1))
    return "pg_temp.forget_buyers"


def test_buyers_are_forgotten_while_money_goes_back(past_sale: tuple[SaleCard, list[str]]) -> None:
    card, (name, _) = past_sale
    assert deadlocks(card, name) == []
    buyers = Order.objects.filter(sale_id=card.sale_id).values_list("buyer", flat=True)
    assert {buyer.startswith(FORGOTTEN) for buyer in buyers} == {True}
    assert Order.objects.get(request_id=name).state == "refunded"
    assert_books_balance(card)


def test_the_control_locks_the_sale_as_a_deletion_does(past_sale: tuple[SaleCard, list[str]]) -> None:
    card, (name, _) = past_sale
    assert len(deadlocks(card, name, old=True)) == 1


def deadlocks(card: SaleCard, name: str, *, old: bool = False) -> list[Any]:
    """Give the money of a request back, and let the sale's buyers be forgotten before the act is written down.

    Return what was ended because each waited for the other; nothing else may go wrong.
    """
    errors: list[Any] = []
    with road.own_connection() as other, ThreadPoolExecutor(1) as pool:
        forget = f"SELECT FROM {as_it_was(other) if old else 'shop_forget_buyers'}(%s, %s, '', 1000)"
        forgetting = []

        def note() -> None:
            forgetting.append(pool.submit(other.execute, forget, [card.sale_id, DAYS]))
            wait_until(lambda: is_blocked(other), what="it waits for the order")
            StaffAct.objects.create(sale_id=card.sale_id, act="refund_order", actor="anna", reason="broken")

        try:
            refunds.refund_order(name, actor="anna", reason="broken", ask_now=False, note=note)
        except DatabaseError as error:
            errors.append(error.__cause__)
        errors += filter(None, [each.exception(timeout=120) for each in forgetting])
    assert {type(error) for error in errors} <= {psycopg.errors.DeadlockDetected}
    return errors


def is_blocked(other: Connection) -> bool:
    """Say whether another connection waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT cardinality(pg_blocking_pids(%s))", [other.info.backend_pid])
        return bool(cursor.fetchone()[0])
