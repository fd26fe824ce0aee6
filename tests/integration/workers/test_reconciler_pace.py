"""A comparison of many records keeps to its pace, reads each record once, and keeps nothing else waiting.
Counts what is read: no test asserts how fast the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from inventory import ledger, redis
from inventory.line import repair, writing
from inventory.redis import Client, keys
from loadtest.bench.harness.fixtures import FilledBooks, fill_books
from shop.models import Order, Sale
from tests.support import road
from tests.support.waiting import wait_until
from workers.reconciler import books as reconcile_books
from workers.reconciler import loop, pace
from workers.reconciler.loop import Reconciler
from workers.reconciler.pace import seconds_between_rounds
from workers.reconciler.report import ALARM, Drift

pytestmark = pytest.mark.usefixtures("shop_database")

ORDERS, PAGE = 1_000, 50


@dataclass
class Reading:
    """What a reconciler has read: records by SKU, and when it read the last page."""

    began_at: float = field(default_factory=time.monotonic)
    records: dict[str, int] = field(default_factory=dict)
    pages: list[tuple[float, int]] = field(default_factory=list)

    def note(self, sku: str, size: int) -> None:
        self.records[sku] = self.records.get(sku, 0) + size
        self.pages.append((time.monotonic() - self.began_at, sum(self.records.values())))


@pytest.fixture
def books(new_sku: Callable[[], str]) -> FilledBooks:
    """Return a sale with a thousand orders in every stage, and their records."""
    return fill_books(new_sku(), orders=ORDERS)


@pytest.fixture
def reading(books: FilledBooks, monkeypatch: pytest.MonkeyPatch) -> Reading:
    """Let a reconciler look at this SKU alone, in pages of 50, and note what it reads."""
    noted, read = Reading(), repair.record_pages

    def note(client: Client, sku: str) -> Iterator[dict[str, str]]:
        for page in read(client, sku):
            noted.note(sku, len(page))
            yield page

    monkeypatch.setattr(repair, "record_pages", note)
    monkeypatch.setattr(repair, "READ_PAGE", PAGE)
    on_sale = loop.skus_on_sale
    monkeypatch.setattr(loop, "skus_on_sale", lambda: {sku: on_sale()[sku] for sku in [books.sku]})
    monkeypatch.setattr(loop, "BUSY_SECONDS", 0.05)
    return noted


def set_pace(monkeypatch: pytest.MonkeyPatch, *, at_once: int, a_second: float, round_seconds: float = 3_600) -> None:
    monkeypatch.setattr(pace, "AT_ONCE", at_once)
    monkeypatch.setattr(pace, "ENTRIES_A_SECOND", a_second)
    monkeypatch.setattr(pace, "ROUND_SECONDS", round_seconds)


def rounds(watcher: Reconciler) -> Iterator[int]:
    """Work on and on; yield how many differences each round found."""
    while True:
        yield watcher.work_once()
        time.sleep(0.02)


def watcher_of() -> Reconciler:
    return Reconciler(redis.connect(), stopping=lambda: False)


def test_many_records_are_read_at_a_pace_and_each_once_in_a_round(
    books: FilledBooks, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_pace(monkeypatch, at_once=100, a_second=500)
    for found in rounds(watcher_of()):
        assert found == 0
        if reading.records[books.sku] >= ORDERS:
            break
    assert reading.records == {books.sku: ORDERS}
    assert all(read <= 100 + 500 * second + 2 * PAGE for second, read in reading.pages)
    # Pages were read in more than one round, and the last one no sooner than the pace allows.
    assert reading.pages[-1][0] >= (ORDERS - 100 - 2 * PAGE) / 500


def test_without_a_pace_all_of_them_are_read_at_once(
    books: FilledBooks, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: it is the pace that keeps the records of the first test from being read in the first round."""
    set_pace(monkeypatch, at_once=10**9, a_second=500)
    watcher_of().work_once()
    assert reading.records == {books.sku: ORDERS}


def test_a_round_over_very_many_ends_in_its_time(
    books: FilledBooks, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the pace for few records is: one that takes all entries to their end in two seconds is faster."""
    set_pace(monkeypatch, at_once=0, a_second=1, round_seconds=2.0)
    watcher = watcher_of()
    wait_until(lambda: watcher.work_once() or reading.records[books.sku] >= ORDERS, what="the round is over")


def test_what_has_changed_is_told_while_a_long_comparison_goes_on(
    books: FilledBooks, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_pace(monkeypatch, at_once=0, a_second=1)
    watcher = watcher_of()
    assert watcher.work_once() == 0
    with transaction.atomic(), connection.cursor() as cursor:
        ledger.load_stock(cursor, sku=books.sku, units=2, actor="test", reason="second delivery")
    want = str(Sale.objects.get(slug=books.slug).stock.version)

    def is_told() -> bool:
        watcher.work_once()
        return bool(road.run(("HGET", keys.stock(books.sku), "version")) == [want])

    wait_until(is_told, what="Redis was told of the delivery")
    assert reading.records[books.sku] < ORDERS


def test_drift_is_mended_on_the_way_and_not_at_the_end(
    books: FilledBooks, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LOOK_AGAIN_SECONDS", 0.1)
    page = next(repair.record_pages(redis.connect(), books.sku))
    first = next(name for name in page if Order.objects.get(request_id=name).state != "held")
    record = road.run(("HGET", keys.records(books.sku), first))[0]
    road.run(("HSET", keys.records(books.sku), first, "h" + record[1:]))
    set_pace(monkeypatch, at_once=0, a_second=10)
    reading.records.clear()
    watcher = watcher_of()

    def is_mended() -> bool:
        watcher.work_once()
        return bool(road.run(("HGET", keys.records(books.sku), first)) == [record])

    wait_until(is_mended, what="the record says what its order says")
    assert reading.records[books.sku] < ORDERS


def test_orders_are_read_one_by_one_only_when_one_has_no_record(books: FilledBooks, reading: Reading) -> None:
    def statements() -> tuple[int, int]:
        with CaptureQueriesContext(connection) as captured:
            drifts = watcher_of().compare(books.sku, sale_ids=[books.scope.sale_id])
        walked = [each for each in captured if "(buyer, id) >" in each["sql"]]
        return len(drifts), len(walked)

    assert statements() == (0, 0)
    gone = Order.objects.get(request_id=books.names["paid"][-1])
    live = writing.live_field(sale_id=gone.sale_id, buyer=gone.buyer)
    road.run(("HDEL", keys.records(books.sku), gone.request_id), ("HDEL", keys.live_units(books.sku), live))
    drifts, walked = statements()
    assert drifts == 1
    assert walked == ORDERS // reconcile_books.PAGE + 1
    assert statements() == (0, 0)


def test_live_units_are_added_up_by_buyer_only_when_their_sum_is_wrong(
    books: FilledBooks, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    look = loop.look_at_units
    monkeypatch.setattr(loop, "look_at_units", lambda *args, **named: looks.append(1) or look(*args, **named))
    sale_ids = [books.scope.sale_id]
    assert watcher_of().compare(books.sku, sale_ids=sale_ids) == []
    assert looks == []
    buyer = Order.objects.get(request_id=books.names["held"][0]).buyer
    other = Order.objects.get(request_id=books.names["held"][1]).buyer
    # One too many and one too few: the sum of units is right, and yet two are wrong.
    road.run(
        ("HINCRBY", keys.live_units(books.sku), f"{sale_ids[0]}:{buyer}", 1),
        ("HDEL", keys.live_units(books.sku), f"{sale_ids[0]}:{other}"),
    )
    drifts = watcher_of().compare(books.sku, sale_ids=sale_ids)
    assert [(each.kind, each.done) for each in drifts] == [("live_units", "repaired")] * 2
    assert len(looks) == 2


def test_a_comparison_that_an_error_broke_off_begins_again_soon(
    books: FilledBooks, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_pace(monkeypatch, at_once=200, a_second=100_000)
    monkeypatch.setattr(loop, "REST_SECONDS", 3_600)  # longer than anything is waited for: it begins before a rest
    differing, calls = reconcile_books.OrdersThere.differing, []

    def fail_once(*args: object) -> list[str]:
        calls.append(1)
        if len(calls) == 3:
            reading.records.clear()
            raise DatabaseError("away")
        return differing(*args)

    monkeypatch.setattr(reconcile_books.OrdersThere, "differing", fail_once)
    watcher = watcher_of()
    with pytest.raises(DatabaseError):
        watcher.work_once()
    wait_until(lambda: watcher.work_once() or reading.records.get(books.sku, 0) >= ORDERS, what="a whole round")
    assert reading.records == {books.sku: ORDERS}


@pytest.mark.parametrize(("rest", "looks"), [(10**9, 2), (0, 6)], ids=["paced", "the control"])
def test_the_books_of_a_sku_are_added_up_less_often_the_longer_it_takes(
    books: FilledBooks, reading: Reading, monkeypatch: pytest.MonkeyPatch, rest: int, looks: int
) -> None:
    """All that was ever sold of it is in them. A comparison that somebody asked for always adds them up."""
    monkeypatch.setattr(loop, "BOOKS_REST", rest)
    monkeypatch.setattr(loop.Reconciler, "_is_due", lambda *_: True)
    added, check = [], loop.check_books
    monkeypatch.setattr(loop, "check_books", lambda sku: added.append(sku) or check(sku))
    watcher = watcher_of()
    for _ in range(5):
        assert watcher.work_once() == 0
    assert watcher.compare(books.sku, sale_ids=[books.scope.sale_id]) == []
    assert added == [books.sku] * looks


def test_books_that_are_wrong_are_added_up_in_every_round(
    books: FilledBooks, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "BOOKS_REST", 10**9)
    monkeypatch.setattr(loop.Reconciler, "_is_due", lambda *_: True)
    monkeypatch.setattr(loop, "check_books", lambda sku: [Drift("books", sku, sku, "", ALARM)])
    watcher = watcher_of()
    assert [watcher.work_once() for _ in range(3)] == [1, 1, 1]


def test_books_for_which_the_time_was_not_enough_let_the_rest_of_the_sku_be_compared(
    books: FilledBooks, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(_sku: str) -> list[Drift]:
        raise DatabaseError("canceling statement due to statement timeout")

    monkeypatch.setattr(loop, "BOOKS_REST", 10**9)
    monkeypatch.setattr(loop.Reconciler, "_is_due", lambda *_: True)
    monkeypatch.setattr(loop, "check_books", give_up)
    watcher = watcher_of()
    with pytest.raises(DatabaseError):
        watcher.work_once()
    assert reading.records == {}  # the control: the first comparison ended there
    watcher.work_once()
    assert reading.records == {books.sku: ORDERS}


@pytest.mark.parametrize(("extent", "seconds"), [(0, 60), (100_000, 60), (400_000, 200), (10_000_000, 540)])
def test_the_more_there_is_the_longer_is_the_rest_between_two_rounds(extent: int, seconds: int) -> None:
    assert seconds_between_rounds(extent, min_seconds=60) == seconds


@pytest.mark.parametrize("is_on_sale", [True, False], ids=["a long comparison goes on", "its last sale is retired"])
def test_an_alarm_is_open_from_one_round_to_the_next_and_not_for_ever(
    is_on_sale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told once, then found no more: by the pages until the comparison comes to it again, or because nobody looks."""
    watcher, moment = watcher_of(), [0.0]
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    watcher._news([Drift("record_ahead", "lamp", "ann", "", ALARM)])
    end, open_alarms = loop.ALARM_AGAIN_SECONDS + pace.ROUND_SECONDS, []
    for seconds in (0, end - 1, end):
        moment[0] = seconds
        if is_on_sale:
            watcher._news([])
        open_alarms.append(watcher.open_alarms)
    assert open_alarms == [1, 1, 0]
