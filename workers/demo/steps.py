"""Prints what the demo is doing, one line a step with its seconds, and runs the steps that are short commands.
Never hides why a step failed: the end of its log is in the error.
"""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from workers.demo.guard import DemoRefused
from workers.embedded.child_process import ChildProcess

STEP_TIMEOUT_SECONDS = 300.0
WEB_TIMEOUT_SECONDS = 180.0
PROBE_TIMEOUT_SECONDS = 2.0
LOG_LINES_SHOWN = 120
_POLL_SECONDS = 0.05


class Interrupted(Exception):
    """Ctrl-C or SIGTERM came while a step was running."""


def say(text: str = "") -> None:
    """Print a line at once."""
    print(text, flush=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print `title`, and ✓ with the seconds when the block has ended well."""
    began = time.monotonic()
    sys.stdout.write(f"  {title} ".ljust(46, "."))
    sys.stdout.flush()
    try:
        yield
    except BaseException:
        say(" ✗")
        raise
    say(f" ✓ {time.monotonic() - began:.1f} s")


def run_step(
    arguments: list[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    log_path: Path,
    stopping: Callable[[], bool],
) -> None:
    """Run a command to its end. Raises DemoRefused with the end of its log, or Interrupted."""
    child = ChildProcess(
        name=" ".join(arguments[1:3]), arguments=arguments, environment=environment, folder=folder, log_path=log_path
    ).start()
    try:
        ended = child.wait(timeout_seconds=STEP_TIMEOUT_SECONDS, until=stopping)
        if stopping():
            raise Interrupted
        if not ended or child.exit_code != 0:
            raise DemoRefused(f"`{child.name}` failed; {_log_of(child)}")
    finally:
        child.stop()


def wait_for_web(child: ChildProcess, *, port: int, stopping: Callable[[], bool]) -> None:
    """Return when the shop says it is ready. Raises DemoRefused with the end of its log, or Interrupted."""
    deadline = time.monotonic() + WEB_TIMEOUT_SECONDS
    while not _is_ready(port):
        if stopping():
            raise Interrupted
        if not child.running or time.monotonic() >= deadline:
            raise DemoRefused(f"The web process did not become ready; {_log_of(child)}")
        time.sleep(_POLL_SECONDS)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PROBE_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _log_of(child: ChildProcess) -> str:
    return f"{child.log_path} ends with:\n{child.log_end(lines=LOG_LINES_SHOWN)}"
