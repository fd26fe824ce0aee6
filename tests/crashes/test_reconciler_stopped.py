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
from inventory.redis import keys
from loadtest.bench.harness.fixtures import fill_books
from tests.support import road
from tests.support.crashes.lossy_road import through_proxy
from tests.support.crashes.worker_shop import OwnStores, own_stores
from tests.support.servers.shop_processes import running_process
from tests.support.shopkeeping import shop_of
from tests.support.waiting import wait_until

# Sixty pages.
ORDERS = 30_000
# So many may be under way while the signal arrives.
MAX_PAGES = 10
LISTENING, DEAF = ["manage.py", "run_worker", "reconciler"], ["-m", "tests.support.crashes.deaf_reconciler"]


@pytest.fixture(scope="module")
def stores(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnStores]:
    with own_stores(os.environ, folder=tmp_path_factory.mktemp("stopped")) as own:
        yield own


@pytest.fixture
def sku(stores: OwnStores, shop_database: None) -> Iterator[str]:
    """Return a SKU with ORDERS orders and their records."""
    with shop_of(stores.environment):
        yield fill_books(f"full-{token_hex(4)}", orders=ORDERS).sku


def pages_read() -> int:
    """Return how many pages of a hash this Redis has given out."""
    (said,) = road.run(("INFO", "commandstats"))
    return int(said.get("cmdstat_hscan", {}).get("calls", 0))


@pytest.fixture
def pages_to_stop(stores: OwnStores, sku: str, tmp_path: Path) -> Callable[[list[str]], int]:
    """Return what starts a reconciler, stops it amid what staff asked for, and counts the pages it still read."""

    def measure(program: list[str]) -> int:
        reconcile_requests.ask(redis.connect(), sku, actor="anna")
        with through_proxy() as (proxy, url):
            # What staff ask for comes first, so this page is of that; it is under way until the stop is asked for.
            page = proxy.hold_replies(first_words("HSCAN", keys.records(sku)))
            command, environment = [sys.executable, *program], {**stores.environment, "REDIS_URL": url}
            with running_process("reconciler", command, environment=environment, folder=tmp_path) as child:
                wait_until(lambda: page.met, what="it reads the records")
                assert state_of(sku) == reconcile_requests.RUNNING
                before = pages_read()
                child.ask_to_stop()
                page.let_go()
                assert child.wait(timeout_seconds=900), "it does not stop"
                return pages_read() - before

    return measure


def first_words(*words: str) -> bytes:
    """Return what a command that begins with `words` contains."""
    return b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words)


def state_of(sku: str) -> str:
    return str((reconcile_requests.last(redis.connect(), sku) or {})["state"])


def test_a_stop_amid_many_orders_is_obeyed_at_once(sku: str, pages_to_stop: Callable[[list[str]], int]) -> None:
    assert pages_to_stop(LISTENING) <= MAX_PAGES
    assert state_of(sku) == reconcile_requests.ASKED  # the next one begins it again


def test_one_that_does_not_hear_the_stop_compares_to_the_end(
    sku: str, pages_to_stop: Callable[[list[str]], int]
) -> None:
    """The control."""
    assert pages_to_stop(DEAF) > MAX_PAGES
    assert state_of(sku) == reconcile_requests.DONE
