"""Proves that a jump of the Redis server's clock, forwards or backwards, sells nothing twice and loses nobody.
The clock is moved by libfaketime under a real Valkey; the settlers and PostgreSQL keep the true time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.test.utils import override_settings
from structlog.testing import capture_logs

from inventory import keys, line_changes, redis
from inventory.exceptions import FenceRefused, LockLost
from inventory.locks import Lock
from tests.road import LOCK_TTL_MS, admit, ask, own_connection, queue, settle_line, take
from tests.server_matrix import SERVER, Node, node
from tests.shopkeeping import assert_books_balance, close_sale, make_sale
from tests.waiting import wait_until
from workers.clock_check import check_clock
from workers.settlement import settle_batch

EARLY = tuple(f"early-{number}" for number in range(10))
LATE = tuple(f"late-{number}" for number in range(10))
INSTALL = "libfaketime is missing: apt-get install --no-install-recommends libfaketime"


def libfaketime() -> Path:
    """Return the library; its folder is the machine's own, so it is asked for and not written down."""
    found = sorted(Path("/usr/lib").glob("**/libfaketime.so.1"))
    assert found, INSTALL
    return found[0]


@dataclass(frozen=True)
class Clock:
    """A Valkey whose clock can be moved."""

    server: Node
    file: Path

    def jump(self, seconds: int) -> None:
        """Move the server's clock by `seconds` from the true time; return when the server shows it."""
        before = self.offset()
        self.file.write_text(f"{seconds:+d}s\n")
        wait_until(lambda: abs(self.offset() - before - seconds) < 5, what="the clock has jumped")

    def offset(self) -> float:
        """Return by how many seconds the server's clock differs from ours."""
        moment, _ = self.server.client.time()
        return float(moment) - time.time()


@pytest.fixture
def clock(shop_database: None, tmp_path: Path) -> Iterator[Clock]:
    """Run a Valkey of this test's own under libfaketime, with the true time, and work on it."""
    with movable_clock(tmp_path) as clock, override_settings(REDIS_URL=f"redis://127.0.0.1:{clock.server.port}/0"):
        yield clock


@contextmanager
def movable_clock(folder: Path) -> Iterator[Clock]:
    file = folder / "time"
    file.write_text("+0s\n")
    environment = {
        "LD_PRELOAD": str(libfaketime()),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with node(folder / "valkey", SERVER, environment=environment) as server:
        yield Clock(server, file)


def test_the_clock_really_jumps(clock: Clock) -> None:
    """The control: a lock of five seconds is gone at once when the server's clock jumps ahead."""
    lock = Lock(redis.connect(), "kite", ttl_ms=LOCK_TTL_MS)
    assert lock.acquire()
    clock.jump(60)
    assert redis.connect().get(keys.lock("kite")) is None
    lock.release()


def test_a_worker_that_starts_beside_a_wrong_clock_says_so(clock: Clock) -> None:
    with capture_logs() as told:
        right = check_clock(redis.connect())
    assert right is not None
    assert abs(right) < 1
    assert told == []
    clock.jump(-120)
    with capture_logs() as told:
        wrong = check_clock(redis.connect())
    assert wrong == pytest.approx(-120, abs=5)
    assert [each["action"] for each in told] == ["clock_differs"]


@pytest.mark.parametrize("seconds", [60, -120], ids=["60 s ahead", "120 s back"])
def test_stock_is_right_after_a_jump(seconds: int, clock: Clock, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=15, opens_in_seconds=-1000)
    before = [answer.seq for answer in admit(card, *(ask(card, buyer) for buyer in EARLY))]
    settled = settle_first(card.sku)
    clock.jump(seconds)
    after = [answer.seq for answer in admit(card, *(ask(card, buyer) for buyer in LATE))]
    assert sorted({*before, *after}) == before + after  # seq still rises strictly
    close_sale(card)
    settle_line(card)
    counts = assert_books_balance(card)
    assert (settled, counts["orders_held"], counts["orders_sold_out"]) == (4, 15, 5)


def settle_first(sku: str) -> int:
    """Settle the first four of a line under a lock of its own, so that the fence is that of the clock before."""
    with own_connection() as connection, Lock(redis.connect(), sku, ttl_ms=LOCK_TTL_MS) as lock:
        handed = take(lock, batch=4)
        done = settle_batch(connection, sku=sku, fence=lock.fence, requests=handed.requests)
        return line_changes.settle(
            redis.connect(), sku, token=lock.token, call=1, figures=done.figures, settled=done.settled
        )


def test_two_holders_by_a_jump_ahead_sell_everything_once(clock: Clock, new_sku: Callable[[], str]) -> None:
    card = make_sale(new_sku(), units=15, opens_in_seconds=-1000)
    queue(card, *EARLY)
    old = Lock(redis.connect(), card.sku, ttl_ms=LOCK_TTL_MS)
    assert old.acquire()
    taken = take(old, batch=4)
    clock.jump(60)
    settle_line(card)  # another holder took the lock while the first one still believes in it
    with own_connection() as connection, pytest.raises(FenceRefused):
        settle_batch(connection, sku=card.sku, fence=old.fence, requests=taken.requests)
    with pytest.raises(LockLost):
        take(old)
    assert assert_books_balance(card)["orders_held"] == len(EARLY)
    old.release()
