"""A benchmark leaves no data behind, also when it was killed: the next one removes what nobody can come back to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.bench.harness.command import own_folder
from loadtest.record import files


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRDROP_STATE_DIR", str(tmp_path))
    return tmp_path


def mark_of_killed() -> str:
    """Return the mark of a process that is gone."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.kill()
    return files.own_mark().replace(str(os.getpid()), str(child.pid), 1)


def test_a_folder_of_a_benchmark_that_was_killed_is_removed_by_the_next(state_dir: Path) -> None:
    names = (f"benchmark-{mark_of_killed()}x", f"benchmark-{files.own_mark()}x", f"demo-{mark_of_killed()}x")
    gone, running, other = (state_dir / name for name in names)
    for folder in (gone, running, other):
        (folder / "valkey").mkdir(parents=True)
    with own_folder() as own:
        assert own.name.startswith(f"benchmark-{os.getpid()}-")
        assert set(state_dir.iterdir()) == {running, other, own}
    assert set(state_dir.iterdir()) == {running, other}


def test_a_folder_whose_process_cannot_be_seen_from_here_is_left_to_its_own_kind(
    state_dir: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container with the same folder numbers its processes itself. The control: it removes its own."""
    elsewhere = tmp_path_factory.mktemp("namespaces") / "pid"
    elsewhere.touch()
    gone = state_dir / f"benchmark-{mark_of_killed()}x"
    gone.mkdir()
    with monkeypatch.context() as container:
        container.setattr(files, "PID_NAMESPACE", elsewhere)
        with own_folder():
            assert gone.exists()
    with own_folder():
        assert not gone.exists()


def test_what_was_to_be_kept_is_kept_by_the_next_run_too(state_dir: Path) -> None:
    with own_folder("mutants-", keep=True) as kept:
        (kept / "run.log").touch()
    with own_folder("mutants-"):
        assert (kept / "run.log").exists()
