"""The account PostgreSQL runs as when we are root is made once, even when several runs find it missing at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_SECONDS
from workers.embedded import postgres

RUNS = 2
# As the real one: it looks for the name before it takes its own lock, and what it writes then replaces what is there.
USERADD = """#!/bin/sh
cd "${0%/*}" || exit 1
test -s accounts && exit 9
echo looked >> looks
until=$(($(date +%s) + WAIT))
until test "$(wc -l < looks)" -ge RUNS || test "$(date +%s)" -ge $until; do sleep 0.02; done
echo made >> accounts
"""


def make_accounts(folder: Path, monkeypatch: pytest.MonkeyPatch, *, wait_seconds: int) -> int:
    """Let RUNS threads make the account at once; return how often it was made. wait_seconds: for the others' look."""
    accounts = folder / "accounts"
    program = folder / "useradd"
    program.write_text(USERADD.replace("RUNS", str(RUNS)).replace("WAIT", str(wait_seconds)))
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(postgres, "_account_exists", accounts.exists)
    monkeypatch.setattr(postgres, "USERADD_TIMEOUT_SECONDS", 2 * PATIENCE_SECONDS)
    with ThreadPoolExecutor(RUNS) as runs:
        for made in [runs.submit(postgres._make_account) for _ in range(RUNS)]:
            made.result()
    return len(accounts.read_text().split())


def test_of_two_runs_at_once_one_makes_the_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_accounts(tmp_path, monkeypatch, wait_seconds=1) == 1


def test_the_control_without_the_lock_both_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    assert make_accounts(tmp_path, monkeypatch, wait_seconds=int(PATIENCE_SECONDS)) == RUNS
