"""Proves that Redis follows the database also when nobody told it, told it late, or when it lost everything.
Each test makes the gap by hand, as a crash or a slow process would leave it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import count

import pytest
from django.conf import settings
from django.db import connection, connections, transaction
from django.test.utils import override_settings

from inventory import redis
from inventory.ledger import load_stock
from inventory.line import reading
from inventory.line.admission import Code
from inventory.redis import keys
from inventory.states import State
from shop.models import Sale
from shop.sales import priming
from shop.sales.catalogue import SaleCard
from tests.integration.conftest import signal_lasting
from tests.support.http_calls import Caller
from tests.support.road import admit, answer_batch, ask, held_lock, own_connection, queue, settle_line, settler, take
from tests.support.shopkeeping import assert_books_balance, make_sale, pay_all
from tests.support.waiting import wait_until
from workers.settlement import settle_batch

pytestmark = pytest.mark.usefixtures("shop_database")


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=5, limit=2)


def forget(card: SaleCard) -> None:
    """Empty Redis of everything about one SKU."""
    client = redis.connect()
    names = [
        keys.line,
        keys.in_flight,
        keys.records,
        keys.live_units,
        keys.stock,
        keys.hand_outs,
        keys.fence,
        keys.sales,
    ]
    client.delete(*(name(card.sku) for name in names))


def test_an_older_card_primed_late_never_undoes_a_pause(card: SaleCard) -> None:
    Sale.objects.filter(pk=card.sale_id).update(operator_state="paused")
    priming.prime_sale(card.slug)
    priming.prime_card(card)  # read before the pause, written after it
    assert admit(card, ask(card, "ann"))[0].code == Code.PAUSED


def test_a_pause_that_nobody_told_redis_of_holds_within_seconds(card: SaleCard, web: Caller) -> None:
    wait_until(lambda: web.get(f"/api/v1/sales/{card.slug}").status == 200)
    signal_lasting(signal.SIGSTOP)  # the web process tells it, and not before we have looked
    Sale.objects.filter(pk=card.sale_id).update(operator_state="paused")
    assert admit(card, ask(card, "ann"))[0].code == Code.ADMITTED  # the control: Redis does not know
    signal_lasting(signal.SIGCONT)
    buyers = (f"bob-{number}" for number in count())
    wait_until(lambda: admit(card, ask(card, next(buyers)))[0].code == Code.PAUSED)


def test_a_payment_is_told_also_while_redis_knows_the_sale_only_as_an_older_shop_kept_it(card: SaleCard) -> None:
    (name,) = queue(card, "ann")
    settle_line(card)
    redis.connect().delete(keys.sales(card.sku))
    pay_all(card)
    (place,) = reading.places(redis.connect(), card.sku, [name])
    assert place is not None
    assert place.record.state is State.PAID


def test_units_that_nobody_told_redis_of_can_be_had_within_seconds(card: SaleCard, web: Caller) -> None:
    queue(card, "a", "b", "c", "d", "e")
    settle_line(card)
    pay_all(card)
    signal_lasting(signal.SIGSTOP)  # as above
    with transaction.atomic(), connection.cursor() as cursor:
        load_stock(cursor, sku=card.sku, units=3, actor="test", reason="second delivery")
    assert admit(card, ask(card, "ann"))[0].code == Code.SOLD_OUT  # the control: Redis does not know
    signal_lasting(signal.SIGCONT)
    wait_until(lambda: admit(card, ask(card, "bob"))[0].code == Code.ADMITTED)


def test_a_repeat_after_redis_was_emptied_is_the_same_request(card: SaleCard) -> None:
    (name,) = queue(card, "ann")
    settle_line(card)
    before = admit(card, ask(card, "ann"))[0]
    forget(card)
    priming.prime_sale(card.slug)
    assert admit(card, ask(card, "ann"))[0] == before
    (place,) = reading.places(redis.connect(), card.sku, [name])
    assert place is not None
    assert place.record.state == State.HELD
    assert admit(card, ask(card, "ann", key="second"))[0].code == Code.ADMITTED
    assert admit(card, ask(card, "ann", key="third"))[0].code == Code.LIMIT_REACHED
    settle_line(card)
    assert_books_balance(card)


def test_a_counter_that_drifted_ends_with_the_line(card: SaleCard) -> None:
    redis.connect().hset(keys.stock(card.sku), "queued", 10_000)
    assert admit(card, ask(card, "ann"))[0].code == Code.ADMITTED


def test_a_batch_in_flight_is_not_counted_twice_by_a_primer(card: SaleCard) -> None:
    """Between COMMIT and the answer the database is ahead of Redis; the units are in flight already."""
    queue(card, "ann", "bob")
    lock = held_lock(card.sku)
    handed = take(lock)
    with own_connection() as worker:
        settlement = settle_batch(worker, sku=card.sku, fence=lock.fence, requests=handed.requests)
    before = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id)
    priming.prime_sale(card.slug)
    assert reading.figures(redis.connect(), card.sku, sale_id=card.sale_id) == before
    answer_batch(
        redis.connect(),
        card.sku,
        token=lock.token,
        call=1,
        figures=settlement.figures,
        settled=settlement.settled,
    )
    lock.release()
    after = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id)
    assert after is not None
    assert (after.available, after.held, after.queued, after.admitted, after.decided) == (3, 2, 0, 2, 2)


def test_a_stock_row_that_somebody_locks_holds_up_its_own_sku_only(new_sku: Callable[[], str]) -> None:
    locked, free = sorted((make_sale(new_sku(), units=1), make_sale(new_sku(), units=1)), key=lambda card: card.sku)
    queue(locked, "ann")
    queue(free, "bob")
    other = connections.create_connection("default")
    with other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT 1 FROM inventory_stock WHERE sku = %s FOR UPDATE", [locked.sku])
        shops = f"{settings.DATABASE_TIMEOUTS} -c lock_timeout=4s"
        with override_settings(DATABASE_TIMEOUTS=shops), settler() as worker:
            wait_until(lambda: worker.work_once() >= 0 and decided(free))
            assert not decided(locked)
            cursor.execute("ROLLBACK")
            wait_until(lambda: worker.work_once() >= 0 and decided(locked))
    other.close()
    assert_books_balance(locked)


def decided(card: SaleCard) -> bool:
    """Say whether the first unit of `card` is held."""
    return Sale.objects.select_related("stock").get(pk=card.sale_id).stock.held == 1
