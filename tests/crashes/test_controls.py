"""The controls of the crash tests: without the fence, the unique id or the in-flight record, the audit must fail.
Each run is that of a fault point, with real settlers, done twice: guarded and unguarded.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from inventory import redis
from inventory.locks.lock import Lock
from loadtest.mutants.guards import SEARCH_FOR_ORDERS
from shop.models import Order
from shop.sales.catalogue import SaleCard
from tests.support.crashes.extra_shop import own_postgres, own_valkey
from tests.support.crashes.fault_shop import (
    assert_decided_once_and_in_order,
    full_line,
    latecomers,
    settlers_environment,
    unguarded_settler,
    wait_until_at_rest,
)
from tests.support.crashes.two_primaries import split_brain
from tests.support.road import LOCK_TTL_MS, own_connection, queue, settle_line, take
from tests.support.shopkeeping import audit_of, make_sale, shop_of
from tests.support.waiting import wait_until
from workers.settlement import settle_batch

BUYERS = tuple(f"buyer-{number}" for number in range(8))
LONG_TTL_MS = 600_000


def broken(card: SaleCard) -> set[str]:
    """Return the invariants that the audit finds broken."""
    return {each["id"] for each in audit_of(card)["invariants"] if not each["ok"]}


# --- the fence ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", ["", "fence"], ids=["with the fence", "without the fence"])
def test_the_fence(guard: str, process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path) -> None:
    """A settler is frozen with a batch of the old primary, while another decides the line of the new one."""
    long_locks = {**process_environment, "FAIRDROP_LOCK_TTL_MS": str(LONG_TTL_MS)}
    with split_brain(new_sku(), units=20, folder=tmp_path) as split:
        at_old, at_new = ({**long_locks, "REDIS_URL": url} for url in (split.old_url, split.new_url))
        split.ask_at(split.old, *BUYERS[:4])
        with unguarded_settler(guard, at_old, folder=tmp_path, fault="after_take:stop", name="sleeper") as sleeper:
            sleeper.wait_until_it_reaches("after_take")
            split.ask_at(split.new, *BUYERS[4:])
            with unguarded_settler("", at_new, folder=tmp_path, name="heir"):
                wait_until(lambda: ordered(split.card) == 4, what="the new line is decided")
            for number in (signal.SIGTERM, signal.SIGCONT):  # it goes on with its batch, and ends after it
                os.kill(sleeper.process.pid, number)
            assert sleeper.process.wait(timeout_seconds=120)
        assert ("fence_raised" in sleeper.log.read_text()) is (guard == "")  # it was refused at the stock row, or not
        if guard:
            assert ordered(split.card) == 8
            assert broken(split.card) >= {"I8", "I16"}
        else:
            assert (ordered(split.card), broken(split.card)) == (4, set())


def ordered(card: SaleCard) -> int:
    """Return how many requests of a sale have an order."""
    return Order.objects.filter(sale_id=card.sale_id).count()


# --- the in-flight record -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", ["", "in-flight record"], ids=["with the record", "without the record"])
def test_the_in_flight_record(
    guard: str, process_environment: dict[str, str], new_sku: Callable[[], str], tmp_path: Path
) -> None:
    """A settler is killed with a batch in its hands; another does the rest of the line."""
    with own_valkey(tmp_path) as valkey:
        environment = settlers_environment(process_environment, valkey_url=valkey.url)
        card = killed_and_inherited(guard, environment, fault="after_take:kill:2", sku=new_sku(), folder=tmp_path)
        with shop_of(environment):
            if guard:
                assert "I4" in broken(card)
            else:
                assert_decided_once_and_in_order(card)


def killed_and_inherited(guard: str, environment: Mapping[str, str], *, fault: str, sku: str, folder: Path) -> SaleCard:
    """Let a settler die at `fault` and another finish the line, both without `guard`; return the sale."""
    environment = {**environment, "FAIRDROP_LOCK_TTL_MS": "500"}
    with shop_of(environment):
        card = full_line(sku, limit=9)
        latecomers(card)
        with unguarded_settler(guard, environment, folder=folder, fault=fault, name="victim") as victim:
            assert victim.process.wait(timeout_seconds=120)
            assert victim.process.exit_code == -signal.SIGKILL
        with unguarded_settler(guard, environment, folder=folder, name="heir"):
            wait_until_at_rest(card)
    return card


# --- the unique request id ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_databases(django_db_setup: None) -> Iterator[tuple[str, str]]:
    """Run a PostgreSQL of this module's own with two databases: a dropped constraint is never missing anywhere else."""
    with own_postgres(environment=os.environ) as postgres:
        address = urlsplit(postgres.url)
        with psycopg.connect(address._replace(path="/template1").geturl(), autocommit=True) as own:
            own.execute(f'CREATE DATABASE bare TEMPLATE "{address.path[1:]}"')  # type: ignore[arg-type]
        yield postgres.url, address._replace(path="/bare").geturl()


@pytest.fixture
def own_books(shop_database: None, own_databases: tuple[str, str]) -> Iterator[None]:
    """Work on the first of them."""
    with shop_of({"DATABASE_URL": own_databases[0], "REDIS_URL": settings.REDIS_URL}):
        yield


def drop_unique_ids() -> None:
    """Take the constraints away that make a request and its movement unique."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shop_order DROP CONSTRAINT IF EXISTS order_once_per_request CASCADE")
        cursor.execute(
            "ALTER TABLE inventory_stockmovement DROP CONSTRAINT IF EXISTS movement_once_per_request_and_kind CASCADE"
        )


@pytest.mark.parametrize("guard", ["", "unique id"], ids=["with known ids", "without them"])
def test_the_unique_id(
    guard: str,
    shop_database: None,
    own_databases: tuple[str, str],
    new_sku: Callable[[], str],
    tmp_path: Path,
) -> None:
    """A settler is killed right after its COMMIT; another is handed the batch again. No constraint helps either."""
    with own_valkey(tmp_path) as valkey:
        database = {**os.environ, "DATABASE_URL": own_databases[1]}
        environment = settlers_environment(database, valkey_url=valkey.url)
        with shop_of(environment):
            drop_unique_ids()
        card = killed_and_inherited(guard, environment, fault="after_commit:kill:2", sku=new_sku(), folder=tmp_path)
        with shop_of(environment):
            if guard:
                assert broken(card) >= {"I3", "I5b"}
            else:
                assert_decided_once_and_in_order(card)


def crash_holder(card: SaleCard) -> None:
    """Let a holder commit four requests and die before it answers them; its lock is gone."""
    lock = Lock(redis.connect(), card.sku, ttl_ms=LOCK_TTL_MS)
    assert lock.acquire()
    handed = take(lock, batch=4)
    assert len(handed.requests) == 4
    with own_connection() as own:
        settle_batch(own, sku=card.sku, fence=lock.fence, requests=handed.requests)
    lock.release()


def test_the_constraint_is_the_net_below(
    own_books: None, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one test, because the last step cannot be taken back: all guards, the constraint alone, none."""
    guarded, constrained, bare = (make_sale(new_sku(), units=20, limit=9) for _ in range(3))
    for card in (guarded, constrained, bare):
        queue(card, *BUYERS)
        crash_holder(card)
    settle_line(guarded)
    assert broken(guarded) == set()
    SEARCH_FOR_ORDERS.take_away(monkeypatch.setattr)
    with pytest.raises(psycopg.errors.UniqueViolation):
        settle_line(constrained)
    assert broken(constrained) == set()
    drop_unique_ids()
    settle_line(bare)
    assert broken(bare) >= {"I3", "I5b"}
