"""A file of a run is seen old or new, never in part; an ordinary write is the control."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from loadtest.record.files import write_whole

TEXTS = tuple(letter * 4_000_000 for letter in "ab")
WRITES = 40


def lengths_seen(path: Path, write: Callable[[Path, str], object]) -> set[int]:
    """Read a file all the time while it is written; return the lengths that were seen."""
    seen, ended = set[int](), threading.Event()

    def read() -> None:
        while not ended.is_set():
            seen.add(path.stat().st_size)

    path.write_text(TEXTS[0])
    reader = threading.Thread(target=read)
    reader.start()
    for number in range(WRITES):
        write(path, TEXTS[number % 2])
    ended.set()
    reader.join()
    return seen


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    assert lengths_seen(tmp_path / "verdict.json", write_whole) == {len(TEXTS[0])}
    assert [path.name for path in tmp_path.iterdir()] == ["verdict.json"]


def test_control_an_ordinary_write_is_seen_in_part(tmp_path: Path) -> None:
    assert lengths_seen(tmp_path / "verdict.json", Path.write_text) != {len(TEXTS[0])}


def test_a_write_that_fails_leaves_the_old_text(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")
    assert path.read_text() == "old"
