"""A stopped child leaves nothing of its group, no matter what was killed or deaf before."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from workers.embedded.child_process import ChildProcess, adopt_orphans

# A leader with one child; both write a line when they are ready, and both are deaf to SIGTERM.
FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.write(1, b"child %d\\n" % os.getpid())
else:
    os.write(1, b"leader %d\\n" % os.getpid())
time.sleep(60)
"""


@pytest.fixture
def family(tmp_path: Path) -> tuple[ChildProcess, list[psutil.Process]]:
    adopt_orphans()
    log_path = tmp_path / "log"
    child = ChildProcess(
        name="family", arguments=[sys.executable, "-c", FAMILY], log_path=log_path, stop_timeout_seconds=0.1
    ).start()
    deadline = time.monotonic() + 20
    while len(log_path.read_text().splitlines()) < 2:
        assert time.monotonic() < deadline, log_path.read_text()
        time.sleep(0.01)
    return child, [psutil.Process(int(line.split()[1])) for line in log_path.read_text().splitlines()]


def test_deaf_family_is_killed(family: tuple[ChildProcess, list[psutil.Process]]) -> None:
    child, processes = family
    assert all(process.is_running() for process in processes)  # the control
    child.stop()
    assert [process for process in processes if process.is_running()] == []
    assert child.exit_code == -signal.SIGKILL


def test_orphan_of_a_killed_leader_is_killed(family: tuple[ChildProcess, list[psutil.Process]]) -> None:
    child, processes = family
    psutil.Process(child.pid).kill()
    assert child.wait(timeout_seconds=120)
    assert any(process.is_running() for process in processes)  # the control: the orphan lives on
    child.stop()
    assert [process for process in processes if process.is_running()] == []


def test_stopping_twice_signals_nobody(family: tuple[ChildProcess, list[psutil.Process]]) -> None:
    child, _ = family
    child.stop()
    child.stop()
    assert not child.running


def test_wait_ends_early_when_told(family: tuple[ChildProcess, list[psutil.Process]]) -> None:
    child, _ = family
    assert child.wait(timeout_seconds=60, until=lambda: True) is False
    child.stop()
