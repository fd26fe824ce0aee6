"""A benchmark leaves no data behind, also when it was killed: the next one removes what nobody can come back to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.bench.harness.command import own_folder


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRDROP_STATE_DIR", str(tmp_path))
    return tmp_path


def killed_pid() -> int:
    """Return the number of a process that is gone."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.kill()
    return child.pid


def test_a_folder_of_a_benchmark_that_was_killed_is_removed_by_the_next(state_dir: Path) -> None:
    names = (f"benchmark-{killed_pid()}-x", f"benchmark-{os.getppid()}-x", f"demo-{killed_pid()}-x")
    gone, running, other = (state_dir / name for name in names)
    for folder in (gone, running, other):
        (folder / "valkey").mkdir(parents=True)
    with own_folder() as own:
        assert own.name.startswith(f"benchmark-{os.getpid()}-")
        assert set(state_dir.iterdir()) == {running, other, own}
    assert set(state_dir.iterdir()) == {running, other}


def test_what_was_to_be_kept_is_kept_by_the_next_run_too(state_dir: Path) -> None:
    with own_folder("mutants-", keep=True) as kept:
        (kept / "run.log").touch()
    with own_folder("mutants-"):
        assert (kept / "run.log").exists()
