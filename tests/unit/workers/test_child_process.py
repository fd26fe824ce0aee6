"""A stopped child leaves nothing of its group, no matter what was killed or deaf before."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import PATIENCE_SECONDS, wait_until
from workers.embedded import child_process
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
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ChildProcess, list[psutil.Process]]:
    monkeypatch.setattr(child_process, "KILL_GRACE_SECONDS", PATIENCE_SECONDS)
    adopt_orphans()
    log_path = tmp_path / "log"
    child = ChildProcess(
        name="family", arguments=[sys.executable, "-c", FAMILY], log_path=log_path, stop_timeout_seconds=0.1
    ).start()
    wait_until(lambda: len(log_path.read_text().splitlines()) == 2, what=log_path.read_text)
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


def test_a_start_that_fails_lets_no_group_of_before_be_signalled(
    family: tuple[ChildProcess, list[psutil.Process]], monkeypatch: pytest.MonkeyPatch
) -> None:
    child, _ = family
    child.stop()
    child.arguments = ["/no/such/program"]
    with pytest.raises(FileNotFoundError):
        child.start()
    signalled: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda *group: signalled.append(group))
    child.stop()
    assert signalled == []


def test_wait_ends_early_when_told(family: tuple[ChildProcess, list[psutil.Process]]) -> None:
    child, _ = family
    assert child.wait(timeout_seconds=60, until=lambda: True) is False
    child.stop()


def test_a_log_is_for_its_owner_alone_also_if_it_was_not(tmp_path: Path) -> None:
    log_path = tmp_path / "log"
    log_path.write_text("of before\n")
    log_path.chmod(0o644)
    before = os.umask(0)  # the control: a file that is opened in any other way
    try:
        (tmp_path / "open").touch()
        write_lines(log_path, count=1)
        write_lines(tmp_path / "new", count=1)
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("log", "new", "open")}
    assert modes == {"log": 0o600, "new": 0o600, "open": 0o666}
    assert log_path.read_text() == "of before\nline 0\n"


def test_a_log_that_grows_ends_and_keeps_what_was_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "MAX_LOG_BYTES", 100)
    log_path, older = tmp_path / "log", tmp_path / "log.1"
    written = write_lines(log_path, count=20)
    assert log_path.stat().st_size > 100  # the control: by itself it goes on growing
    written.bound_log()
    assert (log_path.read_text(), older.read_text()) == ("", "".join(f"line {number}\n" for number in range(20)))
    assert older.stat().st_mode & 0o777 == 0o600
    written.bound_log()
    assert older.exists()
    write_lines(log_path, count=30).bound_log()
    assert older.read_text().splitlines()[-1] == "line 29"


def test_a_child_goes_on_writing_into_a_log_that_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "MAX_LOG_BYTES", 10)
    log_path = tmp_path / "log"
    child = ChildProcess(name="writer", arguments=[sys.executable, "-u", "-c", TWO_LINES], log_path=log_path).start()
    # The end of a line is written by itself.
    wait_until(lambda: log_path.read_text().endswith("\n"), what="it writes")
    assert log_path.stat().st_size > 10
    child.bound_log()
    child.ask_to_stop()
    assert child.wait(timeout_seconds=PATIENCE_SECONDS)
    child.stop()
    assert log_path.read_text() == "after the signal\n"


TWO_LINES = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("before the signal")
signal.sigwait({signal.SIGTERM})
print("after the signal")
"""


def write_lines(log_path: Path, *, count: int) -> ChildProcess:
    """Let a child write so many lines, and end."""
    code = f"for number in range({count}): print('line', number)"
    child = ChildProcess(name="writer", arguments=[sys.executable, "-c", code], log_path=log_path).start()
    assert child.wait(timeout_seconds=PATIENCE_SECONDS)
    child.stop()
    return child
