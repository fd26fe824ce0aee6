"""The demo's sale of every two minutes: made once, opened with a line that stands still, over by its own time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from inventory import redis
from inventory.locks.report import report_locks
from shop.models import Sale
from shop.sales import catalogue
from tests.integration.inventory.test_heartbeats import StopAfter
from tests.support.shopkeeping import assert_books_balance, put_away
from workers.demo.editions import EVERY, FIRST_IN, LEAD, STILL, UNITS, Editions, editions
from workers.process_loop import run_until_stopped

pytestmark = pytest.mark.usefixtures("shop_database", "no_edition_left")


@pytest.fixture
def no_edition_left(shop_database: None) -> Iterator[None]:
    """Retire the editions of a test: a notary of another test would read on from where their logs stand."""
    yield
    put_away([each.stock.sku for each in editions()])


class Clock:
    """A clock that goes when it is told to, far behind the stores': what is over by it is over for them too."""

    def __init__(self) -> None:
        self.now = timezone.now() - timedelta(hours=4)

    def __call__(self) -> datetime:
        return self.now


def newest() -> Sale:
    sale = editions().first()
    assert sale is not None
    return sale


def lock_state(sale: Sale) -> str:
    (report,) = report_locks(redis.connect(), [sale.stock.sku])
    return report.state


def test_an_edition_opens_every_two_minutes_and_the_one_before_ends() -> None:
    clock = Clock()
    running = Editions(redis.connect(), lock_ttl_ms=60_000, now=clock)
    assert running.work_once() == 1
    first = newest()
    assert first.opens_at == clock.now + FIRST_IN
    assert (first.stock.total, first.closes_at - first.opens_at) == (UNITS, EVERY)
    assert running.work_once() == 0
    assert lock_state(first) == "free"

    clock.now = first.opens_at - LEAD / 2
    assert running.work_once() == 0
    assert lock_state(first) == "held"  # who asks at the opening stands in a line that can be seen
    clock.now = first.opens_at + STILL
    assert running.work_once() == 1  # the next one is announced as soon as this one is open
    assert lock_state(first) == "free"
    second = newest()
    assert second.opens_at == first.opens_at + EVERY
    # A process that was killed and started again makes nothing twice.
    again = Editions(redis.connect(), lock_ttl_ms=60_000, now=clock)
    assert again.work_once() == 0

    clock.now = first.closes_at + timedelta(milliseconds=1)
    assert again.work_once() == 1  # the third one is announced; the first one needs nobody to close it
    again.close()
    assert lock_state(second) == "free"

    # After a long sleep nobody catches up: one new one comes.
    clock.now += timedelta(hours=3)
    assert again.work_once() == 1
    assert newest().opens_at == clock.now + FIRST_IN
    assert {catalogue.find_sale(each.slug).state_at(timezone.now()) for each in editions()[1:]} == {"closed"}
    assert_books_balance(catalogue.find_sale(first.slug))


def test_they_go_on_when_the_database_is_back() -> None:
    """The control: the step alone raises."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        with connection.cursor() as cursor:
            if steps < 3:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            return int(cursor.execute("SELECT 0") is None)

    with pytest.raises(OperationalError):
        step()
    run_until_stopped(step, stop=StopAfter(4), wait_for_work=lambda: None)
    assert steps == 5
