"""Migrating while others use the tables: it waits shortly for a lock, tries again, and leaves nothing half done."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.core.management import call_command
from django.db import IntegrityError, connection, models
from django.db.migrations import AddField, Migration

from inventory.management.commands.migrate import drop_invalid_indexes, locks_nobody_out
from tests.support.crashes.extra_shop import OwnStore, own_postgres
from tests.support.servers import shop_processes
from tests.support.servers.shop_processes import ROOT, running_process
from tests.support.waiting import wait_until

# What comes after it changes tables that buyers use.
BEFORE = ("shop", "0027")


@pytest.fixture(scope="module")
def own(django_db_setup: None) -> Iterator[OwnStore]:
    with own_postgres(environment=os.environ, targets=(BEFORE,)) as store:
        yield store


@pytest.fixture
def postgres(own: OwnStore) -> OwnStore:
    """Return a database in which BEFORE is the last migration."""
    shop_processes.migrate(*BEFORE, environment=environment_of(own))
    return own


@contextmanager
def reader(store: OwnStore) -> Iterator[psycopg.Connection]:
    """Have read the table of orders in a transaction that does not end before the block does."""
    with psycopg.connect(store.url) as holder:
        holder.execute("SELECT count(*) FROM shop_order")
        yield holder
        holder.rollback()


def environment_of(store: OwnStore) -> Mapping[str, str]:
    return {**os.environ, "DATABASE_URL": store.url}


def applied(store: OwnStore) -> set[str]:
    with psycopg.connect(store.url) as looker:
        rows = looker.execute("SELECT name FROM django_migrations WHERE app = 'shop'").fetchall()
    return {name for (name,) in rows}


def migrate(store: OwnStore, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "migrate", "shop", "0028", *options], cwd=ROOT, text=True, timeout=300,
        env=environment_of(store), capture_output=True, check=False,
    )  # fmt: skip


def test_without_a_lock_nothing_is_done_and_the_exit_says_so(postgres: OwnStore) -> None:
    """The control of the one below: with one try alone."""
    with reader(postgres):
        done = migrate(postgres, "--tries", "1", "--lock-seconds", "0.1")
    assert done.returncode == 1
    assert "try 1 of 1: no lock, rolled back" in done.stderr
    assert "no try got its locks" in done.stderr
    assert "0028_networks_and_cards" not in applied(postgres)


def test_a_statement_that_takes_too_long_says_what_to_do(postgres: OwnStore) -> None:
    with reader(postgres):
        done = migrate(postgres, "--lock-seconds", "60", "--statement-seconds", "0.5")
    assert done.returncode == 1
    assert "--statement-seconds 0" in done.stderr
    assert "0028_networks_and_cards" not in applied(postgres)


def test_it_is_tried_until_the_lock_is_free_and_others_work_in_between(postgres: OwnStore, tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "migrate", "shop", "0028", "--lock-seconds", "0.2"]
    with (
        reader(postgres) as holder,
        running_process("migrate", command, environment=environment_of(postgres), folder=tmp_path) as child,
    ):
        wait_until(lambda: "try 2 of 30" in (tmp_path / "migrate.log").read_text(), what="it was tried twice")
        with psycopg.connect(postgres.url, options="-c lock_timeout=4s") as buyer:  # the shop's own
            buyer.execute("SELECT count(*) FROM shop_order")
        assert child.running
        assert "0028_networks_and_cards" not in applied(postgres)
        holder.rollback()
        wait_until(lambda: child.exit_code == 0, what="it has migrated")
    assert "0028_networks_and_cards" in applied(postgres)


def test_wrong_options_are_named(postgres: OwnStore) -> None:
    done = migrate(postgres, "--tries", "0")
    assert done.returncode == 1
    assert "--tries must be above 0" in done.stderr


def test_what_is_left_of_an_index_is_dropped_and_one_that_works_stays(shop_database: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE half_built AS SELECT 1 AS number UNION ALL SELECT 1")
        cursor.execute("CREATE INDEX half_built_whole ON half_built (number)")
        try:
            with pytest.raises(IntegrityError):
                cursor.execute("CREATE UNIQUE INDEX CONCURRENTLY half_built_broken ON half_built (number)")
            assert drop_invalid_indexes(["half_built_whole"]) == []
            assert drop_invalid_indexes(["half_built_whole", "half_built_broken"]) == ["half_built_broken"]
            cursor.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'half_built'")
            assert cursor.fetchall() == [("half_built_whole",)]
        finally:
            cursor.execute("DROP TABLE half_built")


def statements(migration: str, **options: bool) -> list[str]:
    """Return what a migration of the shop would have the database do."""
    call_command("sqlmigrate", "shop", migration, stdout=(said := StringIO()), **options)
    lines = said.getvalue().splitlines()
    return [each for each in lines if each and not each.startswith("--") and each not in ("BEGIN;", "COMMIT;")]


@pytest.mark.parametrize("backwards", [False, True])
def test_fields_are_renamed_and_the_database_does_nothing(
    shop_database: None, monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    """So each version finds the columns that it knows. The control: the same operations on the tables."""
    assert statements("0035", backwards=backwards) == []
    migration = import_module("shop.migrations.0035_fields_named_as_their_words").Migration
    monkeypatch.setattr(migration, "operations", migration.operations[0].state_operations)
    found = " ".join(statements("0035", backwards=backwards))
    assert 'RENAME COLUMN "room" TO "line_capacity"' in found
    assert "EXCLUDE USING" in found


def test_only_a_migration_that_locks_nobody_out_may_take_long() -> None:
    migration = Migration("9999_made_up", "shop")
    migration.operations = [AddIndexConcurrently("order", models.Index(fields=["seq"], name="order_by_seq"))]
    assert locks_nobody_out(migration)
    migration.operations.append(AddField("order", "word", models.CharField(null=True)))
    assert not locks_nobody_out(migration)
