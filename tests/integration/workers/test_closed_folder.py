"""PostgreSQL starts below a folder that is closed to other accounts, as a checkout in /root is, and the folder stays
as closed as it was. Its programs may lie there as well.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import psycopg
import pytest

from tests.support.waiting import PATIENCE_SECONDS
from workers.embedded import places, postgres
from workers.embedded.binaries import postgres_folder
from workers.embedded.server import Server


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that nobody but this account may enter, and a folder for temporary files of this test alone."""
    temporary = Path(tempfile.mkdtemp(prefix="fairdrop-closed-"))
    temporary.chmod(places.PASS)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    folder = temporary / "root"
    folder.mkdir(mode=0o700)
    yield folder
    shutil.rmtree(temporary)


def run(server: Server, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def modes(folder: Path) -> dict[str, int]:
    return {str(each): stat.S_IMODE(each.stat().st_mode) for each in (folder, *folder.parents)}


def test_below_a_closed_folder_it_starts_and_opens_nothing(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = closed / "checkout" / ".fairdrop"
    package = postgres_folder().parents[1]  # as the wheel installs it, with the libraries next to it
    programs = shutil.copytree(postgres_folder().parent, closed / package.name / "programs", symlinks=True)
    shutil.copytree(package.with_name(f"{package.name}.libs"), closed / f"{package.name}.libs")
    monkeypatch.setattr(postgres, "postgres_folder", lambda: programs / "bin")
    data_dir.mkdir(mode=0o700, parents=True)
    before = modes(data_dir)
    with postgres.start_postgres(data_dir) as server:
        server.child.stop_timeout_seconds = PATIENCE_SECONDS  # what it leaves behind would be in the next one's way
        run(server, "CREATE TABLE kept (n int)")
    with postgres.start_postgres(data_dir) as server:  # again, with the data of before
        assert run(server, "SELECT n FROM kept") == []
    assert modes(data_dir) == before


def test_the_control_without_another_place_it_does_not_start(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started by another account than root it runs as that one, which may enter its own folder."""
    monkeypatch.setattr(postgres, "reachable_place", lambda data_dir: data_dir)
    fails = pytest.raises(postgres.ServerFailed) if os.geteuid() == 0 else nullcontext()
    with fails, postgres.start_postgres(closed / "data"):
        pass


def test_an_open_folder_is_used_itself(closed: Path) -> None:
    data_dir = closed.parent / "data"
    data_dir.mkdir(mode=0o700)
    assert places.reachable_place(data_dir) == data_dir
    assert stat.S_IMODE(data_dir.stat().st_mode) == places.PASS
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_a_place_that_nothing_leads_to_any_more_is_removed(closed: Path) -> None:
    first, second = closed / "one", closed / "two"
    first.mkdir()
    second.mkdir()
    gone, stays = places.reachable_place(first), places.reachable_place(second)
    assert places.reachable_place(first) == gone
    shutil.rmtree(first)
    first.mkdir()
    again = places.reachable_place(first)
    assert (gone.exists(), stays.exists(), again.exists()) == (False, True, True)


def test_a_place_that_another_account_has_made_is_not_used(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = closed / "data"
    data_dir.mkdir()
    place = places.reachable_place(data_dir)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert places.reachable_place(data_dir) != place
