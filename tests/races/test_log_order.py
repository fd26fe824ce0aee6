"""What the public log says of stock is numbered in the order of the stock's lock, whatever transaction began first and
whichever kind of change takes the lock. Real connections, each with a thread of its own. Ends with its control.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product
from typing import Any, TypeVar

import pytest
from django.db import connection, connections

from inventory.ledger import load_stock, lock_stock
from shop.models import Order, StaffAct
from shop.orders import holds
from shop.salelog.changes import Change, OrderChange, read_changes
from shop.salelog.models import LineEvent, SaleLog
from shop.sales.catalogue import SaleCard
from tests.support.road import settle_line
from tests.support.shopkeeping import fill_line, let_holds_end, make_sale
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
Result = TypeVar("Result")
PATIENCE_SECONDS = 120
ACTS = ("pause", "resume")
BEGIN = "BEGIN; SELECT pg_current_xact_id(), pg_backend_pid()"


class Transaction:
    """A transaction on a connection of its own, which has begun and holds nothing. Its steps run one after another."""

    def __enter__(self) -> Transaction:
        self._thread = ThreadPoolExecutor(1)
        self._pid = self.run(lambda: self._execute(BEGIN))
        return self

    def __exit__(self, *_: object) -> None:
        self.run(lambda: self._execute("ROLLBACK"))  # after a commit there is nothing to take back
        self.run(connections.close_all)
        self._thread.shutdown()

    def start(self, step: Callable[[], Result]) -> Future[Result]:
        """Let the thread take a step; return what will be its result."""
        return self._thread.submit(step)

    def run(self, step: Callable[[], Result]) -> Result:
        return self.start(step).result(timeout=2 * PATIENCE_SECONDS)

    def commit(self) -> None:
        self.run(lambda: self._execute("COMMIT"))

    def waits_for(self, other: Transaction) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s = ANY(pg_blocking_pids(%s))", [other._pid, self._pid])
            return bool(cursor.fetchone()[0])

    @staticmethod
    def _execute(statement: str) -> int:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            while cursor.nextset():
                pass
            return int(cursor.fetchone()[-1]) if cursor.description else 0


# Each makes one change that the log tells, and returns what is read of it. number: 0 or 1, to tell two apart.
def end_a_hold(card: SaleCard, number: int) -> str:
    name = Order.objects.filter(sale_id=card.sale_id).order_by("id")[number].request_id
    with connection.cursor() as cursor:
        holds.expire_due(cursor, sku=card.sku, request_ids=[name])
    return name


def load(card: SaleCard, number: int) -> str:
    with connection.cursor() as cursor:
        load_stock(cursor, sku=card.sku, units=number + 1, actor="test", reason="delivery")
    return f"load {number + 1}"


def act(card: SaleCard, number: int) -> str:
    StaffAct.objects.create(sale_id=card.sale_id, act=ACTS[number], actor="test")
    return f"act {ACTS[number]}"


def what(change: Change) -> str:
    if isinstance(change, OrderChange):
        return change.request.request_id
    return f"{change.kind} {change.act or change.units}"


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """A sale with a log that has nothing yet, and two orders whose time to pay is over."""
    card = make_sale(new_sku(), units=2)
    SaleLog.objects.create(sale_id=card.sale_id)
    names = fill_line(card, buyers=2)
    settle_line(card)
    let_holds_end(*names)
    return card


def last_number() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value FROM shop_orderevent_id_seq")
        return int(cursor.fetchone()[0])


def read(card: SaleCard, *, after: int) -> list[Change]:
    """Return what the log's reader finds of a sale above a number."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT stock_id FROM shop_sale WHERE id = %s", [card.sale_id])
        (stock_id,) = cursor.fetchone()
        changes, _, is_whole = read_changes(cursor, after=after, limit=1000)
    assert is_whole
    return [change for change in changes if change.stock_id == stock_id]


@pytest.mark.parametrize(("first", "then"), [*product((end_a_hold, load, act), repeat=2)])
def test_the_later_holder_of_the_lock_has_the_higher_number_though_it_began_first(
    first: Callable[[SaleCard, int], str], then: Callable[[SaleCard, int], str], card: SaleCard
) -> None:
    """The reader goes on from what it has read last, and misses nothing."""
    begun = last_number()
    with Transaction() as older, Transaction() as younger:
        holds_it = younger.run(lambda: first(card, 0))
        comes_later = older.start(lambda: then(card, 1))
        wait_until(lambda: older.waits_for(younger), what="the older transaction waits for the lock")
        assert read(card, after=begun) == []
        younger.commit()
        waited = comes_later.result(timeout=PATIENCE_SECONDS)
        (seen,) = read(card, after=begun)
        older.commit()
    assert what(seen) == holds_it
    assert [what(change) for change in read(card, after=seen.number)] == [waited]


def test_the_control_a_number_drawn_before_the_lock_is_passed_over(card: SaleCard) -> None:
    begun = last_number()

    def draw() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT nextval('shop_orderevent_id_seq')")
            return int(cursor.fetchone()[0])

    def act_with(number: int) -> None:
        with connection.cursor() as cursor:
            stock = lock_stock(cursor, sku=card.sku)
        words: dict[str, Any] = {"kind": "act", "change": 0, "act": "pause", "role": "staff", "reason": "none"}
        LineEvent.objects.create(number=number, stock_id=stock.stock_id, sale_id=card.sale_id, **words)

    with Transaction() as older, Transaction() as younger:
        drawn = older.run(draw)
        name = younger.run(lambda: end_a_hold(card, 0))
        younger.commit()
        (seen,) = read(card, after=begun)
        older.run(lambda: act_with(drawn))
        older.commit()
    assert what(seen) == name
    assert drawn < seen.number
    assert read(card, after=seen.number) == []  # it happened later, and a reader that goes on never sees it
    assert [what(change) for change in read(card, after=begun)] == ["act pause", name]
