"""Runs `manage.py demo` in a state folder of its own, without a flood, and tells which processes belong to it.
Never leaves one behind: leaving the `with` block kills what a failed test left.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from workers.embedded.places import PASS
from workers.embedded.server import free_port

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 900.0
# The demo promises 10 s, and each of its own waits is bounded: much longer, for a machine that is busy.
END_SECONDS = 300.0


class DemoRun:
    """One demo process and everything below it."""

    def __init__(self, state_dir: Path, *, port: int) -> None:
        self.state_dir, self.port = state_dir, port
        self.output_path = state_dir / "output"
        self._output = self.output_path.open("wb")
        self.process = subprocess.Popen(
            demo_command(port), cwd=ROOT, env=demo_environment(state_dir), stdin=subprocess.DEVNULL,
            stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    @property
    def output(self) -> str:
        return self.output_path.read_text()

    def wait_until_it_serves(self) -> DemoRun:
        begun = wait_for(lambda: "Ctrl-C ends" in self.output or self.process.poll() is not None, seconds=START_SECONDS)
        assert begun, self.output
        assert self.process.poll() is None, self.output
        return self

    def family(self) -> list[psutil.Process]:
        """Return every process below the demo."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def children(self, pattern: str) -> list[psutil.Process]:
        """Return the demo's own children whose command line matches."""
        # It inherits the processes of a killed PostgreSQL; the dead among them have no command line.
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if re.search(pattern, command_of(child))]

    def child(self, pattern: str) -> psutil.Process:
        """Return the first of them."""
        return self.children(pattern)[0]

    def close(self) -> None:
        for process in [*(self.family() if self.process.poll() is None else []), self.process]:
            try:
                process.send_signal(signal.SIGKILL)
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        self.process.wait(timeout=END_SECONDS)
        self._output.close()


@contextmanager
def demo_running() -> Iterator[DemoRun]:
    """Run a demo for the length of a `with` block; it serves already."""
    # Not pytest's own folder: PostgreSQL's account must be able to walk to its data.
    state_dir = Path(tempfile.mkdtemp(prefix="fairdrop-demo-"))
    state_dir.chmod(PASS)
    demo = DemoRun(state_dir, port=free_port())
    try:
        yield demo.wait_until_it_serves()
    finally:
        demo.close()
        shutil.rmtree(state_dir, ignore_errors=True)


def demo_command(port: int) -> list[str]:
    return [sys.executable, "manage.py", "demo", "--attempts", "0", "--port", str(port)]


def demo_environment(state_dir: Path) -> dict[str, str]:
    """Return our environment without the tests' servers: the demo starts its own."""
    own = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    return {**own, "FAIRDROP_STATE_DIR": str(state_dir)}


def refused_demo(state_dir: Path, *, port: int) -> subprocess.CompletedProcess[str]:
    """Run a demo that is expected to end by itself at once."""
    return subprocess.run(
        demo_command(port), cwd=ROOT, env=demo_environment(state_dir), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=START_SECONDS,
    )  # fmt: skip


def answers(port: int) -> bool:
    """Tell whether the shop on `port` is alive."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def still_there(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return those that still run; a zombie has ended and waits for its parent only."""
    return [one for one in processes if is_there(one)]


def is_there(process: psutil.Process) -> bool:
    """Say whether a process still runs; it may end while it is asked."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command_of(process: psutil.Process) -> str:
    """Return the command line of a process, nothing when it has ended."""
    try:
        return " ".join(process.cmdline()) if is_there(process) else ""
    except psutil.NoSuchProcess:
        return ""


def wait_for(condition: Callable[[], object], *, seconds: float) -> bool:
    """Poll until `condition` is true; return whether it became so in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True
