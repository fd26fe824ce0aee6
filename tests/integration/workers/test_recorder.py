"""The recorded history of sales: written while nobody looks, by one of several reconcilers, in few rows, read without
an invented slope; and how fast a sale decides, without those that were waitlisted. Real servers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.urls import reverse
from django.utils import timezone

from inventory import redis
from inventory.exceptions import RedisUnavailable
from inventory.line import snapshot
from inventory.postgres import TwoKeyAdvisoryLock
from inventory.redis import keys
from shop.models import Order, Sale, SaleSample
from shop.orders import holds
from shop.sales.catalogue import SaleCard
from shop.staff.room import history, speed
from tests.support import road
from tests.support.metrics import samples_of
from tests.support.shopkeeping import make_sale, pay
from tests.support.staff import browser_of
from workers.embedded.server import free_port
from workers.reconciler import recorder
from workers.reconciler.gauges import Gauges
from workers.reconciler.recorder import Recorder, sales_to_record

pytestmark = pytest.mark.usefixtures("shop_database")

REST = history.Figures(3, 0, 0, 0, 0.0, None, None)
BUSY = history.Figures(2, 1, 0, 4, 7.5, 3.0, 9.0)
SECOND = timedelta(seconds=1)


@pytest.fixture
def card(new_sku: Callable[[], str]) -> SaleCard:
    return make_sale(new_sku(), units=3)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a recorder look whenever it is asked."""
    monkeypatch.setattr(recorder, "EVERY_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no decision be too old to count."""
    monkeypatch.setattr(speed, "SPEED_SECONDS", 3600)


def samples(card: SaleCard) -> list[SaleSample]:
    return list(SaleSample.objects.filter(sale_id=card.sale_id).order_by("since"))


def record(card: SaleCard, figures: history.Figures, *, at: datetime) -> None:
    """Write how a sale stands, as a recorder does."""
    with transaction.atomic():
        history.record(card.sale_id, figures, at=at, last=history.last_samples([card.sale_id]).get(card.sale_id))


def counts(sample: SaleSample) -> tuple[int, int, int, int | None]:
    return sample.available, sample.held, sample.sold, sample.waiting


def test_it_records_while_nobody_looks(card: SaleCard, eager: None) -> None:
    worker = Recorder(redis.connect())
    worker.work_once()
    first, second = road.queue(card, f"ann-{card.sku}", f"bob-{card.sku}")
    worker.work_once()
    road.settle_line(card)
    pay(first)
    worker.work_once()
    rows = samples(card)
    assert [counts(each) for each in rows] == [(3, 0, 0, 0), (3, 0, 0, 2), (1, 1, 1, 0)]
    assert (rows[-1].rate or 0) > 0
    assert rows[-1].p50_ms is not None
    assert 0 < rows[-1].p50_ms <= (rows[-1].p99_ms or 0)
    assert second


def test_a_sale_that_rests_costs_one_row(card: SaleCard, eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "GAP", timedelta(hours=1))
    worker = Recorder(redis.connect())
    for _ in range(6):
        worker.work_once()
    rows = samples(card)
    assert len(rows) <= 2  # the very first look knows no pace
    assert rows[-1].until > rows[-1].since


def test_of_several_recorders_one_writes(card: SaleCard, eager: None) -> None:
    with road.own_connection() as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(%s, 0)", [TwoKeyAdvisoryLock.RECORDER])
        assert Recorder(redis.connect()).work_once() == 0
    assert samples(card) == []
    assert Recorder(redis.connect()).work_once() >= 1  # the control
    assert len(samples(card)) == 1


def test_its_time_has_to_have_come(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "EVERY_SECONDS", 3600.0)
    worker = Recorder(redis.connect())
    assert worker.work_once() >= 1
    assert worker.work_once() == 0


def test_without_redis_the_units_are_recorded_all_the_same(card: SaleCard, eager: None) -> None:
    with override_settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"):
        Recorder(redis.connect()).work_once()
    (row,) = samples(card)
    assert counts(row) == (3, 0, 0, None)
    assert row.rate is None


def test_a_line_that_is_damaged_costs_no_other_its_record(
    card: SaleCard, eager: None, new_sku: Callable[[], str]
) -> None:
    damaged = make_sale(new_sku(), units=3)
    road.run(("SET", keys.line(damaged.sku), "no sorted set"))
    Recorder(redis.connect()).work_once()
    road.run(("DEL", keys.line(damaged.sku)))
    assert [[counts(row) for row in samples(each)] for each in (damaged, card)] == [[(3, 0, 0, None)], [(3, 0, 0, 0)]]


def test_only_what_runs_or_has_just_ended_is_recorded(new_sku: Callable[[], str]) -> None:
    soon = make_sale(new_sku(), units=1, opens_in_seconds=30)
    later = make_sale(new_sku(), units=1, opens_in_seconds=3600, closes_in_seconds=7200)
    over = make_sale(new_sku(), units=1, opens_in_seconds=-7200, closes_in_seconds=-3600)
    just_over = make_sale(new_sku(), units=1, opens_in_seconds=-7200, closes_in_seconds=-60)
    retired = make_sale(new_sku(), units=1)
    Sale.objects.filter(pk=retired.sale_id).update(retired_at=timezone.now())
    recorded = {sale.pk for sale in sales_to_record()}
    assert {soon.sale_id, just_over.sale_id} <= recorded
    assert not {later.sale_id, over.sale_id, retired.sale_id} & recorded


@pytest.mark.parametrize("begins_later", [False, True])
def test_a_line_is_shown_until_it_is_decided(
    card: SaleCard, eager: None, monkeypatch: pytest.MonkeyPatch, begins_later: bool
) -> None:
    """However long ago its sale ended; also by a process that starts after that, or has no Redis for a moment."""
    gauges = Gauges()
    worker = Recorder(redis.connect(), noted=gauges.note)

    def undecided() -> float | None:
        worker.work_once()
        return samples_of("".join(gauges.collect())).get(f"fairdrop_line_undecided{{{card.sku}}}")

    (name,) = road.queue(card, f"ann-{card.sku}")
    if not begins_later:
        assert undecided() == 1
    hour = timedelta(hours=1)
    Sale.objects.filter(pk=card.sale_id).update(opens_at=timezone.now() - 2 * hour, closes_at=timezone.now() - hour)
    with monkeypatch.context() as away:
        away.setattr(snapshot, "look_at", Mock(side_effect=RedisUnavailable))
        assert undecided() == (None if begins_later else 1)
    assert [undecided(), undecided()] == [1, 1]
    road.settle_line(card)
    pay(name)
    assert [undecided(), undecided()] == [0, None]


def test_where_nobody_looked_there_is_a_gap_and_no_slope(card: SaleCard) -> None:
    began = timezone.now() - timedelta(minutes=5)
    for seconds, figures in ((0, REST), (2, REST), (4, BUSY), (60, BUSY), (62, BUSY)):
        record(card, figures, at=began + seconds * SECOND)
    points = [(round(at - began.timestamp(), 3), free) for at, free, *_ in history.read_points(card.sale_id)]
    assert points == [(0, 3), (2, 3), (4, 2), (4.001, None), (60, 2), (62, 2)]


def test_only_the_window_is_read_when_it_is_asked_for(card: SaleCard) -> None:
    now = timezone.now()
    record(card, REST, at=now - timedelta(hours=1))
    record(card, BUSY, at=now - timedelta(minutes=1))
    assert [point[1] for point in history.read_points(card.sale_id, seconds=600)] == [2]
    assert [point[1] for point in history.read_points(card.sale_id)] == [3, None, 2]


def test_an_older_look_changes_nothing(card: SaleCard) -> None:
    now = timezone.now()
    record(card, REST, at=now)
    record(card, BUSY, at=now - SECOND)
    record(card, BUSY, at=now)
    assert [counts(each) for each in samples(card)] == [(3, 0, 0, 0)]


def test_a_history_stays_bounded_and_keeps_its_ends_and_gaps(card: SaleCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_SAMPLES", 20)
    began = timezone.now() - timedelta(hours=1)
    for number in range(200):
        late = 60 if number >= 100 else 0
        record(card, REST._replace(waiting=number), at=began + (2 * number + late) * SECOND)
        assert SaleSample.objects.filter(sale_id=card.sale_id).count() <= 20
    rows = samples(card)
    assert rows[0].since == began
    assert rows[-1].waiting == 199
    gaps = [later.since - row.until for row, later in pairwise(rows)]
    assert [gap for gap in gaps if gap > history.GAP] == [timedelta(seconds=62)]
    assert all(row.waiting < later.waiting for row, later in pairwise(rows))  # type: ignore[operator]


def speed_of(card: SaleCard) -> speed.Speed:
    stock_id = Sale.objects.only("stock_id").get(pk=card.sale_id).stock_id
    waitlisted_to = speed.read_waitlisted_to(redis.connect(), card.sku)
    return speed.read_speed(sale_id=card.sale_id, stock_id=stock_id, waitlisted_to=waitlisted_to)


def test_who_was_waitlisted_does_not_count_as_slow(card: SaleCard) -> None:
    names = road.queue(card, *(f"{number}-{card.sku}" for number in range(5)))
    road.settle_line(card)
    quick = speed_of(card)
    assert quick.decided == 3  # the last two wait for a unit to come back
    order = Order.objects.get(request_id=names[0])
    holds.cancel(order.request_id, buyer=order.buyer)
    road.settle_line(card)
    assert Order.objects.filter(sale_id=card.sale_id).count() == 4
    assert speed_of(card).decided == 3
    # The control: without the mark of those that were waitlisted the fourth counts too.
    stock_id = Sale.objects.only("stock_id").get(pk=card.sale_id).stock_id
    assert speed.read_speed(sale_id=card.sale_id, stock_id=stock_id, waitlisted_to=0).decided == 4


def test_who_waited_in_vain_does_not_count_as_slow(card: SaleCard) -> None:
    names = road.queue(card, *(f"{number}-{card.sku}" for number in range(5)))
    road.settle_line(card)
    pay(*names[:3])
    road.settle_line(card)
    assert Order.objects.filter(sale_id=card.sale_id, state="sold_out").count() == 2
    assert speed_of(card).decided == 3


def test_a_room_shows_the_recorded_history(card: SaleCard) -> None:
    began = timezone.now() - timedelta(minutes=30)
    for seconds, figures in ((0, REST), (2, BUSY), (1500, REST)):
        record(card, figures, at=began + seconds * SECOND)
    browser = browser_of("viewer")
    address = reverse("admin:shop_sale_room_live", args=[card.sale_id])

    def free(**query: Any) -> list[float | None]:
        return [point[1] for point in browser.get(address, query).json()["points"]]

    assert free(span="sale") == [3, 2, None, 3]
    assert free() == [3]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM shop_salesample WHERE sale_id = %s", [card.sale_id])
        assert cursor.fetchone() == (3,)  # who looks writes nothing
