"""The demo ends everything it started, whatever was killed before, and refuses with one sentence. Called by pytest."""

from __future__ import annotations

import signal
import socket
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.crashes.demo_run import END_SECONDS, answers, demo_running, refused_demo, still_there, wait_for
from workers import demo

WEB, SETTLER, VALKEY, POSTGRES = "manage.py run_web", "run_worker settler", "valkey-server|redis-server", "postgres -D"


@pytest.mark.parametrize("killed_first", [None, WEB, SETTLER, VALKEY, POSTGRES])
def test_ctrl_c_ends_every_process(killed_first: str | None) -> None:
    with demo_running() as run:
        family = run.family()
        assert len(family) >= 5  # the control: web, two settlers and two servers are seen
        if killed_first:
            run.child(killed_first).kill()
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(timeout=END_SECONDS) == 0
        assert wait_for(lambda: not still_there(family), seconds=END_SECONDS), still_there(family)
        assert not (run.state_dir / "demo.env").exists()


def test_the_demo_waits_ten_seconds_for_its_children_at_most() -> None:
    """What it promises, whatever the machine takes."""
    stages = (demo.CROWD_STOP_SECONDS, demo.WEB_STOP_SECONDS, demo.WORKER_STOP_SECONDS)
    assert sum(stages) + demo.VALKEY_STOP_SECONDS + demo.POSTGRES_STOP_SECONDS <= 10


def test_a_killed_demo_takes_its_children_along() -> None:
    with demo_running() as run:
        family = run.family()
        run.process.kill()
        assert wait_for(lambda: not still_there(family), seconds=END_SECONDS), still_there(family)


def test_killed_children_come_back_and_a_second_demo_is_refused() -> None:
    with demo_running() as run:
        second = refused_demo(run.state_dir, port=run.port)
        assert second.returncode == 1
        assert "already running" in second.stderr
        assert f"process {run.process.pid}" in second.stderr
        assert second.stdout == ""
        assert len(second.stderr.splitlines()) == 1
        assert run.process.poll() is None

        for pattern in (WEB, SETTLER):
            killed = run.child(pattern)
            killed.kill()
            assert wait_for(lambda: _has_another(run, pattern, killed), seconds=END_SECONDS)  # noqa: B023 - called at once
        assert wait_for(lambda: answers(run.port), seconds=END_SECONDS)


def _has_another(run: object, pattern: str, killed: psutil.Process) -> bool:
    try:
        return run.child(pattern).pid != killed.pid  # type: ignore[attr-defined]
    except (StopIteration, psutil.NoSuchProcess):
        return False


def test_a_busy_port_is_one_sentence() -> None:
    with socket.socket() as listener, tempfile.TemporaryDirectory() as folder:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        refused = refused_demo(Path(folder), port=port)
    assert refused.returncode == 1
    assert f"Port {port} is busy" in refused.stderr
    assert "PORT=" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert refused.stdout == ""
