"""A reconciler that is asked to stop in the middle of a SKU of many orders reads no further, and leaves the rest to
the next one. A real process on stores of its own; the control does not hear the stop.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from inventory import reconcile_requests, redis
from loadtest.bench.harness.fixtures import fill_books
from tests.support import road
from tests.support.crashes.worker_shop import OwnStores, own_stores
from tests.support.servers.shop_processes import running_process
from tests.support.shopkeeping import shop_of
from tests.support.waiting import wait_until

# In the control enough pages are left as well when the machine stands still before the stop is asked for.
ORDERS, ORDERS_OF_CONTROL = 30_000, 90_000
# So many may be under way while the signal arrives.
MAX_PAGES = 10
LISTENING, DEAF = ["manage.py", "run_worker", "reconciler"], ["-m", "tests.support.crashes.deaf_reconciler"]


@pytest.fixture(scope="module")
def stores(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnStores]:
    with own_stores(os.environ, folder=tmp_path_factory.mktemp("stopped")) as own:
        yield own


@pytest.fixture
def sku(stores: OwnStores, shop_database: None, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a SKU with ORDERS orders, or as many as the test asks for, and their records."""
    with shop_of(stores.environment):
        yield fill_books(f"full-{token_hex(4)}", orders=getattr(request, "param", ORDERS)).sku


def pages_read() -> int:
    """Return how many pages of a hash this Redis has given out."""
    (said,) = road.run(("INFO", "commandstats"))
    return int(said.get("cmdstat_hscan", {}).get("calls", 0))


@pytest.fixture
def pages_to_stop(stores: OwnStores, sku: str, tmp_path: Path) -> Callable[[list[str]], int]:
    """Return what starts a reconciler, stops it amid what staff asked for, and counts the pages it still read."""

    def measure(program: list[str]) -> int:
        client = redis.connect()
        with running_process(
            "reconciler", [sys.executable, *program], environment=stores.environment, folder=tmp_path, stop_seconds=60
        ) as child:
            reconcile_requests.ask(client, sku, actor="anna")
            wait_until(lambda: (reconcile_requests.last(client, sku) or {})["state"] == reconcile_requests.RUNNING)
            before = pages_read()
            wait_until(lambda: pages_read() >= before + 5, what="it reads the records")
            child.ask_to_stop()
            before = pages_read()
            assert child.wait(timeout_seconds=900), "it does not stop"
            return pages_read() - before

    return measure


def state_of(sku: str) -> str:
    return str((reconcile_requests.last(redis.connect(), sku) or {})["state"])


def test_a_stop_amid_many_orders_is_obeyed_at_once(sku: str, pages_to_stop: Callable[[list[str]], int]) -> None:
    assert pages_to_stop(LISTENING) <= MAX_PAGES
    assert state_of(sku) == reconcile_requests.ASKED  # the next one begins it again


@pytest.mark.parametrize("sku", [ORDERS_OF_CONTROL], indirect=True)
def test_one_that_does_not_hear_the_stop_compares_to_the_end(
    sku: str, pages_to_stop: Callable[[list[str]], int]
) -> None:
    """The control."""
    assert pages_to_stop(DEAF) > MAX_PAGES
    assert state_of(sku) == reconcile_requests.DONE
