"""An emptied Redis gets the whole life of every request back: holds and their ends, outcomes, why a line waits.
Pausing, closing and paying go on across the loss as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from inventory import ledger, redis
from inventory.audit import line as audit_line
from inventory.line import priming as line_priming
from inventory.line import reading, writing
from inventory.line.admission import Code
from inventory.line.writing import Settled
from inventory.postgres import Cursor
from inventory.redis import keys
from inventory.states import State
from loadtest.bench.harness.fixtures import fill_books
from shop.models import Order, Sale
from shop.orders import holds
from shop.payments import notices
from shop.sales import priming
from shop.sales.catalogue import SaleCard, find_sale
from shop.staff import sale_control
from tests.support import road
from tests.support.query_plans import no_new_statistics, rows_read
from tests.support.shopkeeping import assert_books_balance, fill_line, let_holds_end, make_sale, pay
from tests.support.waiting import wait_until
from workers.reconciler.books import stock_row

pytestmark = pytest.mark.usefixtures("shop_database")

PAST_ORDERS = 1_000


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of five units."""
    return make_sale(new_sku(), units=5)


def live_through(card: SaleCard) -> dict[State, str]:
    """Let one request reach each outcome; return its id by state."""
    names = fill_line(card, buyers=6)
    road.settle_line(card)
    pay(names[0], names[1])
    holds.cancel(names[2], buyer="buyer-0000002")
    let_holds_end(names[3])
    with transaction.atomic(), connection.cursor() as cursor:
        changes = holds.expire_due(cursor, sku=card.sku, request_ids=[names[3]])
    holds.publish(changes)
    return {
        State.PAID: names[0], State.CANCELLED: names[2], State.EXPIRED: names[3], State.HELD: names[4],
        State.WAITLISTED: names[5],
    }  # fmt: skip


def lose(card: SaleCard) -> None:
    road.forget(card)
    priming.prime_sale(card.slug)


def test_every_outcome_and_every_figure_comes_back(card: SaleCard) -> None:
    names = live_through(card)
    road.settle_line(card)
    before = road.snapshot(card)
    lose(card)
    after = road.snapshot(card)
    for key in (keys.records, keys.live_units):
        assert after[key(card.sku)] == before[key(card.sku)], key.__name__
    for field in ("available", "held", "sold", "version", "queued"):
        assert after[keys.stock(card.sku)][field] == before[keys.stock(card.sku)][field], field
    told = {state: reading.places(redis.connect(), card.sku, [name])[0].record.state for state, name in names.items()}
    del told[State.WAITLISTED]  # a unit came back, and it was given
    assert told == {state: state for state in told}
    assert_books_balance(card)


def test_the_end_of_a_hold_comes_back_to_its_record(card: SaleCard) -> None:
    (name,) = fill_line(card, buyers=1)
    road.settle_line(card)
    end = Order.objects.get(request_id=name).hold_expires_at
    lose(card)
    (place,) = reading.places(redis.connect(), card.sku, [name])
    assert place is not None
    assert place.record.hold_expires_ms == round(end.timestamp() * 1000)


def test_units_that_may_come_back_keep_the_door_open(card: SaleCard) -> None:
    """With every unit held a newcomer is let in to wait; with every unit paid there is nothing to wait for."""
    names = fill_line(card, buyers=5)
    road.settle_line(card)
    lose(card)
    assert road.admit(card, road.ask(card, "late"))[0].code == Code.ADMITTED
    road.settle_line(card)
    pay(*names)
    road.settle_line(card)
    lose(card)
    assert road.admit(card, road.ask(card, "later"))[0].code == Code.SOLD_OUT


def test_a_line_that_waits_waits_again_and_goes_on(card: SaleCard) -> None:
    names = fill_line(card, buyers=5)
    road.settle_line(card)
    lose(card)
    road.queue(card, "late")
    road.settle_line(card)
    assert reading.look_for_work(redis.connect())[card.sku] is reading.Work.WAITS
    holds.cancel(names[0], buyer="buyer-0000000")
    road.settle_line(card)
    assert Order.objects.get(sale_id=card.sale_id, buyer="late").state == "held"
    assert_books_balance(card)


def test_a_pause_outlives_the_loss_and_ends_after_it(card: SaleCard) -> None:
    road.queue(card, "ann")
    sale_control.pause(card.slug, actor="test", reason="a box fell down")
    lose(card)
    assert road.admit(card, road.ask(card, "bob"))[0].code == Code.PAUSED
    sale_control.resume(card.slug, actor="test")
    road.queue(card, "bob")
    road.settle_line(card)
    assert Order.objects.get(sale_id=card.sale_id).buyer == "bob"
    assert_books_balance(card)


def test_a_pause_that_came_while_redis_was_empty_holds_the_line(card: SaleCard) -> None:
    road.forget(card)
    Sale.objects.filter(pk=card.sale_id).update(operator_state="paused", pause_reason="a box fell down")
    priming.prime_card(card)  # by somebody who read the sale before the pause
    assert road.admit(card, road.ask(card, "bob"))[0].code == Code.PAUSED


def test_a_sale_closed_while_redis_was_empty_is_closed(card: SaleCard) -> None:
    road.forget(card)
    Sale.objects.filter(pk=card.sale_id).update(operator_state="closed")
    priming.prime_card(card)
    assert road.admit(card, road.ask(card, "bob"))[0].code == Code.CLOSED


def test_what_is_paid_across_the_loss_is_paid(card: SaleCard) -> None:
    (name,) = fill_line(card, buyers=1)
    road.settle_line(card)
    payment = notices.begin(Order.objects.get(request_id=name), provider_name="sandbox")
    road.forget(card)
    notice = notices.Notice("e", "captured", payment.reference, payment.amount, payment.currency)
    assert notices.take_notice(notice, provider_name="sandbox") == "paid"
    priming.prime_card(card)
    (place,) = reading.places(redis.connect(), card.sku, [name])
    assert place is not None
    assert place.record.state is State.PAID
    figures = reading.figures(redis.connect(), card.sku, sale_id=card.sale_id)
    assert figures is not None
    assert (figures.sold, figures.held) == (1, 0)
    assert_books_balance(card)


def test_news_that_reach_an_empty_redis_change_nothing(card: SaleCard) -> None:
    """Priming brings them: told before it, their units would be counted twice."""
    (name,) = fill_line(card, buyers=1)
    road.settle_line(card)
    road.forget(card)
    with connection.cursor() as cursor:
        figures, changed = stock_row(cursor, card.sku).figures(), holds.records_now(cursor, [name])
    assert writing.publish_changes(redis.connect(), card.sku, figures=figures, changed=changed) == 0
    assert set(road.snapshot(card).values()) == {None}
    assert not line_priming.is_primed(redis.connect(), card.sku)


def test_news_of_an_order_that_priming_missed_count_it_once(card: SaleCard) -> None:
    """The COMMIT came after the database was read and before Redis was primed."""
    road.forget(card)
    priming.prime_sale(card.slug)
    name, record = road.request(card, "ann", seq=5)
    with road.own_connection() as own:
        settlement = road.settle_batch(own, sku=card.sku, fence=1, requests=[(name, record)])
    told: list[Settled] = settlement.settled
    for want in (1, 0):
        assert writing.publish_changes(redis.connect(), card.sku, figures=settlement.figures, changed=told) == want
        assert audit_line.look(redis.connect(), card.sku).queued == 0
        assert road.run(("HVALS", keys.live_units(card.sku))) == [["1"]]
        assert_books_balance(card)


def written_under_the_lock(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> int:
    """Lose Redis and prime the sale; return how many records were written while the stock's row was locked."""
    written: list[int] = []
    fill = line_priming.prime_fields

    def note(client: redis.Client, sku: str, *, key: str, pairs: Sequence[tuple[str, str | int]]) -> None:
        if key == keys.records(sku):
            written.append(len(pairs))
        fill(client, sku, key=key, pairs=pairs)

    with monkeypatch.context() as watched:
        watched.setattr(line_priming, "prime_fields", note)
        lose(card)
    first, second = written
    assert first == Order.objects.filter(sale_id=card.sale_id).count()
    return second


def test_what_the_first_look_has_seen_is_not_read_again_under_the_lock(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it was decided in the last minute. The control goes by the moment alone: it reads all of it twice."""
    live_through(card)
    # Another transaction of this server may have been under way for a while: its own are not known to be seen.
    wait_until(lambda: written_under_the_lock(card, monkeypatch) == 0, what="nothing is read twice")
    with monkeypatch.context() as careless:
        careless.setattr(priming, "_written_after", lambda look: Q(changed_at__gte=look.at - timedelta(hours=1)))
        assert written_under_the_lock(card, monkeypatch) == Order.objects.filter(sale_id=card.sale_id).count()


@pytest.fixture
def old_statistics(shop_database: None) -> Iterator[None]:
    """Let PostgreSQL not take the orders of a test for all that there are."""
    with no_new_statistics("shop_order"):
        yield


@pytest.mark.usefixtures("old_statistics")
@pytest.mark.parametrize("is_read", [False, True], ids=["not read", "the control"])
def test_past_sales_are_not_read_while_the_stock_is_locked(
    new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch, is_read: bool
) -> None:
    """The last seq of all is known all the same, and so is one that was written after the look before the lock."""
    lock, prime, last_seq = ledger.lock_stock, line_priming.prime, priming._last_seq
    past, seen = retired_sale(new_sku()), list[tuple[int, int]]()
    order = Order.objects.filter(sale=past).latest("seq")
    again = sale_after(past)

    def note(*args: Any, **named: Any) -> Any:
        seen.append((rows_read("shop_order"), named["last_seq"]))
        return prime(*args, **named)

    def lock_late(cursor: Cursor, *, sku: str) -> Any:
        order.pk, order.request_id, order.sale, order.seq = None, f"{again.pk}-late", again, order.seq + 7
        order.save(force_insert=True)
        seen.append((rows_read("shop_order"), 0))
        return lock(cursor, sku=sku)

    monkeypatch.setattr(line_priming, "prime", note)
    monkeypatch.setattr(ledger, "lock_stock", lock_late)
    if is_read:
        monkeypatch.setattr(priming, "_last_seq", lambda sku, **_: last_seq(sku))
    with plans_of_a_large_shop():
        priming.prime_sale(again.slug)
    (before, _), (rows, last) = seen
    assert (rows - before >= PAST_ORDERS, last) == (is_read, order.seq)


@contextmanager
def plans_of_a_large_shop() -> Iterator[None]:
    """Let PostgreSQL find the orders of a sale by their index, as it does where those of many others lie between."""
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off")
        yield
        cursor.execute("RESET enable_seqscan; RESET enable_hashjoin; RESET enable_mergejoin")


def retired_sale(sku: str) -> Sale:
    """Make a sale that was retired an hour ago, with its orders."""
    books = fill_books(sku, orders=PAST_ORDERS)
    road.forget(find_sale(books.slug))
    an_hour_ago = timezone.now() - timedelta(hours=1)
    Sale.objects.filter(slug=books.slug).update(retired_at=an_hour_ago, operator_state="closed")
    return Sale.objects.get(slug=books.slug)


def sale_after(sale: Sale) -> Sale:
    """Make the next sale of a SKU."""
    opens, slug = timezone.now(), f"{sale.slug}-again"
    return Sale.objects.create(
        slug=slug, product=sale.product, stock=sale.stock, title="Again", price=5,
        opens_at=opens, closes_at=opens + timedelta(days=1),
    )  # fmt: skip
