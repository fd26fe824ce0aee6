"""A child that ends is started again after a pause: longer each time, but two seconds at most; short after a minute."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest

from workers.embedded import supervisor as module
from workers.embedded.child_process import ChildProcess
from workers.embedded.supervisor import HEALTHY_SECONDS, MAX_PAUSE_SECONDS, Supervisor


def test_pauses_grow_to_two_seconds_and_end_once_a_child_has_lived_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, reports = 0.0, list[str]()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(module, "adopt_orphans", lambda: None)  # this process is no supervisor
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
