"""The tests of redis-py's and python-redis-lock's own locks hold for ours, but for the deviations that are meant.

`adapters` has our lock under their names, and the list of deviations with the reason of each. Any other failure, and a
deviation that does not fail, fails here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign.suites import run_suite
from tests.support.servers.server_matrix import single
from workers.embedded.binaries import valkey_program

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """Run a server of its own: the suite empties it after each test."""
    with single(tmp_path, program=valkey_program()) as url:
        yield url


def test_redis_pys_own_tests_hold(redis_url: str) -> None:
    """Some compare a life with what is left of it a moment later: what fails is tried again, alone."""
    done = run_suite("redis", "tests/test_lock.py", "-predis_py_lock", f"--redis-url={redis_url}")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    assert re.search(r"\d+ passed, 10 xfailed", done.stdout), done.stdout + done.stderr
    assert len(failed) < 3, done.stdout
    if failed:
        done = run_suite("redis", "-predis_py_lock", f"--redis-url={redis_url}", *failed)
    else:
        assert "22 passed, 10 xfailed" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr


def test_python_redis_locks_own_tests_hold() -> None:
    """Four at once, because most of them wait. Some give a process half a second: what fails is tried again, alone."""
    done = run_suite("python_redis_lock", "tests/test_redis_lock.py", "-ppatience", "-n4")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    assert re.search(r"\d+ passed, 27 xfailed", done.stdout), done.stdout + done.stderr
    assert len(failed) < 4, done.stdout
    if failed:
        done = run_suite("python_redis_lock", "-ppatience", *failed)
    else:
        assert "25 passed, 27 xfailed" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_lock_that_everybody_gets_would_be_found(redis_url: str) -> None:
    """The control: without exclusion the suite fails, and names what failed."""
    plugins = ("-predis_py_lock", "-pno_exclusion")
    done = run_suite("redis", "tests/test_lock.py", *plugins, f"--redis-url={redis_url}", "-k", "competing")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED tests/test_lock.py::TestLock::test_competing_locks" in done.stdout
