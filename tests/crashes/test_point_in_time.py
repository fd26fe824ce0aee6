"""Runs the commands of docs/restoring.md on a real PostgreSQL: base backup, WAL archive, recovery to a moment.
The control: without the archive, the base backup alone lacks what came after it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.crashes.rehearsal import Rehearsal, rehearsing
from tests.support.waiting import wait_until

FAILED = "SELECT failed_count FROM pg_stat_archiver"


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


def test_a_segment_that_was_archived_before_a_crash_is_archived_again(rehearsal: Rehearsal) -> None:
    """The control: another one of its name is refused, and stays as it was."""
    back_up(rehearsal)
    rehearsal.ask("INSERT INTO told VALUES ('before the crash')")
    segment = str(rehearsal.ask("SELECT pg_walfile_name(pg_switch_wal())"))
    assert failures_of_again(rehearsal, segment) == 0
    copy = rehearsal.backup / "wal" / segment
    copy.write_text("of another server")
    assert failures_of_again(rehearsal, segment)
    assert copy.read_text() == "of another server"


def failures_of_again(rehearsal: Rehearsal, segment: str) -> object:
    """Let the server believe that a segment is not archived yet, as after a crash; return how often it then failed."""
    done = rehearsal.data / "pg_wal" / "archive_status" / f"{segment}.done"
    wait_until(done.exists, what="the segment is noted as archived")
    done.rename(done.with_suffix(".ready"))
    rehearsal.ask("INSERT INTO told VALUES ('since')")
    rehearsal.ask("SELECT pg_switch_wal()")  # wakes the archiver
    wait_until(lambda: done.exists() or rehearsal.ask(FAILED), what="the segment was archived again, or refused")
    return rehearsal.ask(FAILED)


def test_without_the_archive_what_came_after_the_base_backup_is_lost(rehearsal: Rehearsal) -> None:
    """The control."""
    back_up(rehearsal)
    rehearsal.store.kill()
    rehearsal.data.rename(rehearsal.folder / "lost")
    rehearsal.run("cp -a /srv/backup/base-2026-11-24-0300 /var/lib/postgresql/15/main")
    rehearsal.own(rehearsal.data)
    rehearsal.store.start_again()
    assert rows(rehearsal) is None
