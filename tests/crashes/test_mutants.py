"""Switches each guard off in this process and in a database of its own, and must see the audit name what it is for.
The same scene with all guards on is the control. The whole floods are `make mutants`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings as real_settings
from django.db import IntegrityError, connection, transaction
from django.test.utils import override_settings

from inventory import redis
from inventory.exceptions import FenceRefused
from inventory.locks.lock import force_release
from loadtest.mutants.guards import GUARDS, switch_off, switch_off_in_tables
from shop.orders import holds, requests
from shop.sales.catalogue import SaleCard
from shop.staff import sale_control
from tests.support.crashes.extra_shop import own_postgres
from tests.support.road import admit, ask, held_lock, own_connection, queue, settle_line, take
from tests.support.shopkeeping import audit_of, let_holds_end, make_sale, pay, shop_of
from workers.reconciler.loop import Reconciler
from workers.settlement import settle_batch

BUYERS = ("anna", "bert", "cleo", "dora")
REFUSED = (IntegrityError, psycopg.IntegrityError)


# --- the scenes: in each, one guard is all that stands between the shop and the fault ---------------------------------


def a_late_settler(sku: str) -> SaleCard:
    """Who lost the lock with a batch writes it when a unit has come back."""
    card = make_sale(sku, units=4)
    first, *_ = queue(card, *BUYERS)
    late = held_lock(sku)
    handed = take(late)
    sale_control.adjust(card.slug, units=-2, actor="test", reason="two are broken")
    force_release(redis.connect(), sku)
    settle_line(card)
    holds.cancel(first, buyer=BUYERS[0])
    with own_connection() as own, suppress(FenceRefused):
        settle_batch(own, sku=sku, fence=late.fence, requests=handed.requests)
    late.release()
    settle_line(card)
    return card


def clicked_and_handed_out_twice(sku: str) -> SaleCard:
    """A buyer clicks twice, and the batch is handed out again: its settler died between COMMIT and answer."""
    card = make_sale(sku, units=8, limit=2)
    for _ in range(2):
        requests.ask(card, buyer=BUYERS[0], quantity=1, idempotency_key="one wish")
    queue(card, *BUYERS[1:])
    dies = held_lock(sku)
    handed = take(dies)
    with own_connection() as own:
        settle_batch(own, sku=sku, fence=dies.fence, requests=handed.requests)
    dies.release()
    settle_line(card)
    return card


def more_wishes_than_units(sku: str) -> SaleCard:
    """Four ask for two units."""
    card = make_sale(sku, units=2)
    queue(card, *BUYERS)
    settle_line(card)
    return card


def one_buyer_with_two_wishes(sku: str) -> SaleCard:
    """One asks twice, with a key each, where one unit is the limit."""
    card = make_sale(sku, units=4, limit=1)
    admit(card, ask(card, "anna", key="first"), ask(card, "anna", key="second"))
    settle_line(card)
    return card


def a_settler_that_dies(sku: str) -> SaleCard:
    """A settler dies with the line in its hands; others and the reconciler look after it."""
    card = make_sale(sku, units=4)
    queue(card, *BUYERS)
    dies = held_lock(sku)
    assert len(take(dies).requests) == len(BUYERS)
    dies.release()
    settle_line(card)
    Reconciler(redis.connect(), stopping=lambda: False).compare(sku, sale_ids=[card.sale_id])
    settle_line(card)
    return card


def an_eager_expirer(sku: str) -> SaleCard:
    """The expirer goes round three times, while one hold has been paid, one was given up and no other is due."""
    card = make_sale(sku, units=4)
    first, second, *_ = queue(card, *BUYERS)
    settle_line(card)
    pay(first)
    holds.cancel(second, buyer=BUYERS[1])
    for _ in range(3):
        with transaction.atomic(), connection.cursor() as cursor:
            due = holds.find_due(cursor, limit=100_000).get(sku, [])
            holds.expire_due(cursor, sku=sku, request_ids=due)
    return card


def an_expirer_before_the_end(sku: str) -> SaleCard:
    """The expirer goes round a second before a hold is over, and the next in line is given the unit if it is free."""
    card = make_sale(sku, units=1)
    first, _ = queue(card, *BUYERS[:2])
    settle_line(card)
    let_holds_end(first, seconds_ago=-1)
    with transaction.atomic(), connection.cursor() as cursor:
        due = holds.find_due(cursor, limit=100_000).get(sku, [])
        changes = holds.expire_due(cursor, sku=sku, request_ids=due)
    holds.publish(changes)
    settle_line(card)
    return card


def units_that_come_back_one_by_one(sku: str) -> SaleCard:
    """Two stand by after the last unit, and two units come back, one after the other."""
    card = make_sale(sku, units=1, line_capacity=0)
    first, *_ = queue(card, BUYERS[0])
    settle_line(card)
    pay(first)
    admit(card, *(ask(card, name, standby=True) for name in BUYERS[1:]))
    for _ in range(2):
        sale_control.restock(card.slug, units=1, actor="test")
        settle_line(card)
    return card


SCENES: dict[str, Callable[[str], SaleCard]] = {
    "fence": a_late_settler,
    "unique_id": clicked_and_handed_out_twice,
    "conditional_update": more_wishes_than_units,
    "limit": one_buyer_with_two_wishes,
    "in_flight": a_settler_that_dies,
    "expiry": an_eager_expirer,
    "hold_time": an_expirer_before_the_end,
    "standby": units_that_come_back_one_by_one,
}
EVERY_MUTANT = pytest.mark.parametrize("name", SCENES)
WITH_TABLES = pytest.mark.parametrize("name", [name for name, guard in GUARDS.items() if guard.tables])


# --- the books they are played with -----------------------------------------------------------------------------------


@pytest.fixture
def of_tests() -> Iterator[None]:
    """Have the settings that let a guard be switched off."""
    with override_settings(ENVIRONMENT="test"):
        yield


@pytest.fixture(scope="module")
def whole_postgres(django_db_setup: None) -> Iterator[str]:
    """Run a PostgreSQL of this module's own: what is taken out of its tables is missing nowhere else."""
    with own_postgres(environment=os.environ) as postgres:
        yield postgres.url


@pytest.fixture
def whole_books(shop_database: None, whole_postgres: str) -> Iterator[None]:
    """Work on a database in which everything is in its place."""
    with shop_of({"DATABASE_URL": whole_postgres, "REDIS_URL": real_settings.REDIS_URL}):
        yield


@pytest.fixture
def mutated_books(of_tests: None, shop_database: None, whole_postgres: str, name: str) -> Iterator[None]:
    """Work on a copy of it from which a guard's layers are gone."""
    address = urlsplit(whole_postgres)
    with psycopg.connect(address._replace(path="/template1").geturl(), autocommit=True) as own:
        own.execute(f"CREATE DATABASE without_{name} TEMPLATE {address.path[1:]}")  # type: ignore[arg-type]
    copy = address._replace(path=f"/without_{name}").geturl()
    with shop_of({"DATABASE_URL": copy, "REDIS_URL": real_settings.REDIS_URL}):
        with connection.cursor() as cursor:
            switch_off_in_tables(name, cursor)
        yield


@pytest.fixture
def mutated_process(of_tests: None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work without a guard's layers in this process."""
    switch_off(name, patch=monkeypatch.setattr)


def broken(card: SaleCard) -> set[str]:
    """Return the invariants that the audit finds broken."""
    return {each["id"] for each in audit_of(card)["invariants"] if not each["ok"]}


# --- what must be seen ------------------------------------------------------------------------------------------------


def test_every_guard_has_its_scene() -> None:
    assert set(SCENES) == set(GUARDS)


@EVERY_MUTANT
def test_with_its_guard_the_scene_is_clean(name: str, whole_books: None, new_sku: Callable[[], str]) -> None:
    """The control."""
    assert broken(SCENES[name](new_sku())) == set()


@EVERY_MUTANT
def test_without_its_guard_the_audit_names_it(
    name: str, mutated_books: None, mutated_process: None, new_sku: Callable[[], str]
) -> None:
    assert broken(SCENES[name](new_sku())) & GUARDS[name].names


@WITH_TABLES
def test_the_tables_stand_behind_the_program(
    name: str, whole_books: None, mutated_process: None, new_sku: Callable[[], str]
) -> None:
    """With the program's layers off and the tables' on, nothing that is forbidden is written."""
    sku = new_sku()
    with pytest.raises(REFUSED):
        SCENES[name](sku)
