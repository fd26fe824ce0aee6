"""The demo ends everything it started, whatever was killed before, and refuses with one sentence. Called by pytest."""

from __future__ import annotations

import signal
import socket
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from tests.crashes.demo_run import END_SECONDS, answers, demo_running, refused_demo, still_there, wait_for

WEB, SETTLER, VALKEY, POSTGRES = "granian", "run_worker settler", "valkey-server|redis-server", "postgres -D"


@pytest.mark.parametrize("killed_first", [None, WEB, SETTLER, VALKEY, POSTGRES])
def test_ctrl_c_ends_every_process(killed_first: str | None) -> None:
    with demo_running() as demo:
        family = demo.family()
        assert len(family) >= 5  # the control: web, two settlers and two servers are seen
        if killed_first:
            demo.child(killed_first).kill()
        began = time.monotonic()
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(timeout=END_SECONDS) == 0
        assert time.monotonic() - began <= END_SECONDS
        assert wait_for(lambda: not still_there(family), seconds=1), still_there(family)
        assert not (demo.state_dir / "demo.env").exists()


def test_a_killed_demo_takes_its_children_along() -> None:
    with demo_running() as demo:
        family = demo.family()
        demo.process.kill()
        assert wait_for(lambda: not still_there(family), seconds=END_SECONDS), still_there(family)


def test_killed_children_come_back_and_a_second_demo_is_refused() -> None:
    with demo_running() as demo:
        second = refused_demo(demo.state_dir, port=demo.port)
        assert second.returncode == 1
        assert "already running" in second.stderr
        assert f"process {demo.process.pid}" in second.stderr
        assert second.stdout == ""
        assert len(second.stderr.splitlines()) == 1
        assert demo.process.poll() is None

        for pattern in (WEB, SETTLER):
            killed = demo.child(pattern)
            killed.kill()
            assert wait_for(lambda: _has_another(demo, pattern, killed), seconds=15)  # noqa: B023 - called at once
        assert wait_for(lambda: answers(demo.port), seconds=15)


def _has_another(demo: object, pattern: str, killed: psutil.Process) -> bool:
    try:
        return demo.child(pattern).pid != killed.pid  # type: ignore[attr-defined]
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
