"""A flood that Locust ends twice, or while its record is being closed, is judged once, to its end, and not before.
Each case runs in a process of its own: to import Locust changes the process.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.servers import ROOT

SCENE = """
import loadtest.run_hooks as hooks
import gevent
from types import SimpleNamespace as Thing

said = []
def judge(books, *, files):
    said.append("judging")
    gevent.sleep(0.3)
    said.append("judged")
    return 1
hooks.closing.close_books, hooks.end_watch = judge, lambda *a, **k: None
run = hooks.FloodRun()
runner = Thing(stop=lambda: run.on_test_stop(environment))
environment = Thing(runner=runner, process_exit_code=None)
run._books = Thing(folder=None)
"""
QUIT_WHILE_JUDGED = """
gevent.spawn(run.on_test_stop, environment)
gevent.sleep(0.1)
run.on_quitting(environment)
print(said, environment.process_exit_code)
"""
QUIT_BY_HAND = """
run.on_quitting(environment)
print(said, environment.process_exit_code)
"""
STOPPED_WHILE_CLOSED = """
run.crowd = crowd = Thing(known={}, close=lambda: said.append("closed"))
run._followers = Thing(stop=lambda: None)
run._recheck = lambda *a: gevent.sleep(0.3)
gevent.spawn(run._finish, crowd)
gevent.sleep(0.1)
run.on_test_stop(environment)
print(said, environment.process_exit_code)
"""


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (QUIT_WHILE_JUDGED, ["judging", "judged"]),
        (QUIT_BY_HAND, ["judging", "judged"]),
        (STOPPED_WHILE_CLOSED, ["closed", "judging", "judged"]),
    ],
)
def test_a_run_is_judged_once_and_to_its_end(case: str, told: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCENE + case], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == f"{told} 1", done.stdout + done.stderr
