"""What breaks while a benchmark runs fails it, and what could not be measured is no reason to write no files.
Opens ports of this process only.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from multiprocessing.synchronize import Event
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadtest.bench import __main__ as command
from loadtest.bench.harness.report import Figure, Report, as_json, markdown
from loadtest.bench.harness.timing import again_and_again
from loadtest.bench.load.loader import Load
from loadtest.bench.load.loop import HOST, LoadFailed
from loadtest.bench.streams import readers
from loadtest.bench.streams import run as streams_run
from loadtest.bench.streams.plan import Plan
from tests.support.waiting import PATIENCE_SECONDS, wait_until

NAN = float("nan")
NEWS = b"HTTP/1.1 200 OK\r\n\r\ndata: {}\n\n"


def test_what_is_not_a_number_is_null_in_json_and_a_dash_on_the_page_wherever_it_stands() -> None:
    report = Report(
        title="", command="", date="", revision="", quick=True, figures=[Figure("a", value=NAN)], facts={}, method=[],
        samples=[{"side": "old", "p50": NAN, "rounds": [1.5, float("inf"), NAN]}],
    )  # fmt: skip
    whole = json.loads(as_json(report))
    assert whole["figures"][0]["value"] is None
    assert whole["samples"] == [{"side": "old", "p50": None, "rounds": [1.5, None, None]}]
    assert "| old | – | 1.50 · inf · – |" in markdown(report)


class Failing:
    """What fails when it is done. has_failed: it was done."""

    def __init__(self) -> None:
        self.has_failed = threading.Event()

    def act(self) -> None:
        self.has_failed.set()
        raise LoadFailed("no more news")


def test_what_fails_again_and_again_fails_the_block_at_its_end() -> None:
    alongside, ended = Failing(), []
    with pytest.raises(LoadFailed, match="no more news"), again_and_again(alongside.act, every_seconds=0.001):
        ended.append(alongside.has_failed.wait(PATIENCE_SECONDS))
    assert ended == [True]


def test_what_fails_in_the_block_itself_is_what_is_told() -> None:
    alongside = Failing()

    def fail_as_well() -> None:
        with again_and_again(alongside.act, every_seconds=0.001):
            assert alongside.has_failed.wait(PATIENCE_SECONDS)
            raise ValueError("block")

    with pytest.raises(ValueError, match="block") as ended:
        fail_as_well()
    assert isinstance(ended.value.__cause__, LoadFailed)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as found:
        yield found


def follow(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[tuple[str, str]]]:
    """Return the arguments of a reader of two streams, which are answered once each."""
    monkeypatch.setattr(readers, "NICENESS", 0)
    return listener.getsockname()[1], [("/one", "token"), ("/two", "token")]


def test_a_stream_that_is_reset_counts_as_closed_and_the_others_go_on(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, streams = follow(listener, monkeypatch)
    served: list[socket.socket] = []

    def answer() -> None:
        for _ in streams:
            served.append(listener.accept()[0])
            served[-1].recv(4_096)
            served[-1].sendall(NEWS)

    answering = threading.Thread(target=answer)
    answering.start()
    with readers.reading(port, streams) as counts:
        answering.join()
        served[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close() is a reset
        served[0].close()
        wait_until(lambda: counts.closed.value == 1, what="the reset is counted")
        known = counts.messages.value
        served[1].sendall(NEWS)
        wait_until(lambda: counts.messages.value == known + 1, what="the other stream has news")
    served[1].close()


def test_readers_that_ended_fail_the_round_that_they_did_not_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: those that read on to the end do not."""

    seen = readers.FORK.Event()

    def follow(_port: int, streams: list[tuple[str, str]], counts: readers.Counts, ends: Event) -> None:
        counts.opened.value = len(streams)
        (ends if streams[0][0] == "/to the end" else seen).wait()

    def end_them() -> None:
        seen.set()  # not before: readers that end while their streams open fail in another way
        wait_until(lambda: not multiprocessing.active_children(), what="the readers have ended")

    monkeypatch.setattr(readers, "_read", follow)
    with readers.reading(0, [("/to the end", "token")]):
        pass
    with (
        pytest.raises(LoadFailed, match="the readers of the streams have ended"),
        readers.reading(0, [("/for a moment", "token")]),
    ):
        end_them()


@pytest.mark.parametrize(("closed", "fails"), [(100, False), (101, True)])
def test_a_round_in_which_too_many_streams_ended_does_not_count(
    monkeypatch: pytest.MonkeyPatch, closed: int, fails: bool
) -> None:
    counts = readers.Counts()
    counts.closed.value = closed
    load = Load(began_at=0.0, seconds=1.0, answered=1, statuses=Counter({"202": 1}), waits_ms=[1.0])
    monkeypatch.setattr(streams_run, "ask", lambda *_, **__: load)
    monkeypatch.setattr(streams_run.machine, "cpu_seconds", lambda _: 0.0)
    web: Any = SimpleNamespace(child=None, port=0)
    fixture: Any = SimpleNamespace(slug="streams")
    with pytest.raises(LoadFailed, match="101 streams ended") if fails else nullcontext():
        streams_run.one_round("alongside", web, fixture, counts=counts, plan=Plan(streams=2_000))


def test_a_round_in_which_nobody_was_answered_has_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no number, and so keeps no bound; a wait of nothing would keep every one."""
    load = Load(began_at=0.0, seconds=1.0, answered=0, statuses=Counter(), waits_ms=[])
    monkeypatch.setattr(streams_run, "ask", lambda *_, **__: load)
    monkeypatch.setattr(streams_run.machine, "cpu_seconds", lambda _: 0.0)
    web: Any = SimpleNamespace(child=None, port=0)
    fixture: Any = SimpleNamespace(slug="streams")
    found = streams_run.one_round("alone", web, fixture, counts=None, plan=Plan())
    assert [math.isnan(wait) for wait in (found.p50_ms, found.p99_ms)] == [True, True]


class SlowChild:
    """A benchmark that is interrupted, and then does not end."""

    def __init__(self, *_: object, **__: object) -> None:
        self.done: list[object] = []

    def wait(self, seconds: float | None = None) -> int:
        self.done.append(seconds)
        if len(self.done) == 1:
            raise KeyboardInterrupt
        if seconds is not None:
            raise subprocess.TimeoutExpired("it", seconds)
        return -signal.SIGKILL

    def send_signal(self, number: int) -> None:
        self.done.append(number)

    def kill(self) -> None:
        self.done.append("killed")


def test_a_benchmark_that_does_not_end_when_it_is_interrupted_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    child = SlowChild()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: child)
    with pytest.raises(KeyboardInterrupt):
        command._run("gate", argparse.Namespace(quick=True, out=Path("none")))
    assert child.done == [None, signal.SIGINT, command.END_SECONDS, "killed", None]
