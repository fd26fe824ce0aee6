"""A flood that Locust ends twice, or while its record is being closed, is judged once, to its end, and not before.
Each case runs in a process of its own: to import Locust changes the process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.stores import ROOT
from workers.embedded.server import free_port

SCENE = """
import loadtest.run.hooks as hooks
import gevent
from types import SimpleNamespace as Thing

said = []
def judge(books, *, files):
    said.append("judging")
    gevent.sleep(0.3)
    said.append("judged")
    return 1
hooks.closing.close_books, hooks.end_watch = judge, lambda *a, **k: None
hooks.end_unjudged = lambda *a, **k: said.append("unjudged")
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
KILLED_WHILE_CLOSED = """
run.crowd = Thing(known={}, close=lambda: said.append("closed"))
run._followers = Thing(stop=lambda: None)
run._recheck = lambda *a: gevent.sleep(0.3)
first = gevent.spawn(run.on_test_stop, environment)
gevent.sleep(0.1)
first.kill()
run.on_test_stop(environment)
print(said, environment.process_exit_code)
"""
QUIT_WHILE_ANOTHER_STOPS = """
runner.stop = lambda: None
run.on_quitting(environment)
print(said, environment.process_exit_code)
"""
ENDED_WHILE_JUDGED = """
environment.web_ui, runner.quit = None, lambda: said.append("quit")
run._environment = environment
gevent.spawn(run.on_test_stop, environment)
gevent.sleep(0.1)
run._end_run()
print(said, environment.process_exit_code)
"""
START_WHILE_JUDGED = """
gevent.spawn(run.on_test_stop, environment)
gevent.sleep(0.1)
run._prepare = lambda: said.append("prepared") or 1 / 0
try:
    run.on_test_start(environment)
except ZeroDivisionError:
    print(said, environment.process_exit_code)
"""
ONE_AFTER_THE_OTHER = """
run.on_test_stop(environment)
run._books = Thing(folder=None)
run.on_test_stop(environment)
print(said, environment.process_exit_code)
"""
WORKER_QUITS_WHILE_CLOSED = """
hooks.WorkerRunner, run._books = Thing, None
run.crowd = Thing(known={}, close=lambda: said.append("closed"))
run._followers = Thing(stop=lambda: None)
run._recheck = lambda *a: gevent.sleep(0.3)
gevent.spawn(run.on_test_stop, environment)
gevent.sleep(0.1)
run.on_quitting(environment)
print(said, environment.process_exit_code)
"""
CLOSED_FOR_TEN_MINUTES = """
run.crowd = crowd = Thing(known={}, close=lambda: said.append("closed"))
run._followers = Thing(stop=lambda: None)
run._recheck = lambda *a: gevent.sleep(600)
gevent.spawn(run._finish, crowd)
gevent.sleep(0.1)
"""
STOPPED_EARLY_WHILE_CLOSED = (
    CLOSED_FOR_TEN_MINUTES
    + """
run._stop_early()
run.on_test_stopping()
run.on_test_stop(environment)
print(said, environment.process_exit_code)
"""
)
QUIT_WITH_A_PAGE = (
    CLOSED_FOR_TEN_MINUTES
    + """
environment.web_ui = Thing()
run.on_quitting(environment)
print(said, environment.process_exit_code)
"""
)
JUDGED = ["judging", "judged"]


@pytest.mark.parametrize(
    ("case", "told", "code"),
    [
        pytest.param(QUIT_WHILE_JUDGED, JUDGED, 1, id="quit while judged"),
        pytest.param(QUIT_BY_HAND, JUDGED, 1, id="quit by hand"),
        pytest.param(QUIT_WHILE_ANOTHER_STOPS, JUDGED, 1, id="quit while another stops"),
        pytest.param(ENDED_WHILE_JUDGED, [*JUDGED, "quit"], 1, id="ended while judged"),
        pytest.param(STOPPED_WHILE_CLOSED, ["closed", *JUDGED], 1, id="stopped while closed"),
        pytest.param(KILLED_WHILE_CLOSED, ["closed", *JUDGED], 1, id="killed while closed"),
        pytest.param(START_WHILE_JUDGED, [*JUDGED, "prepared"], 1, id="start while judged"),
        pytest.param(ONE_AFTER_THE_OTHER, JUDGED * 2, 1, id="one after the other"),
        pytest.param(WORKER_QUITS_WHILE_CLOSED, ["closed"], 0, id="worker quits while closed"),
        pytest.param(STOPPED_EARLY_WHILE_CLOSED, ["closed", "unjudged"], 2, id="stopped early while closed"),
        pytest.param(QUIT_WITH_A_PAGE, ["closed", "unjudged"], 2, id="quit with a page"),
    ],
)
def test_a_run_is_judged_once_and_to_its_end(case: str, told: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCENE + case], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.strip() == f"{told} {code}", done.stdout + done.stderr


# Locust is real here; the shop, the crowd and its verdict are not. The crowd leaves when the case says so.
LOCUSTFILE = """
import os, signal
from types import SimpleNamespace as Thing
import gevent
import gevent.event
from locust import LoadTestShape, User, constant, events, task
import loadtest.run.hooks as hooks

CASE = os.environ["CASE"]
VERDICT = 7
closing_begun, left = gevent.event.Event(), gevent.event.Event()

def judge(books, *, files):
    print("judging", flush=True)
    if CASE == "judge fails":
        raise ValueError("no shop")
    if CASE == "interrupted while it reckons":
        os.kill(os.getpid(), signal.SIGINT)
    if CASE == "interrupted while it waits":
        gevent.spawn_later(0.2, os.kill, os.getpid(), signal.SIGINT)
    gevent.sleep(files)
    print("judged", flush=True)
    return VERDICT

class Flood(hooks.FloodRun):
    stops = 0

    def _clear(self, *_, **__):
        pass

    def _begin(self, **_):
        class Visits:
            known = {}
            finished = property(lambda _: left.is_set())
            write_progress = send_home = close = lambda _: None
        self.crowd = Visits()
        self._followers = Thing(at_work=0, stop=lambda: None)
        if CASE == "run time of a shape":
            gevent.spawn(self._accompany, self.crowd)

    def _recheck(self, *_):
        closing_begun.set()
        gevent.sleep(0.5)

    def _on_go_home(self, **_):
        left.set()

    def on_test_stopping(self, **_):
        self.stops += 1
        if CASE == "two stops" and self.stops == 1:
            gevent.spawn_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
        elif CASE != "two stops" or self.stops == 2:
            gevent.spawn_later(0.5, left.set)
        super().on_test_stopping()

hooks.closing.open_books = lambda *_, **__: Thing(folder=None, sales={})
hooks.closing.close_books = judge
hooks.check_host = hooks.end_watch = hooks.watch = lambda *_, **__: None
flood = Flood()
flood.listen_to(events)

class Hand(User):
    wait_time = constant(1)

    @task
    def idle(self):
        pass

    def on_stop(self):
        # Users take their time: meanwhile the crowd has left, and its record is being closed.
        if CASE == "run time of a shape":
            closing_begun.wait(20)

if CASE == "run time of a shape":
    class Shape(LoadTestShape):
        def tick(self):
            return (1, 1) if self.get_run_time() < 1 else None
"""
VERDICT, NO_VERDICT = 7, 2


def hear_interrupts() -> None:
    """Undo what a shell does to a job in the background: it ignores SIGINT, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def end_in_locust(case: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Locust until it ends by itself."""
    file = folder / "locustfile.py"
    file.write_text(LOCUSTFILE)
    command = [sys.executable, "-m", "locust", "--headless", "--users", "1", "--locustfile", str(file), *words]
    environment = os.environ | {"CASE": case}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False,
        stdin=subprocess.DEVNULL, preexec_fn=hear_interrupts,
    )  # fmt: skip
    assert "Uncaught exception" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("run time of a shape", []),
        ("run time of a shape", ["--processes", "2"]),
        ("two stops", ["--run-time", "1s"]),
        ("interrupted while it waits", ["--run-time", "1s"]),
    ],
)
def test_locust_ends_with_the_verdict_whoever_else_ends_it(case: str, words: list[str], tmp_path: Path) -> None:
    if "--processes" in words:
        port = str(free_port())
        words = [*words, "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--master-port", port]
    done = end_in_locust(case, tmp_path, *words)
    assert [line for line in done.stdout.splitlines() if line in ("judging", "judged")] == JUDGED
    assert done.returncode == VERDICT, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("case", "told"), [("judge fails", "ValueError: no shop"), ("interrupted while it reckons", "KeyboardInterrupt")]
)
def test_locust_ends_and_says_so_when_nobody_can_judge(case: str, told: str, tmp_path: Path) -> None:
    done = end_in_locust(case, tmp_path, "--run-time", "1s")
    assert told in done.stderr
    assert "judged" not in done.stdout
    assert done.returncode == NO_VERDICT, done.stdout + done.stderr


def test_an_interrupt_is_heard_when_the_tests_are_a_background_job(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = end_in_locust("interrupted while it reckons", tmp_path, "--run-time", "1s")
    finally:
        signal.signal(signal.SIGINT, before)
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode == NO_VERDICT, done.stdout + done.stderr


LEAVES = """
import atexit
from loadtest.run.hooks import FloodRun

class Event:
    def add_listener(self, listener):
        self.fire = listener

class Events:
    def __getattr__(self, name):
        self.__dict__[name] = event = Event()
        return event

class LastOfAll:
    def __del__(self):
        print("taken apart", flush=True)

kept, run, events = LastOfAll(), FloodRun(), Events()
run.listen_to(events)
atexit.register(print, "at exit")
if QUITS:
    events.quit.fire(exit_code=3)
print("closed")
raise SystemExit(4)
"""


@pytest.mark.parametrize(
    ("quits", "code", "said"),
    [(True, 3, ["closed", "at exit"]), (False, 4, ["closed", "at exit", "taken apart"])],
    ids=["as it is", "the control: Locust has not quit"],
)
def test_a_run_that_is_over_leaves_before_the_interpreter_is_taken_apart(
    quits: bool, code: int, said: list[str]
) -> None:
    """There gevent may abort it, and the code would not be that of the verdict. What others do at the end is done."""
    scene = LEAVES.replace("QUITS", repr(quits))
    done = subprocess.run([sys.executable, "-c", scene], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout.split("\n")[:-1]) == (code, said), done.stderr
