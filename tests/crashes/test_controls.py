"""The controls of the crash tests: without the fence, the unique id or the in-flight record, the audit must fail.
Each run is done twice, guarded and unguarded; only what a test process patches in itself takes a guard away.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from inventory import keys, ledger, line, redis
from inventory.exceptions import FenceRefused
from inventory.locks import Lock
from shop import orders
from shop.catalogue import SaleCard
from tests.crashes.extra_shop import own_postgres
from tests.crashes.two_primaries import split_brain
from tests.road import LOCK_TTL_MS, own_connection, queue, run, settle_line, take
from tests.shopkeeping import audit_of, make_sale, shop_of
from workers.settlement import settle_batch

BUYERS = tuple(f"buyer-{number}" for number in range(8))


def broken(card: SaleCard) -> set[str]:
    """Return the invariants that the audit finds broken."""
    return {each["id"] for each in audit_of(card)["invariants"] if not each["ok"]}


def without(text: str, part: str) -> str:
    """Return `text` without the guard `part`, which must be there."""
    assert text.count(part) == 1, f"the guard {part!r} is written otherwise now"
    return text.replace(part, "")


def crash_holder(card: SaleCard, *, committed: bool) -> None:
    """Let a holder take four requests and die, before or after its COMMIT; its lock is gone."""
    lock = Lock(redis.connect(), card.sku, ttl_ms=LOCK_TTL_MS)
    assert lock.acquire()
    handed = take(lock, batch=4)
    assert len(handed.requests) == 4
    if committed:
        with own_connection() as own:
            settle_batch(own, sku=card.sku, fence=lock.fence, requests=handed.requests)
    lock.release()


# --- the fence ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarded", [True, False], ids=["with the fence", "without the fence"])
def test_the_fence(
    guarded: bool, shop_database: None, new_sku: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr(ledger, "CLAIM", without(ledger.CLAIM, " AND fence <= %(fence)s"))
    with split_brain(new_sku(), units=20, folder=tmp_path) as split:
        (old, old_batch), (new, new_batch) = split.both_hold(at_old=BUYERS[:4], at_new=BUYERS[4:])
        split.settle_at(split.new, new, new_batch)
        if guarded:
            with pytest.raises(FenceRefused):
                split.settle_at(split.old, old, old_batch)
            assert broken(split.card) == set()
        else:
            split.settle_at(split.old, old, old_batch)
            assert broken(split.card) >= {"I8", "I16"}
        old.release()
        new.release()


# --- the unique request id ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_database(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a PostgreSQL of this module's own: a dropped constraint must never be missing anywhere else."""
    with own_postgres(tmp_path_factory.mktemp("controls"), environment=os.environ) as postgres:
        yield postgres.url


@pytest.fixture
def own_books(shop_database: None, own_database: str) -> Iterator[None]:
    """Work on that PostgreSQL."""
    with shop_of({"DATABASE_URL": own_database, "REDIS_URL": settings.REDIS_URL}):
        yield


def forget_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let settlement no longer find the requests that are decided already."""
    found = "request_id = ANY(%(request_ids)s::text[])"
    assert orders.DECIDED.count(found) == 1
    monkeypatch.setattr(orders, "DECIDED", orders.DECIDED.replace(found, f"{found} AND false"))


def drop_unique_ids() -> None:
    """Take the constraints away that make a request and its movement unique."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shop_order DROP CONSTRAINT IF EXISTS order_once_per_request CASCADE")
        cursor.execute(
            "ALTER TABLE inventory_stockmovement DROP CONSTRAINT IF EXISTS movement_once_per_request_and_kind CASCADE"
        )


def test_the_unique_id(own_books: None, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In one test, because the last step cannot be taken back: all guards, the constraint alone, none."""
    guarded, constrained, bare = (make_sale(new_sku(), units=20, limit=9) for _ in range(3))
    for card in (guarded, constrained, bare):
        queue(card, *BUYERS)
        crash_holder(card, committed=True)
    settle_line(guarded)
    assert broken(guarded) == set()
    forget_outcomes(monkeypatch)
    with pytest.raises(psycopg.errors.UniqueViolation):
        settle_line(constrained)
    assert broken(constrained) == set()
    drop_unique_ids()
    settle_line(bare)
    assert broken(bare) >= {"I3", "I5b"}


# --- the in-flight record -------------------------------------------------------------------------------------------


def lose_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `take` hand requests out without writing down that they are in flight."""
    real = redis.script_text
    originals = {"take": without(real("take"), "redis.call('ZADD', KEYS[3], unpack(moved))")}
    monkeypatch.setattr(redis, "script_text", lambda name: originals.get(name) or real(name))
    monkeypatch.setattr(
        redis,
        "script_digest",
        lambda name: hashlib.sha1(redis.script_text(name).encode(), usedforsecurity=False).hexdigest(),
    )


@pytest.mark.parametrize("guarded", [True, False], ids=["with the record", "without the record"])
def test_the_in_flight_record(
    guarded: bool, shop_database: None, new_sku: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = make_sale(new_sku(), units=20)
    queue(card, *BUYERS)
    if not guarded:
        lose_flights(monkeypatch)
    crash_holder(card, committed=False)
    assert run(("ZCARD", keys.in_flight(card.sku))) == [4 if guarded else 0]
    settle_line(card)
    assert ("I4" in broken(card)) is not guarded
    assert broken(card) == set() or not guarded
    assert line.check(redis.connect(), card.sku).waiting == 0
