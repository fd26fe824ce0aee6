"""Proves that a settler killed in the middle of a batch costs nobody their place, their unit or much of their time.
Freezes the holder of the lock first, so that every kill surely strikes a batch in flight.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from inventory import redis
from inventory.line import reading
from inventory.redis import keys
from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.support.crashes.extra_shop import own_valkey
from tests.support.servers.shop_processes import settler_process
from tests.support.shopkeeping import assert_books_balance, close_sale, fill_line, make_sale, shop_of
from tests.support.waiting import wait_until
from workers.embedded.child_process import ChildProcess

LOCK_TTL_SECONDS = 1.5
# So long that a lock is not there only because it was given back.
LONG_TTL_SECONDS = 60.0
# An unfinished batch is finished within the lock's life and a look of the others, every half second: the rest is for a
# machine that is busy. Without the lock's life it would never be.
INHERIT_SECONDS = 90.0
BUYERS, UNITS = 12_000, 5_000
# So small that a line lasts for seconds: a test that stands still for a moment still finds it unfinished.
BATCH = 20
KILLS = 3


@dataclass
class Line:
    """A long line of one SKU, and as many settlers as a test starts."""

    card: SaleCard
    start_settler: Callable[..., ChildProcess]

    @property
    def in_flight(self) -> set[str]:
        """The requests that a settler has taken and not answered."""
        return set(redis.connect().zrange(keys.in_flight(self.card.sku), 0, -1))

    @property
    def waiting(self) -> int:
        """How many requests nobody has taken yet."""
        return int(redis.connect().zcard(keys.line(self.card.sku)))

    @property
    def decided(self) -> int:
        """How many requests have been answered."""
        figures = reading.figures(redis.connect(), self.card.sku, sale_id=self.card.sale_id)
        assert figures is not None
        return figures.decided

    @property
    def holder(self) -> int:
        """The process that holds the lock, 0 for nobody."""
        token = redis.connect().get(keys.lock(self.card.sku))
        return int(token.split("|")[1]) if token else 0


@pytest.fixture
def long_line(process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path) -> Iterator[Line]:
    """Let thousands of buyers wait for fewer units, in a Valkey of this test's own."""
    with ExitStack() as running:
        valkey = running.enter_context(own_valkey(tmp_path))
        environment = {
            **process_environment,
            "REDIS_URL": valkey.url,
            "FAIRDROP_SETTLE_BATCH": str(BATCH),
        }
        running.enter_context(shop_of(environment))
        card = make_sale(new_sku(), units=UNITS, line_capacity=BUYERS)
        fill_line(card, buyers=BUYERS)
        close_sale(card)

        def start_settler(*, lock_ttl_seconds: float = LOCK_TTL_SECONDS) -> ChildProcess:
            own = {**environment, "FAIRDROP_LOCK_TTL_MS": str(round(lock_ttl_seconds * 1000))}
            return running.enter_context(settler_process(own, folder=tmp_path))

        yield Line(card, start_settler)


def freeze_holder(long_line: Line, settlers: list[ChildProcess]) -> ChildProcess:
    """Freeze the settler that holds the lock while a batch is in flight and others wait; return it."""

    def caught() -> ChildProcess | None:
        holder = long_line.holder
        settler = next((each for each in settlers if each.pid == holder and each.running), None)
        if settler is None:
            return None
        os.kill(settler.pid, signal.SIGSTOP)
        if long_line.holder == settler.pid and long_line.in_flight and long_line.waiting:
            return settler
        os.kill(settler.pid, signal.SIGCONT)
        return None

    return wait_until(caught, what="a settler is in the middle of a batch")


def kill_in_a_batch(long_line: Line, settlers: list[ChildProcess]) -> float:
    """Kill the settler that holds the lock in the middle of a batch; return the seconds until others finished it."""
    before = long_line.decided
    wait_until(lambda: long_line.decided > before)
    victim = freeze_holder(long_line, settlers)
    unfinished = long_line.in_flight
    assert unfinished
    assert 0 < long_line.decided < BUYERS
    os.kill(victim.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    wait_until(lambda: not unfinished & long_line.in_flight, what="the batch is inherited")
    return time.monotonic() - killed_at


def wait_until_all_is_decided(long_line: Line) -> None:
    wait_until(lambda: long_line.decided >= BUYERS, timeout_seconds=900, what="everything is decided")


def assert_decided_once_and_in_order(card: SaleCard) -> None:
    """Fail unless the first in line hold every unit, the rest were told, and nobody was forgotten or told twice."""
    counts = assert_books_balance(card)
    assert (counts["decided"], counts["orders_held"], counts["orders_sold_out"]) == (BUYERS, UNITS, BUYERS - UNITS)
    states = list(Order.objects.filter(sale_id=card.sale_id).order_by("seq").values_list("state", flat=True))
    assert states == ["held"] * UNITS + ["sold_out"] * (BUYERS - UNITS)


def test_settlers_killed_again_and_again_leave_nothing_undone(long_line: Line) -> None:
    settlers = [long_line.start_settler() for _ in range(2)]
    for _ in range(KILLS):
        seconds = kill_in_a_batch(long_line, settlers)
        assert seconds < LOCK_TTL_SECONDS + INHERIT_SECONDS
        settlers.append(long_line.start_settler())
    wait_until_all_is_decided(long_line)
    assert [each.exit_code for each in settlers].count(-signal.SIGKILL) == KILLS
    assert_decided_once_and_in_order(long_line.card)


def test_nobody_touches_the_batch_while_the_dead_settlers_lock_lives(long_line: Line) -> None:
    victim = freeze_holder(long_line, [long_line.start_settler()])
    unfinished, waiting = long_line.in_flight, long_line.waiting
    long_line.start_settler()
    os.kill(victim.pid, signal.SIGKILL)

    def expired() -> bool:
        seen = (long_line.in_flight, long_line.waiting)
        if long_line.holder != victim.pid:
            return True
        assert seen == (unfinished, waiting)
        return False

    wait_until(expired)
    wait_until_all_is_decided(long_line)
    assert_decided_once_and_in_order(long_line.card)


def test_a_frozen_settler_that_wakes_up_writes_nothing_any_more(long_line: Line) -> None:
    settlers = [long_line.start_settler()]
    sleeper = freeze_holder(long_line, settlers)
    heir = long_line.start_settler()
    wait_until(lambda: long_line.holder == heir.pid, what="another settler took over")
    os.kill(sleeper.pid, signal.SIGCONT)
    wait_until_all_is_decided(long_line)
    assert sleeper.running
    assert_decided_once_and_in_order(long_line.card)


def test_a_settler_asked_to_stop_finishes_its_batch_and_gives_the_lock_back(long_line: Line) -> None:
    settler = long_line.start_settler(lock_ttl_seconds=LONG_TTL_SECONDS)
    wait_until(lambda: long_line.decided > 0)
    settler.ask_to_stop()
    assert settler.wait(timeout_seconds=120)
    assert settler.exit_code == 0
    assert 0 < long_line.decided < BUYERS
    assert (long_line.in_flight, long_line.holder) == (set(), 0)
    long_line.start_settler()
    wait_until_all_is_decided(long_line)
    assert_decided_once_and_in_order(long_line.card)
