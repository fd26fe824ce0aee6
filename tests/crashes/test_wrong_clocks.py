"""Proves that a sale opens by the clock of Redis and holds end by PostgreSQL's, whatever web and workers take for the
time, and that each of these processes says, for as long as it runs, that the clocks differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from django.test.utils import override_settings
from django.utils import timezone

from inventory import redis
from inventory.heartbeats import workers
from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.crashes.test_clock_jump import (
    NOT_OPEN,
    OPEN,
    SLACK_SECONDS,
    Clock,
    libfaketime,
    movable_clock,
    shown_and_done,
)
from tests.support.crashes.worker_shop import worker_process
from tests.support.http_calls import Caller
from tests.support.servers.shop_processes import web_process
from tests.support.shopkeeping import make_sale
from tests.support.waiting import wait_until

HOUR_SECONDS = 3600
DIFFERENCES = [HOUR_SECONDS, -HOUR_SECONDS]
NAMES = ["an hour ahead", "an hour back"]


@pytest.fixture(params=DIFFERENCES, ids=NAMES)
def ahead_seconds(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def wrong(process_environment: dict[str, str], ahead_seconds: int) -> dict[str, str]:
    """Return the environment of a process whose clock is wrong by so much; the stores keep the true time."""
    return {
        **process_environment,
        "LD_PRELOAD": str(libfaketime()),
        "FAKETIME": f"{ahead_seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@pytest.fixture
def clock(shop_database: None, tmp_path: Path) -> Iterator[Clock]:
    """Run a Valkey whose clock can be moved, and work on it."""
    with movable_clock(tmp_path) as moved, override_settings(REDIS_URL=f"redis://127.0.0.1:{moved.server.port}/0"):
        yield moved


@pytest.fixture
def web(shop_database: None, wrong: dict[str, str], tmp_path: Path) -> Iterator[Caller]:
    with web_process(wrong, folder=tmp_path) as caller:
        yield caller


def gauge(web: Caller, store: str) -> float:
    name = f'fairdrop_clock_ahead_seconds{{store="{store}"}} '
    lines = web.get("/metrics").body.decode().splitlines()
    return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0.0)


def is_about(seconds: float, wanted: float) -> bool:
    return abs(seconds - wanted) < SLACK_SECONDS


def test_a_sale_opens_by_one_clock(
    web: Caller, wrong: dict[str, str], ahead_seconds: int, new_sku: Callable[[], str], tmp_path: Path
) -> None:
    """By the process's own clock the first would be open, or the second not yet."""
    to_come = make_sale(new_sku(), units=5, opens_in_seconds=600, closes_in_seconds=7200)
    open_now = make_sale(new_sku(), units=5, opens_in_seconds=-1000, closes_in_seconds=7200)
    assert_shown(web, to_come, NOT_OPEN)
    assert_shown(web, open_now, OPEN)
    wait_until(lambda: "the clock of PostgreSQL" in web.get("/readyz").json().get("detail", ""), what="it says so")
    for store in ("redis", "postgresql"):
        wait_until(lambda store=store: is_about(gauge(web, store), -ahead_seconds), what=f"{store}'s gauge is right")  # type: ignore[misc]
    wait_until(lambda: "clock_differs" in (tmp_path / "web.log").read_text(), what="the log says so")
    with worker_process("settler", wrong, folder=tmp_path):
        held = wait_until(lambda: Order.objects.filter(sale=open_now.sale_id, state="held").first(), what="it is held")
    assert held.hold_expires_at is not None
    assert abs(seconds_from_now(held.hold_expires_at)) < HOUR_SECONDS / 2


def assert_shown(web: Caller, card: SaleCard, expected: tuple[str, str, int]) -> None:
    wait_until(lambda: shown_and_done(web, card) == expected, what=f"{card.slug} is {expected}")


def seconds_from_now(moment: datetime) -> float:
    return (moment - timezone.now()).total_seconds()


@pytest.mark.parametrize("worker", ["settler", "expirer"])
def test_a_worker_says_that_both_clocks_differ(
    worker: str, shop_database: None, wrong: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / f"{worker}.log"
    with worker_process(worker, wrong, folder=tmp_path):
        for store in ("Redis", "PostgreSQL"):
            wait_until(lambda store=store: said(log, store), what=f"it says that {store}'s differs")


def test_a_worker_says_so_when_a_clock_goes_wrong_while_it_runs(
    clock: Clock, process_environment: dict[str, str], tmp_path: Path
) -> None:
    """The control: before the jump it has nothing to say."""
    url, log = f"redis://127.0.0.1:{clock.server.port}/0", tmp_path / "expirer.log"
    with worker_process("expirer", {**process_environment, "REDIS_URL": url}, folder=tmp_path):
        wait_until(lambda: workers(redis.connect()), what="it works")
        assert "clock_differs" not in log.read_text()
        clock.jump(-120)
        wait_until(lambda: said(log, "Redis"), what="it says that Redis's differs")


def said(log: Path, store: str) -> bool:
    return any("clock_differs" in line and store in line for line in log.read_text().splitlines())


def test_a_web_process_says_so_when_its_clock_goes_wrong_while_it_runs_and_nobody_asks(
    process_environment: dict[str, str], tmp_path: Path
) -> None:
    """The control: before the jump it has nothing to say. `/readyz`, which looks as well, is never called."""
    file, log = tmp_path / "time", tmp_path / "web.log"
    file.write_text("+0s\n")
    movable = {
        **process_environment,
        "LD_PRELOAD": str(libfaketime()),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with web_process(movable, folder=tmp_path) as web:
        for store in ("redis", "postgresql"):
            assert abs(gauge(web, store)) < 1
        assert "clock_differs" not in log.read_text()
        file.write_text("-120s\n")
        for store, name in (("redis", "Redis"), ("postgresql", "PostgreSQL")):
            wait_until(lambda store=store: abs(gauge(web, store) - 120) < 5, what=f"{store} is seen")
            wait_until(lambda name=name: said(log, name), what=f"it says that {name}'s differs")
