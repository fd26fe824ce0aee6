"""Runs the commands of docs/restoring.md on a real PostgreSQL: base backup, WAL archive, recovery to a moment.
The control: without the archive, the base backup alone lacks what came after it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.crashes.rehearsal import Rehearsal, rehearsing


@pytest.fixture
def rehearsal() -> Iterator[Rehearsal]:
    with rehearsing() as found:
        yield found


def back_up(rehearsal: Rehearsal) -> str:
    """Follow the document, write a row before and after a moment; return the moment."""
    rehearsal.keep_archive()
    rehearsal.ask("CREATE TABLE told (at text)")
    rehearsal.back_up()
    rehearsal.ask("INSERT INTO told VALUES ('after the base backup')")
    moment = str(rehearsal.ask("SELECT clock_timestamp()"))
    rehearsal.ask("INSERT INTO told VALUES ('after the moment')")
    rehearsal.archive()
    return moment


def rows(rehearsal: Rehearsal) -> object:
    return rehearsal.ask("SELECT string_agg(at, ', ') FROM told")


def test_the_database_comes_back_as_of_a_moment(rehearsal: Rehearsal) -> None:
    moment = back_up(rehearsal)
    rehearsal.store.kill()
    rehearsal.restore(moment=moment)
    assert rows(rehearsal) == "after the base backup"
    rehearsal.ask("INSERT INTO told VALUES ('since')")  # it takes writes again


def test_a_moment_of_an_earlier_restore_bounds_no_later_one(rehearsal: Rehearsal) -> None:
    moment = back_up(rehearsal)
    rehearsal.store.kill()
    rehearsal.restore(moment=moment)
    (first,) = rehearsal.bases
    first.rename(first.with_name("base-2026-01-01-0300"))  # the name of the next has its minute
    rehearsal.back_up()
    rehearsal.ask("INSERT INTO told VALUES ('since')")
    rehearsal.archive()
    rehearsal.store.kill()
    rehearsal.restore()
    assert rows(rehearsal) == "after the base backup, since"


def test_a_second_try_may_go_further_than_the_first(rehearsal: Rehearsal) -> None:
    moment = back_up(rehearsal)
    rehearsal.store.kill()
    rehearsal.restore(moment=moment)
    rehearsal.clear_first_try()
    rehearsal.restore()
    assert rows(rehearsal) == "after the base backup, after the moment"
    rehearsal.ask("INSERT INTO told VALUES ('since')")
    rehearsal.archive()  # under names that the first try had used


def test_without_the_archive_what_came_after_the_base_backup_is_lost(rehearsal: Rehearsal) -> None:
    """The control."""
    back_up(rehearsal)
    rehearsal.store.kill()
    rehearsal.data.rename(rehearsal.folder / "lost")
    rehearsal.run("cp -a /srv/backup/base-2026-11-24-0300 /var/lib/postgresql/15/main")
    rehearsal.own(rehearsal.data)
    rehearsal.store.start_again()
    assert rows(rehearsal) is None
