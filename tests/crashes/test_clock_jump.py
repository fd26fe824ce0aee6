"""Proves that a jump of the Redis server's clock, forwards or backwards, sells nothing twice and loses nobody.
The clock is moved by libfaketime under a real Valkey; the settlers and PostgreSQL keep the true time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.test.utils import override_settings
from structlog.testing import capture_logs

from inventory import redis
from inventory.exceptions import FenceRefused, LockLost
from inventory.locks.lock import Lock
from inventory.redis import clocks, keys
from shop.models import Order
from shop.sales.catalogue import SaleCard
from shop.sales.priming import prime_sale
from tests.support.http_calls import Caller
from tests.support.road import LOCK_TTL_MS, admit, answer_batch, ask, own_connection, queue, settle_line, take
from tests.support.servers.server_matrix import SERVER, Node, node
from tests.support.servers.shop_processes import web_process
from tests.support.shopkeeping import assert_books_balance, close_sale, make_sale
from tests.support.waiting import wait_until
from workers.settlement import settle_batch

EARLY = tuple(f"early-{number}" for number in range(10))
LATE = tuple(f"late-{number}" for number in range(10))
# What a machine that stands still between two looks adds to the difference of two clocks.
SLACK_SECONDS = 30
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
        self.file.write_text(f"{seconds:+d}s\n")
        wait_until(lambda: abs(self.offset() - seconds) < 5, what="the clock has jumped")

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


def test_a_worker_that_starts_beside_a_wrong_clock_says_so(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = clocks.ClockWatch("Redis")
    monkeypatch.setattr(clocks, "LINE", watch)

    def warnings() -> list[str]:
        # Of clocks alone: a thread that flushes the statistics of a server that is gone may log meanwhile.
        with capture_logs() as told:
            clocks.look(redis.connect())
        return [each["event"] for each in told if each["action"] == "clock_differs"]

    assert warnings() == []
    assert abs(watch.ahead_seconds) < SLACK_SECONDS
    clock.jump(-120)
    assert len(warnings()) == 1
    assert watch.ahead_seconds == pytest.approx(-120, abs=SLACK_SECONDS)


@pytest.fixture
def web(clock: Clock, process_environment: dict[str, str], tmp_path: Path) -> Iterator[Caller]:
    """Run a web process on that server, with its log in tmp_path/web.log."""
    url = f"redis://127.0.0.1:{clock.server.port}/0"
    with web_process({**process_environment, "REDIS_URL": url, "CACHE_URL": url}, folder=tmp_path) as caller:
        yield caller


def shown_and_done(web: Caller, card: SaleCard) -> tuple[str, str, int]:
    """Return the state of a sale by its call and by its page, and what a buyer who asks is told."""
    page = re.search(rb'data-state="(\w+)"', web.get(f"/sales/{card.slug}/").body)
    called = web.get(f"/api/v1/sales/{card.slug}").json().get("state", "")
    return called, page[1].decode() if page else "", web.ask(card.slug, web.new_buyer()).status


OPEN, NOT_OPEN = ("open", "open", 202), ("scheduled", "scheduled", 425)


@pytest.mark.parametrize(
    ("opens_in_seconds", "jump", "before", "after"),
    [(-1000, -3600, OPEN, NOT_OPEN), (600, 3600, NOT_OPEN, OPEN)],
    ids=["an hour back", "an hour ahead"],
)
def test_what_is_shown_goes_by_the_clock_that_opens_the_door(
    opens_in_seconds: float,
    jump: int,
    before: tuple[str, str, int],
    after: tuple[str, str, int],
    clock: Clock,
    web: Caller,
    new_sku: Callable[[], str],
    tmp_path: Path,
) -> None:
    """Whichever clock is the wrong one: the web process's goes as wrong alongside Redis as Redis's alongside it."""
    card = make_sale(new_sku(), units=15, opens_in_seconds=opens_in_seconds, closes_in_seconds=7200)
    wait_until(lambda: shown_and_done(web, card) == before, what="the sale is shown")
    assert "detail" not in web.get("/readyz").json()
    clock.jump(jump)
    wait_until(lambda: shown_and_done(web, card) == after, what="all go by the line's clock")
    wait_until(lambda: "the clock of Redis" in web.get("/readyz").json().get("detail", ""), what="it says so")
    wait_until(lambda: web.get("/readyz").status == 200, what="it is ready all the same")
    wait_until(lambda: "clock_differs" in (tmp_path / "web.log").read_text(), what="the log says so")


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


@pytest.mark.parametrize(("ahead_seconds", "decided"), [(3600, 10), (0, 0)], ids=["an hour ahead", "the true time"])
def test_a_grace_that_a_wrong_clock_began_ends_with_it(
    ahead_seconds: int, decided: int, clock: Clock, new_sku: Callable[[], str]
) -> None:
    """A server that lost its line waits for tickets before it decides; the control: with the true time it does wait."""
    card = make_sale(new_sku(), units=15, opens_in_seconds=-1000, closes_in_seconds=7200)
    queue(card, *EARLY[:1])
    settle_line(card)
    clock.jump(ahead_seconds)
    with override_settings(RESTORE_GRACE_SECONDS=600.0):
        redis.connect().flushall()
        prime_sale(card.slug)
    queue(card, *LATE)
    clock.jump(0)
    settle_line(card)
    assert Order.objects.filter(sale_id=card.sale_id).count() == 1 + decided


def settle_first(sku: str) -> int:
    """Settle the first four of a line under a lock of its own, so that the fence is that of the clock before."""
    with own_connection() as connection, Lock(redis.connect(), sku, ttl_ms=LOCK_TTL_MS) as lock:
        handed = take(lock, batch=4)
        done = settle_batch(connection, sku=sku, fence=lock.fence, requests=handed.requests)
        return answer_batch(redis.connect(), sku, token=lock.token, call=1, figures=done.figures, settled=done.settled)


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
