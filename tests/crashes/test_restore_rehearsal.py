"""Loses the database of a shop that sells, and follows docs/restoring.md to the end, with its own commands: from base
backup and archive, and by a standby that was behind. Each buyer ends with what they had, once, and paid once.
The control: before the walk, the restored books lack what was decided last.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from inventory import redis
from inventory.redis import keys
from shop.models import Order, Sale
from tests.support import road
from tests.support.crashes.extra_shop import own_valkey
from tests.support.crashes.rehearsal import Rehearsal, block, commands_of_the_walk, rehearsing, running_standby
from tests.support.crashes.restored_shop import (
    Restored,
    SandboxBooks,
    assert_all_is_right,
    sell_before_backup,
    sell_until_lost,
)
from tests.support.servers.shop_processes import migrate
from tests.support.shopkeeping import shop_of
from tests.support.waiting import wait_until


@pytest.fixture
def primary() -> Iterator[Rehearsal]:
    with rehearsing() as found:
        yield found


@pytest.fixture
def environment(primary: Rehearsal, process_environment: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """Work on a shop with stores of its own, whose tables are made."""
    with own_valkey(tmp_path) as valkey:
        own = {**process_environment, "DATABASE_URL": primary.store.url, "REDIS_URL": valkey.url}
        migrate(environment=own)
        with shop_of(own):
            yield own


@contextmanager
def lost(sold: Restored, environment: dict[str, str]) -> Iterator[Restored]:
    """Sell on, and lose the database in the block; the provider's books are not lost with it."""
    found = sell_until_lost(sold, environment)
    books = SandboxBooks()
    connections["default"].close()
    yield found
    with shop_of(environment):
        books.carry_over()


def walk(restored: Restored) -> None:
    """Do the document's steps from after_restore to the end. Nothing may be left to a person."""
    name, bring_back, audit, resume = commands_of_the_walk()
    with pytest.raises(CommandError, match="somebody has to decide"):
        manage(name)
    assert Sale.objects.get(pk=restored.card.sale_id).operator_state == "paused"
    manage(bring_back)
    manage(audit)
    manage(resume.replace("SLUG", restored.card.slug))


def manage(command: str) -> None:
    call_command(*shlex.split(command), stdout=StringIO())


def assert_nothing_is_there_yet(restored: Restored) -> None:
    """The control."""
    assert Order.objects.filter(sale_id=restored.card.sale_id).count() == len(restored.kept)
    assert not Order.objects.filter(request_id__in=restored.all_lost).exists()
    with pytest.raises(KeyError):
        assert_all_is_right(restored)


def assert_the_sale_goes_on(restored: Restored) -> None:
    """Everybody has what they had, and the one who waited still waits in the line that is open again."""
    road.settle_line(restored.card)
    assert_all_is_right(restored)
    assert redis.connect().zrange(keys.line(restored.card.sku), 0, -1) == restored.waiting


def test_a_disk_lost_in_mid_sale_comes_back_from_base_backup_and_archive(
    primary: Rehearsal, environment: dict[str, str]
) -> None:
    primary.keep_archive()
    primary.back_up()
    sold = sell_before_backup()
    primary.archive()
    (primary.backup / "wal").rename(primary.backup / "away")  # the archive takes no more
    with lost(sold, environment) as restored:
        primary.store.kill()
        (primary.backup / "away").rename(primary.backup / "wal")
        primary.restore()
    assert_nothing_is_there_yet(restored)
    walk(restored)
    assert_the_sale_goes_on(restored)


def test_a_standby_that_was_behind_takes_over(primary: Rehearsal, environment: dict[str, str]) -> None:
    with running_standby(primary) as standby:
        sold = sell_before_backup()
        written = primary.ask("SELECT pg_current_wal_lsn()")
        wait_until(lambda: standby.ask(f"SELECT pg_last_wal_replay_lsn() >= '{written}'"))
        standby.store.stop()  # it was away when the last orders were decided
        with lost(sold, {**environment, "DATABASE_URL": standby.store.url}) as restored:
            primary.store.kill()
            standby.store.start_again()
            assert block("sh", holding="promote") == ["pg_ctlcluster 15 main promote"]
            standby.ask("SELECT pg_promote(false)")
            standby.wait_until_promoted()
        with shop_of(restored.environment):
            assert_nothing_is_there_yet(restored)
            walk(restored)
            assert_the_sale_goes_on(restored)


def test_a_standby_can_be_waited_for_by_the_name_that_it_has(primary: Rehearsal) -> None:
    """The control: before it is asked to, nothing waits."""
    with running_standby(primary):
        state = "SELECT sync_state FROM pg_stat_replication WHERE application_name = 'standby'"
        wait_until(lambda: primary.ask(state) == "async")
        for line in block("sql", holding="synchronous_standby_names"):
            primary.ask(line)
        wait_until(lambda: primary.ask(state) == "sync")
        primary.ask("CREATE TABLE told ()")
