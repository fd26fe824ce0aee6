"""Stock changes while it sells: restock, adjust, holds that end and mixed quantities, from many threads at once.
Begins with its control.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from threading import Barrier

import pytest
from django.db import connection, connections

from inventory import redis
from inventory.exceptions import InvalidRequest, NotPayable
from inventory.line import reading
from inventory.line.admission import Code
from inventory.models import Stock
from shop.models import Order
from shop.orders import holds
from shop.staff import sale_control
from tests.races.crowd import at_once, line_is_empty, two_settlers
from tests.support.road import admit, ask, settle_line
from tests.support.shopkeeping import assert_books_balance, audit_of, close_sale, fill_line, let_holds_end, make_sale
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
FORM = "UPDATE inventory_stock SET available = %s, total = %s + held + sold, version = version + 1 WHERE sku = %s"


def in_own_thread(act: Callable[[], object]) -> object:
    """Run `act` with a database connection that ends with it."""
    try:
        return act()
    finally:
        connections.close_all()


def test_a_form_that_writes_what_it_read_undoes_sales(new_sku: Callable[[], str]) -> None:
    """The control: a stock form saved after others have bought. Every constraint holds; the audit sees the fault."""
    card = make_sale(new_sku(), units=10)
    read = Stock.objects.get(sku=card.sku).available
    fill_line(card, buyers=4)
    settle_line(card)
    with connection.cursor() as cursor:
        cursor.execute(FORM, [read, read, card.sku])
    assert "I2" in {each["id"] for each in audit_of(card)["invariants"] if not each["ok"]}


def test_restocking_while_the_line_drains_loses_no_unit_and_no_turn(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=20, line_capacity=400)
    names = fill_line(card, buyers=200)
    with two_settlers(batch=7):
        at_once(
            lambda _: in_own_thread(lambda: sale_control.restock(card.slug, units=5, actor="test")),
            12,
        )
        wait_until(lambda: Order.objects.filter(sale_id=card.sale_id, state="held").count() == 80)
    held = Order.objects.filter(sale_id=card.sale_id, state="held").order_by("id").values_list("request_id", flat=True)
    assert list(held) == names[:80]
    counts = assert_books_balance(card)
    assert (counts["total"], counts["available"], counts["waiting"]) == (80, 0, 120)


def test_adjusting_while_selling_never_goes_below_what_is_taken(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=100, line_capacity=400)
    fill_line(card, buyers=150)
    refused: list[str] = []

    def adjust(number: int) -> None:
        try:
            sale_control.adjust(card.slug, units=-9, actor="test", reason=f"count {number}")
        except InvalidRequest as error:
            refused.append(error.detail)

    with two_settlers(batch=3):
        at_once(lambda number: in_own_thread(lambda: adjust(number)), 16)
        close_sale(card)
        wait_until(lambda: line_is_empty(card))
    counts = assert_books_balance(card)
    assert counts["total"] == 100 - 9 * (16 - len(refused)) == counts["units_held"]
    assert counts["available"] == 0


def test_mixed_quantities_up_to_a_limit_of_three(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=40, limit=3, line_capacity=400)
    draw = random.Random(11)
    wishes = [(f"buyer-{number % 30}", f"key-{number}", draw.randint(1, 3)) for number in range(90)]

    def buy(number: int) -> int:
        buyer, key, quantity = wishes[number]
        return admit(card, ask(card, buyer, key=key, quantity=quantity))[0].code

    with two_settlers(batch=5):
        codes = at_once(buy, len(wishes))
        close_sale(card)
        wait_until(lambda: line_is_empty(card))
    assert set(codes) == {Code.ADMITTED, Code.LIMIT_REACHED}
    counts = assert_books_balance(card)
    assert counts["available"] == 0
    assert counts["units_held"] == 40


def test_two_who_end_the_same_holds_end_each_once(new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=40)
    names = fill_line(card, buyers=40)
    settle_line(card)
    let_holds_end(*names)
    together = Barrier(3)

    def end(number: int) -> int:
        def act() -> int:
            together.wait(timeout=120)
            if number == 2:  # buyers who give theirs back in the same moment
                return sum(_cancelled(name, buyer) for buyer, name in enumerate(names))
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
                changes = holds.expire_due(cursor, sku=card.sku, request_ids=names)
                cursor.execute("COMMIT")
            holds.publish(changes)
            return len(changes.changed)

        return in_own_thread(act)  # type: ignore[return-value]

    ended = at_once(end, 3)
    assert sum(ended) == 40
    counts = assert_books_balance(card)
    assert (counts["available"], counts["held"]) == (40, 0)
    figures = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id)
    assert figures is not None
    assert (figures.available, figures.held) == (40, 0)


def _cancelled(name: str, buyer: int) -> bool:
    with suppress(NotPayable):
        holds.cancel(name, buyer=f"buyer-{buyer:07d}")
    return Order.objects.get(request_id=name).state == "cancelled"
