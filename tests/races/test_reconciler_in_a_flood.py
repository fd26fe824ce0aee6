"""A reconciler that looks again and again while everything moves finds nothing, and changes nothing.
Buyers come, two settlers decide, holds are paid, cancelled and expired, staff restock: all at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import count
from threading import Event

import pytest
from django.db import connections
from django.db.models import QuerySet
from django.db.models.functions import Now

from inventory import redis
from inventory.audit import run
from inventory.exceptions import FairdropError, RedisUnavailable
from inventory.redis import keys
from shop.models import Order
from shop.orders import holds
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.races.crowd import two_settlers
from tests.support import road
from tests.support.shopkeeping import assert_books_balance, close_sale, let_holds_end, make_sale, pay
from tests.support.waiting import wait_until
from workers.expirer import Expirer
from workers.reconciler import loop as module
from workers.reconciler.loop import Reconciler
from workers.reconciler.report import Drift

pytestmark = pytest.mark.usefixtures("shop_database")
ROUNDS = 12
MIN_ORDERS = 300
EVERY_FATE = {"held", "paid", "cancelled", "expired"}
PATIENCE_SECONDS = 900


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=400, line_capacity=5_000)


@pytest.fixture
def expirer() -> Iterator[Expirer]:
    with closing(Expirer(stopping=lambda: False)) as worker:
        yield worker


@contextmanager
def meanwhile(*works: Callable[[], None]) -> Iterator[None]:
    """Do each of `works` again and again, each in a thread of its own, for the length of a block."""
    stop = Event()

    def repeat(work: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                work()
                stop.wait(0.005)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(works)) as hands:
        working = [hands.submit(repeat, work) for work in works]
        try:
            yield
        finally:
            stop.set()
            for each in working:
                each.result(timeout=120)


def due(card: SaleCard) -> QuerySet[Order]:
    """Return the holds that are over, of our SKU alone: other tests have holds of their own, thousands that are due."""
    return Order.objects.filter(sale_id=card.sale_id, state="held", hold_expires_at__lte=Now())


def end_due(card: SaleCard, expirer: Expirer) -> None:
    """End the holds that are over, as the expirer does."""
    expirer._end_all(card.sku, list(due(card).values_list("request_id", flat=True)))


def has_ended_all(card: SaleCard, expirer: Expirer) -> bool:
    """End the holds that are over; say whether none is left."""
    end_due(card, expirer)
    return not due(card).exists()


def life(card: SaleCard, expirer: Expirer) -> list[Callable[[], None]]:
    """Return what happens all the time in a sale."""
    numbers, fates = count(), count()

    def come() -> None:
        asks = [road.ask(card, f"buyer-{next(numbers)}") for _ in range(5)]
        with suppress(RedisUnavailable):  # late, on a busy machine
            road.admit(card, *asks)

    def end() -> None:
        held = Order.objects.filter(sale_id=card.sale_id, state="held").values_list("request_id", "buyer")
        for name, buyer in held[:6]:
            fate = next(fates) % 3
            try:
                if fate == 0:
                    pay(name)
                elif fate == 1:
                    holds.cancel(name, buyer=buyer)
                else:
                    let_holds_end(name)
            except (FairdropError, AssertionError):
                pass  # another ended it first

    def restock() -> None:
        sale_control.restock(card.slug, units=3, actor="test", reason="a delivery")

    return [come, come, end, end, restock, partial(end_due, card, expirer)]


def test_a_flood_looks_like_no_drift(card: SaleCard, expirer: Expirer, monkeypatch: pytest.MonkeyPatch) -> None:
    # Much longer than the shop's own: a thread that has committed may stand still before it tells the line.
    monkeypatch.setattr(module, "LOOK_AGAIN_SECONDS", 5.0)
    # Who paid too late is owed the money to the end: there is no charge that could be given back.
    monkeypatch.setattr(run, "REFUND_GRACE_SECONDS", PATIENCE_SECONDS)
    watcher = Reconciler(redis.connect(), stopping=lambda: False)
    orders = Order.objects.filter(sale_id=card.sale_id)
    found: list[Drift] = []
    states: set[str] = set()
    rounds, deadline = 0, time.monotonic() + PATIENCE_SECONDS
    with two_settlers(batch=20), meanwhile(*life(card, expirer)):
        while rounds < ROUNDS or orders.count() < MIN_ORDERS or not states >= EVERY_FATE:
            found += watcher.compare(card.sku, sale_ids=[card.sale_id])
            states.update(orders.values_list("state", flat=True))
            rounds += 1
            assert time.monotonic() < deadline, f"the test is inconclusive: {orders.count()} orders, {states}"
    assert found == []
    wait_until(lambda: has_ended_all(card, expirer), what="every hold that is over has ended")
    close_sale(card)
    with two_settlers(batch=200):
        wait_until(lambda: road.run(("ZCARD", keys.line(card.sku))) == [0])
    assert watcher.compare(card.sku, sale_ids=[card.sale_id]) == []
    assert_books_balance(card)


def test_drift_in_the_flood_is_found_all_the_same(
    card: SaleCard, expirer: Expirer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: while everything moves, an order that Redis forgot and a request that fell out of line are seen."""
    monkeypatch.setattr(module, "LOOK_AGAIN_SECONDS", 0.1)
    watcher = Reconciler(redis.connect(), stopping=lambda: False)
    (known, lost) = road.queue(card, "ann", "bob")
    road.run(("ZREM", keys.line(card.sku), lost))
    road.settle_line(card)
    pay(known)
    road.run(("HDEL", keys.records(card.sku), known))
    with two_settlers(batch=20), meanwhile(*life(card, expirer)):
        found = {(each.kind, each.name) for each in watcher.compare(card.sku, sale_ids=[card.sale_id])}
        assert {("unknown_order", known), ("lost", lost)} <= found
        wait_until(lambda: Order.objects.filter(request_id=lost).exists(), what="it is decided")
