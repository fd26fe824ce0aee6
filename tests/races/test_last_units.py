"""Fifty buyers for the last units: read-then-write oversells on real PostgreSQL, the shop's road never does.
Begins with its control.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier

import pytest

from inventory.line.admission import Answer, Code
from inventory.models import Stock
from inventory.postgres import Connection
from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.races.crowd import at_once, line_is_empty, two_settlers
from tests.support.road import admit, ask, own_connection
from tests.support.shopkeeping import assert_books_balance, audit_of, close_sale, decided_count, make_sale
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
BUYERS = 50
READ = "SELECT id, available, held FROM inventory_stock WHERE sku = %s"
WRITE = """
UPDATE inventory_stock SET available = %(available)s, held = %(held)s, version = version + 1 WHERE id = %(stock_id)s
"""
ORDER = """
INSERT INTO shop_order (request_id, sale_id, buyer, buyer_limit, quantity, seq, state, reason, unit_price, currency,
                        hold_expires_at)
VALUES (%(request_id)s, %(sale_id)s, %(buyer)s, 1, 1, %(seq)s, 'held', '', 1, 'EUR', now())
"""


def sell_by_reading_then_writing(
    card: SaleCard, *, connection: Connection, number: int, everybody_has_read: Barrier
) -> bool:
    """Sell one unit the plain way: read the stock, and if there is one, write one less."""
    buyer = f"buyer-{number}"
    with connection.transaction():
        row = connection.execute(
            "SELECT id, available, held FROM inventory_stock WHERE sku = %s", [card.sku]
        ).fetchone()
        assert row is not None
        stock_id, available, held = row
        everybody_has_read.wait(timeout=120)
        if available < 1:
            return False
        connection.execute(WRITE, {"stock_id": stock_id, "available": available - 1, "held": held + 1})
        values = {"sale_id": card.sale_id, "buyer": buyer, "seq": number}
        connection.execute(ORDER, values | {"request_id": ask(card, buyer).request_id})
        return True


def test_reading_then_writing_sells_one_unit_fifty_times(new_sku: Callable[[], str]) -> None:
    """The control: every statement is allowed, every constraint holds, and the audit sees what happened."""
    card, barrier = make_sale(new_sku(), units=1), Barrier(BUYERS)

    def sell(number: int) -> bool:
        connection = connections[number]
        return sell_by_reading_then_writing(card, connection=connection, number=number, everybody_has_read=barrier)

    with ExitStack() as opened, ThreadPoolExecutor(BUYERS) as pool:
        # One after the other: a server that is asked for all at once may keep one waiting for too long.
        connections = [opened.enter_context(own_connection()) for _ in range(BUYERS)]
        sold = list(pool.map(sell, range(BUYERS)))
    assert sum(sold) == BUYERS
    assert Stock.objects.filter(sku=card.sku).values_list("available", "held").get() == (0, 1)
    broken = {each["id"]: each["detail"] for each in audit_of(card)["invariants"] if not each["ok"]}
    assert broken["I1"] == "held and sold 50 of 1"
    assert {"I1", "I2", "I2b", "I5"} <= set(broken)


@pytest.mark.parametrize("units", [1, 3])
def test_the_road_sells_exactly_the_last_units_to_the_first_in_line(new_sku: Callable[[], str], units: int) -> None:
    card = make_sale(new_sku(), units=units)

    def buy(number: int) -> Answer:
        (answer,) = admit(card, ask(card, f"buyer-{number}"))
        return answer

    with two_settlers(batch=4):
        answers = at_once(buy, BUYERS)
        close_sale(card)
        wait_until(lambda: line_is_empty(card))
    admitted = sorted(answer.seq for answer in answers if answer.code == Code.ADMITTED)
    # Anyone who asked after the last unit was held was told so at the door.
    assert {answer.code for answer in answers} <= {Code.ADMITTED, Code.SOLD_OUT, Code.LINE_FULL}
    held = Order.objects.filter(sale_id=card.sale_id, state="held").order_by("seq").values_list("seq", flat=True)
    assert list(held) == admitted[:units]
    assert decided_count(card) == len(admitted)
    counts = assert_books_balance(card)
    assert (counts["units_held"], counts["available"], counts["orders_refused"]) == (units, 0, 0)
