"""Runs one child process in its own process group and promises that stopping it ends the whole group, also when
its leader was killed before. Never restarts anything, never leaves a child behind its parent (Linux tells the child
when the parent dies).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from workers.embedded.private_files import open_private

POLL_SECONDS = 0.02
MAX_LOG_BYTES = 10 * 1024 * 1024
# What a group may take to disappear from the process table after SIGKILL.
KILL_GRACE_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, so that it can reap what a killed leader left."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_adopted(*, timeout_seconds: float) -> None:
    """Wait for adopted orphans to end, and collect them. Call it when every child of our own is collected."""
    deadline = time.monotonic() + timeout_seconds
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(POLL_SECONDS)


def _die_with_parent(death_signal: int, parent_pid: int) -> Callable[[], None]:
    """Return what the child runs before exec: ask the kernel for `death_signal` when the parent dies."""

    def before_exec() -> None:
        if _LIBC is None:
            return
        _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        # The parent may have died between fork and prctl; then nobody would ever send the signal.
        if os.getppid() != parent_pid:
            os._exit(1)

    return before_exec


@dataclass(kw_only=True)
class ChildProcess:
    """One child: how to start it, how to ask it to end, and how long that may take."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    # None: the child writes to our own terminal.
    log_path: Path | None = None
    user: str | None = None
    stop_signal: int = signal.SIGTERM
    stop_timeout_seconds: float = 3.0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _group_gone: bool = field(default=False, repr=False)

    def start(self) -> ChildProcess:
        """Start the child and return it; its output goes to the log file, its input is empty."""
        output = open_private(self.log_path) if self.log_path else None
        try:
            # preexec_fn is safe only where no other thread can hold what it needs. Supervisors here have at most one
            # that asks for a Redis Cluster that was away; nothing before exec takes a lock.
            self._process = subprocess.Popen(
                list(self.arguments),
                cwd=self.folder,
                env=None if self.environment is None else dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                user=self.user,
                group=self.user,
                extra_groups=[] if self.user else None,
                process_group=0,
                preexec_fn=_die_with_parent(self.stop_signal, os.getpid()),
            )
            self._group_gone = False
        finally:
            if output:
                output.close()
        return self

    @property
    def pid(self) -> int:
        """The leader's process id, which is also the id of its group."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The leader's exit code, negative for a signal; None while it runs or before it was started."""
        return self._process.poll() if self._process else None

    @property
    def running(self) -> bool:
        """Tell whether the leader runs."""
        return self._process is not None and self._process.poll() is None

    def wait(self, *, timeout_seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the leader has ended or `until` is true; return whether it has ended."""
        deadline = time.monotonic() + timeout_seconds
        while self.running:
            if until() or time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def log_end(self, *, lines: int = 12) -> str:
        """Return the last `lines` of its log; "(empty)" when there is none."""
        if self.log_path is None or not self.log_path.exists():
            return "(empty)"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def bound_log(self) -> None:
        """Make what its log has, once that is more than MAX_LOG_BYTES, the older one, which ends in .1. Call it often.

        The child goes on writing into the same file. What it writes while that is copied may be in neither.
        """
        path = self.log_path
        if path is None or not path.exists() or path.stat().st_size <= MAX_LOG_BYTES:
            return
        older = path.with_name(f"{path.name}.1")
        older.unlink(missing_ok=True)
        with path.open("rb") as written, open_private(older) as copy:
            shutil.copyfileobj(written, copy)
        os.truncate(path, 0)

    def ask_to_stop(self) -> None:
        """Send the leader its stop signal; the leader ends its own children."""
        if self._process is not None and self.running:
            self._process.send_signal(self.stop_signal)

    def stop(self, *, timeout_seconds: float | None = None) -> None:
        """End the child: its stop signal, then SIGKILL to every process of the group that is still there."""
        if self._process is None or self._group_gone:
            return
        self.ask_to_stop()
        self.wait(timeout_seconds=self.stop_timeout_seconds if timeout_seconds is None else timeout_seconds)
        self.kill_group()

    def kill_group(self) -> None:
        """SIGKILL whatever is left of the group and wait until it is gone, reaping adopted orphans."""
        if self._process is None or self._group_gone:
            return
        deadline = time.monotonic() + KILL_GRACE_SECONDS
        while self._group_exists() and time.monotonic() < deadline:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._reap()
            time.sleep(POLL_SECONDS)
        # Its id may be given to a stranger from now on, so this group is never signalled again.
        self._group_gone = True

    def _group_exists(self) -> bool:
        self._reap()
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # macOS says so of a group that holds only zombies
            return False
        return True

    def _reap(self) -> None:
        """Collect the leader first (its code belongs to Popen), then orphans of its group that we adopted."""
        if self._process is None or self._process.poll() is None:
            return
        with suppress(ChildProcessError):
            while os.waitpid(-self.pid, os.WNOHANG)[0]:
                continue
