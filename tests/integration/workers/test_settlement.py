"""One transaction decides a batch: once, in order, at the price of the moment, under the newest fence. Real PostgreSQL.
Every test has a SKU of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, transaction
from django.db import connection as django_connection

from inventory import ledger
from inventory.exceptions import FenceRefused, LockLost, StaleWrite, UnitsNotFree
from inventory.models import Stock, StockMovement
from inventory.postgres import Cursor
from inventory.records import Record, StockFigures
from inventory.states import State
from shop import order_rows
from shop.models import Order, Sale, SaleTerms
from shop.orders import holds
from shop.sales import catalogue, priming
from shop.sales.catalogue import SaleCard
from tests.support.road import admit, ask, own_connection, request, settler
from tests.support.shopkeeping import make_sale, rewrite
from workers import settler as settler_module
from workers.settlement import Settlement, settle_batch

pytestmark = pytest.mark.usefixtures("shop_database")
Request = tuple[str, Record]


@pytest.fixture
def settle() -> Iterator[Callable[..., Settlement]]:
    """Return a function that settles requests of a sale on a connection of its own."""
    with own_connection() as connection:

        def run(card: SaleCard, *requests: Request, fence: int = 1, dead: bool = False) -> Settlement:
            return settle_batch(connection, sku=card.sku, fence=fence, requests=requests, dead=dead)

        yield run


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    """Return an open sale of two units, one a buyer."""
    return make_sale(new_sku(), units=2)


def states(settlement: Settlement) -> list[State]:
    return [each.record.state for each in settlement.settled]


def books(card: SaleCard) -> dict[str, Any]:
    """Return everything the database knows of a sale: stock, movements, orders."""
    return {
        "stock": Stock.objects.filter(sku=card.sku).values().get(),
        "movements": list(StockMovement.objects.filter(stock__sku=card.sku).values()),
        "orders": list(Order.objects.filter(sale__stock__sku=card.sku).values()),
    }


def test_the_first_get_their_units_and_the_rest_are_told(card: SaleCard, settle: Callable[..., Settlement]) -> None:
    asked = [request(card, "ann", seq=1), request(card, "ann", seq=2, key="again")]
    asked += [request(card, name, seq=3 + number) for number, name in enumerate(("bob", "eve"))]
    settlement = settle(card, *asked, fence=7)
    assert states(settlement) == [State.HELD, State.REFUSED, State.HELD]
    assert settlement.staying == [asked[3][0]]
    assert settlement.figures == StockFigures(available=0, held=2, sold=0, version=2)
    orders = Order.objects.filter(sale_id=card.sale_id).order_by("id").values_list("request_id", "state", "reason")
    assert list(orders) == [
        (asked[0][0], "held", ""),
        (asked[1][0], "refused", "limit_reached"),
        (asked[2][0], "held", ""),
    ]


def test_each_unit_held_has_its_movement_under_the_fence(card: SaleCard, settle: Callable[..., Settlement]) -> None:
    asked = [request(card, name, seq=number) for number, name in enumerate(("ann", "bob", "eve"))]
    settle(card, *asked, fence=7)
    holds = StockMovement.objects.filter(stock__sku=card.sku, kind="hold").order_by("id")
    assert list(holds.values_list("request_id", "delta", "fence", "actor")) == [
        (asked[0][0], -1, 7, "settler"),
        (asked[1][0], -1, 7, "settler"),
    ]
    stock = Stock.objects.get(sku=card.sku)
    assert (stock.total, stock.available, stock.held, stock.sold, stock.fence) == (2, 0, 2, 0, 7)


def test_the_order_of_the_line_decides_not_the_order_of_the_batch(
    card: SaleCard, settle: Callable[..., Settlement]
) -> None:
    late, early, middle = (request(card, name, seq=seq) for name, seq in (("ann", 30), ("bob", 10), ("eve", 20)))
    settlement = settle(card, late, early, middle)
    assert (states(settlement), settlement.staying) == ([State.HELD, State.HELD], [late[0]])
    assert list(Order.objects.filter(sale_id=card.sale_id).order_by("id").values_list("seq", flat=True)) == [10, 20]


def test_known_requests_are_read_and_not_decided_again(card: SaleCard, settle: Callable[..., Settlement]) -> None:
    asked = [request(card, name, seq=number) for number, name in enumerate(("ann", "bob", "eve"))]
    first = settle(card, *asked, fence=1)
    before = books(card)
    again = settle(card, *asked, fence=2)
    assert again == first
    assert books(card) == before | {"stock": before["stock"] | {"fence": 2}}


def test_known_and_new_requests_settle_in_one_batch(card: SaleCard, settle: Callable[..., Settlement]) -> None:
    known = request(card, "ann", seq=1)
    settle(card, known)
    settlement = settle(card, known, request(card, "bob", seq=2), request(card, "eve", seq=3))
    assert states(settlement) == [State.HELD, State.HELD]
    assert settlement.figures == StockFigures(available=0, held=2, sold=0, version=3)
    assert Order.objects.filter(sale_id=card.sale_id).count() == 2


def test_units_held_in_an_earlier_batch_count_against_the_limit(
    card: SaleCard, settle: Callable[..., Settlement]
) -> None:
    settle(card, request(card, "ann", seq=1))
    assert states(settle(card, request(card, "ann", seq=2, key="again"))) == [State.REFUSED]


def test_an_older_fence_is_refused_and_nothing_is_written(card: SaleCard, settle: Callable[..., Settlement]) -> None:
    settle(card, request(card, "ann", seq=1), fence=10)
    before = books(card)
    with pytest.raises(FenceRefused):
        settle(card, request(card, "bob", seq=2), fence=9)
    assert books(card) == before
    assert states(settle(card, request(card, "bob", seq=2), fence=10)) == [State.HELD]


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (psycopg.OperationalError("away"), "settle_retry"),
        (psycopg.errors.TransactionTimeout("stopped"), "settle_retry"),
        (psycopg.errors.IdleInTransactionSessionTimeout("stopped"), "settle_retry"),
        (psycopg.ProgrammingError("no such column"), "settlement_broken"),
        (StaleWrite(), "stale_write"),
        (LockLost(), "lock_lost"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_a_turn_that_ends_says_why_in_one_word_and_the_next_settles(
    card: SaleCard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cause: Exception, told: str
) -> None:
    asked = ask(card, "ann")
    admit(card, asked)

    def fail(*_: Any, **__: Any) -> Settlement:
        raise cause

    with settler() as worker:
        with monkeypatch.context() as broken:
            broken.setattr(settler_module, "settle_batch", fail)
            worker.work_once()
        lines = [record.msg for record in caplog.records if record.name == settler_module.__name__]
        found = [(line["action"], line["requests"]) for line in lines if line.get("sku") == card.sku]
        assert found == [(told, [asked.request_id])]
        worker.work_once()
    assert Order.objects.get(sale_id=card.sale_id).state == "held"


def test_a_change_of_stock_that_came_too_late_says_what_is_wrong_and_writes_nothing(card: SaleCard) -> None:
    before = books(card)
    units = {"stock_id": before["stock"]["id"]}
    with own_connection() as connection:

        @connection.transaction()
        def hold(cursor: Cursor) -> None:  # the fence of the row is 0
            ledger.hold_units(cursor, connection.cursor(), fence=1, holds=[("a", 1)], actor="test", **units)
            ledger.recv_hold(cursor)

        with pytest.raises(StaleWrite):
            hold(connection.cursor())
        with pytest.raises(UnitsNotFree), connection.transaction():
            ledger.retake_units(connection.cursor(), request_id="a", units=3, actor="test", **units)
    assert books(card) == before


def test_a_batch_that_the_database_refuses_writes_nothing(card: SaleCard, settle: Callable[..., Settlement]) -> None:
    before = books(card)
    with pytest.raises(psycopg.errors.CheckViolation, match="order_of_at_least_one"):
        settle(card, request(card, "ann", seq=1), request(card, "bob", seq=2, quantity=0))
    assert books(card) == before


def test_a_request_is_decided_by_the_terms_of_its_version(card: SaleCard, settle: Callable[..., Settlement]) -> None:
    """Whatever the sale's row says by now, and in whatever order the stores were told."""
    Sale.objects.filter(pk=card.sale_id).update(price=Decimal("99.00"), currency="CHF")
    with own_connection() as connection, connection.transaction():
        ledger.adjust_stock(connection.cursor(), sku=card.sku, units=1, actor="test", reason="one more")
    before, now = card.terms_version, catalogue.find_sale(card.slug).terms_version
    settle(card, request(card, "ann", seq=3, version=now), request(card, "bob", seq=4, version=before))
    settle(card, request(card, "eve", seq=5, version=0))
    terms = Order.objects.filter(sale_id=card.sale_id).order_by("id").values_list("unit_price", "currency")
    assert list(terms) == [(Decimal("99.00"), "CHF"), (Decimal("15.00"), "EUR"), (Decimal("15.00"), "EUR")]


@pytest.mark.parametrize(("seq", "price"), [(100, "11.00"), (200, "12.00"), (300, "99.00")])
def test_a_record_without_a_version_has_the_terms_in_force_at_its_seq(
    card: SaleCard, settle: Callable[..., Settlement], seq: int, price: str
) -> None:
    """As a shop was left by the release before: rows with an end, and the last one without."""
    rows = SaleTerms.objects.filter(sale_id=card.sale_id)
    with django_connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shop_saleterms DISABLE TRIGGER terms_never_change")
        rows.update(version=3, price=Decimal("99.00"))
        cursor.execute("ALTER TABLE shop_saleterms ENABLE TRIGGER terms_never_change")
    common = {"sale_id": card.sale_id, "currency": "EUR", "per_buyer_limit": 1, "hold_seconds": 60}
    SaleTerms.objects.create(version=1, until_us=150, price=Decimal("11.00"), **common)
    SaleTerms.objects.create(version=2, until_us=250, price=Decimal("12.00"), **common)
    settle(card, request(card, "ann", seq=seq, version=0))
    assert Order.objects.get(sale_id=card.sale_id).unit_price == Decimal(price)


def test_a_request_whose_terms_are_missing_fails_the_batch_and_is_not_left_out(
    card: SaleCard, settle: Callable[..., Settlement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terms go after they were read, as only a hand in the database can do. The control: a batch before it."""
    assert settle(card, request(card, "ann", seq=1)).figures.held == 1
    read = order_rows.recv_terms

    def read_and_delete(cursor: Any) -> dict[int, order_rows.SaleNow]:
        found = read(cursor)
        cursor.connection.execute("DELETE FROM shop_saleterms WHERE sale_id = %s", [card.sale_id])
        return found

    monkeypatch.setattr(order_rows, "recv_terms", read_and_delete)
    with pytest.raises(psycopg.errors.NotNullViolation):
        settle(card, request(card, "bob", seq=2))
    assert Order.objects.filter(sale_id=card.sale_id).count() == 1


def test_terms_are_written_once(card: SaleCard) -> None:
    for values in ({"price": 7}, {"per_buyer_limit": 3}, {"hold_seconds": 5}, {"currency": "CHF"}, {"title": "Other"}):
        Sale.objects.filter(pk=card.sale_id).update(**values)
    Sale.objects.filter(pk=card.sale_id).update(operator_state="paused")
    rows = SaleTerms.objects.filter(sale_id=card.sale_id)
    assert [row.version for row in rows] == [1, 2, 3, 4, 5]
    assert Sale.objects.get(pk=card.sale_id).terms_version == 5
    with pytest.raises(DatabaseError, match="never taken back"), transaction.atomic():
        rows.filter(version=1).update(price=1)


def database_time() -> datetime:
    with django_connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def test_a_hold_ends_by_the_clock_of_the_database(card: SaleCard, settle: Callable[..., Settlement]) -> None:
    before = database_time()
    (settled,) = settle(card, request(card, "ann", seq=1)).settled
    order, hold = Order.objects.get(sale_id=card.sale_id), timedelta(seconds=card.hold_seconds)
    assert before + hold <= order.hold_expires_at <= database_time() + hold
    assert settled.record.hold_expires_ms == round(order.hold_expires_at.timestamp() * 1000)


def test_a_hold_has_one_end_whoever_writes_its_record(card: SaleCard, settle: Callable[..., Settlement]) -> None:
    """Settlement, priming and the reconciler make the same record of an end that lies halfway between two ms."""
    ann = request(card, "ann", seq=1)
    settle(card, ann)
    now = database_time().replace(microsecond=500)
    for end in (now + timedelta(seconds=second, milliseconds=second) for second in range(8)):
        rewrite(ann[0], hold_expires_at=end)
        (answered,) = settle(card, ann).settled
        with django_connection.cursor() as cursor:
            (told,) = holds.records_now(cursor, [ann[0]])
        primed = dict(priming._records_of(Order.objects.filter(request_id=ann[0])))
        assert answered.record == told.record == primed[ann[0]]


def test_one_batch_may_span_several_sales(card: SaleCard, settle: Callable[..., Settlement]) -> None:
    first = Sale.objects.get(pk=card.sale_id)
    later = Sale.objects.create(
        slug=f"{card.sku}-later",
        product=first.product,
        stock=first.stock,
        title="Paper kite, again",
        price=Decimal("12.50"),
        opens_at=first.closes_at,
        closes_at=first.closes_at + timedelta(hours=1),
        per_buyer_limit=2,
        hold_seconds=60,
    )
    other = catalogue.find_sale(later.slug)
    asked = [request(card, "ann", seq=1), request(other, "ann", seq=2), request(card, "ann", seq=3, key="again")]
    settlement = settle(card, *asked)
    assert states(settlement) == [State.HELD, State.HELD, State.REFUSED]
    orders = Order.objects.filter(sale__stock=first.stock).order_by("id")
    assert [(order.sale_id, order.unit_price) for order in orders] == [
        (first.pk, Decimal("15.00")),
        (later.pk, Decimal("12.50")),
        (first.pk, Decimal("15.00")),
    ]
    assert orders[0].hold_expires_at - orders[1].hold_expires_at == timedelta(seconds=600 - 60)
    # What the buyers are told is the end of their own sale's hold, and none for who got nothing.
    told = [each.record.hold_expires_ms for each in settlement.settled]
    assert told == [order_rows.end_ms(State(order.state), order.hold_expires_at) for order in orders]
    assert told[2] is None


def test_dead_letters_are_refused_and_their_units_stay_free(card: SaleCard, settle: Callable[..., Settlement]) -> None:
    settlement = settle(card, request(card, "ann", seq=1), dead=True)
    assert states(settlement) == [State.REFUSED]
    assert settlement.figures == StockFigures(available=2, held=0, sold=0, version=1)
    assert Order.objects.get(sale_id=card.sale_id).reason == "dead_letter"


def test_a_dead_letter_that_was_decided_after_all_keeps_its_outcome(
    card: SaleCard, settle: Callable[..., Settlement]
) -> None:
    asked = request(card, "ann", seq=1)
    settle(card, asked)
    assert states(settle(card, asked, dead=True)) == [State.HELD]


def test_a_settlement_leaves_no_lock_behind(card: SaleCard, settle: Callable[..., Settlement]) -> None:
    settle(card, request(card, "ann", seq=1))
    with django_connection.cursor() as cursor:
        # Of workers: the web process of other tests may have been stopped within a transaction.
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE state LIKE 'idle in transaction%' AND application_name = 'fairdrop-worker'"
        )
        assert cursor.fetchone() == (0,)
