"""A child that ends is started again after a pause: longer each time, but two seconds at most; short after a minute."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest

from workers.embedded import supervisor as module
from workers.embedded.child_process import ChildProcess
from workers.embedded.supervisor import HEALTHY_SECONDS, MAX_PAUSE_SECONDS, Supervisor


@pytest.fixture(autouse=True)
def no_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is no supervisor."""
    monkeypatch.setattr(module, "adopt_orphans", lambda: None)


def test_pauses_grow_to_two_seconds_and_end_once_a_child_has_lived_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, reports = 0.0, list[str]()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    child = ChildProcess(name="web", arguments=[sys.executable, "-c", ""])
    watcher = Supervisor(report=reports.append)
    watcher.add(child, stage=0)

    def end_after(seconds: float) -> None:
        """Let the child end so long after its start, and be started again."""
        nonlocal now
        while child.running:
            pass
        now += seconds
        watcher.restart_the_dead()
        now += MAX_PAUSE_SECONDS
        watcher.restart_the_dead()

    for _ in range(5):
        end_after(1)
    end_after(HEALTHY_SECONDS)
    while child.running:
        pass
    pauses = [float(found[1]) for found in map(re.compile(r"again in ([\d.]+) s").search, reports) if found]
    assert pauses == [0.5, 1, 2, 2, 2, 0.5]
    assert not any("log" in text for text in reports)  # it writes to our terminal


@pytest.mark.parametrize("trouble", ["start", "bound_log"])
def test_a_child_that_cannot_be_started_keeps_no_other_from_its_restart(
    monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """It is tried again after the pause, and not at every look."""
    now, tries, reports = 0.0, list[float](), list[str]()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    watcher = Supervisor(report=reports.append)
    first, second = (
        watcher.add(ChildProcess(name=name, arguments=[sys.executable, "-c", ""]), stage=0) for name in ("one", "two")
    )

    def fail() -> None:
        tries.append(now)
        raise BlockingIOError("no process for you")

    monkeypatch.setattr(first, trouble, fail)
    while first.running or second.running:
        pass
    ended = second.pid
    for _ in range(60):
        watcher.restart_the_dead()
        now += 0.1
    assert second.pid != ended
    assert 2 <= len(tries) <= 4
    assert len([text for text in reports if "no process for you" in text]) == len(tries)
    for child in (first, second):
        child.stop()
