"""Workers say that they live and what they do: once a second at most, never in the way of their work. On every kind
of Redis.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import psycopg
import pytest
from django.db import OperationalError, connections
from django.test import override_settings

from inventory import heartbeats, redis
from inventory.exceptions import RedisUnavailable
from inventory.heartbeats import Heartbeat, Worker, workers
from inventory.redis import keys
from tests.support.road import run
from workers.embedded.server import free_port
from workers.expirer import Expirer
from workers.process_loop import StopFlag, run_until_stopped

pytestmark = pytest.mark.usefixtures("shop_database", "each_server")


class StopAfter(StopFlag):
    """A flag that is set after some looks at it."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def is_set(self) -> bool:
        self._looks -= 1
        return self._looks < 0


def named(name: str) -> list[Worker]:
    return [each for each in workers(redis.connect()) if each.name == name]


@pytest.fixture
def name(new_sku: Callable[[], str]) -> str:
    return f"worker-{new_sku()}"


def test_a_worker_says_what_it_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat = Heartbeat(redis.connect(), name)
    monkeypatch.setattr(heartbeats, "SILENT_SECONDS", 300.0)  # however slow the machine is
    heartbeat.note(done=7)
    (seen,) = named(name)
    assert (seen.doing, seen.done, seen.alive) == ("working", 7, True)
    assert seen.rate > 0
    assert seen.who.endswith(f":{os.getpid()}")
    heartbeat.end()
    assert named(name) == []


def test_it_speaks_once_a_second_at_most(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat = Heartbeat(redis.connect(), name)
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", 300.0)
    spoken: list[float] = []
    real = heartbeats.run_script
    monkeypatch.setattr(heartbeats, "run_script", lambda *args, **more: spoken.append(0) or real(*args, **more))
    for _ in range(1000):
        heartbeat.note(done=1)
    assert len(spoken) == 1
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", 0.0)
    heartbeat = Heartbeat(redis.connect(), name)
    for _ in range(10):  # the control: with no time between, each note is told
        heartbeat.note(done=1)
    assert len(spoken) == 11
    (seen,) = named(name)
    assert seen.done == 10
    heartbeat.end()


def test_the_state_changes_with_what_is_done(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", 0.0)
    heartbeat = Heartbeat(redis.connect(), name)
    notes = (
        ({"done": 1}, "working"),
        ({}, "waiting"),
        ({"away": "line away"}, "line away"),
        ({"busy": True}, "working"),
    )
    for note, doing in notes:
        heartbeat.note(**note)
        assert named(name)[0].doing == doing
    heartbeat.end()


def test_a_long_step_is_counted_over_all_the_time_that_it_took(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(heartbeats, "time", clock)
    heartbeat, rates = Heartbeat(redis.connect(), name), []
    for note in ({"done": 20}, *[{"busy": True}] * 4, {"done": 100}, {}):
        clock.now += 2
        heartbeat.note(**note)
        rates.append(named(name)[0].rate)
    assert rates == [10, 10, 10, 10, 10, 10, 0]
    heartbeat.end()


def test_steps_that_end_within_a_second_and_find_nothing_bring_the_rate_to_none(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(heartbeats, "time", clock)
    heartbeat = Heartbeat(redis.connect(), name)
    for note, seconds in (({"done": 20}, 2), ({"busy": True}, 2), ({}, 0.1), ({"busy": True}, 2)):
        clock.now += seconds
        heartbeat.note(**note)
    assert named(name)[0].rate == 0
    heartbeat.end()


def test_one_that_fell_silent_is_shown_as_such_and_then_forgotten(name: str) -> None:
    said = {"name": name, "doing": "working", "done": 1, "rate": 1, "since": 2}
    key = keys.workers()
    for silent, who in ((30, "here:1"), (heartbeats.FORGOTTEN_SECONDS + 30, "here:2")):
        run(("HSET", key, f"{name}-{who}", json.dumps({**said, "last": time.time() - silent})))
    run(("HSET", key, f"{name}-here:3", "nonsense"))
    (seen,) = named(name)
    assert not seen.alive
    assert 25 < seen.silent_seconds < 90
    assert seen.since_seconds > seen.silent_seconds
    heartbeat = Heartbeat(redis.connect(), f"{name}-b")
    heartbeat.note()  # anyone who speaks forgets the others that are silent for long
    assert run(("HMGET", key, f"{name}-here:1", f"{name}-here:2", f"{name}-here:3"))[0][1:] == [None, None]
    run(("HDEL", key, f"{name}-here:1"))
    heartbeat.end()


def test_a_worker_goes_on_while_redis_is_away(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"):
        heartbeat = Heartbeat(redis.connect(timeout_seconds=0.2), name)
        monkeypatch.setattr(heartbeats, "REST_SECONDS", 300.0)
        tries: list[int] = []
        real = heartbeats.run_script
        monkeypatch.setattr(heartbeats, "run_script", lambda *args, **more: tries.append(0) or real(*args, **more))
        for _ in range(50):
            heartbeat.note(done=1)
        heartbeat.end()
    assert len(tries) == 1  # and then it rests


def test_the_loop_notes_each_step_and_takes_its_note_away(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", 0.0)
    seen: list[tuple[str, int]] = []
    steps = iter([3, 0])

    def step() -> int:
        seen.extend((each.doing, each.done) for each in named(name))
        found = next(steps, None)
        if found is None:
            raise RedisUnavailable
        return found

    heartbeat = Heartbeat(redis.connect(), name)
    run_until_stopped(step, stop=StopAfter(4), wait_for_work=lambda: None, heartbeat=heartbeat)
    assert seen == [("waiting", 0), ("working", 3), ("waiting", 3), ("line away", 3)]  # the first before any step
    assert named(name) == []


@pytest.mark.parametrize(
    ("cause", "doing"),
    [
        (psycopg.OperationalError, "database away"),
        (psycopg.errors.QueryCanceled, "waiting"),
        (psycopg.errors.AdminShutdown, "database away"),
    ],
)
def test_the_loop_says_that_the_database_is_away(
    name: str, monkeypatch: pytest.MonkeyPatch, cause: type[Exception], doing: str
) -> None:
    """The control: one that answers, and refuses."""
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", 0.0)
    seen: list[str] = []

    def step() -> int:
        seen.extend(each.doing for each in named(name))
        raise OperationalError from cause()

    heartbeat = Heartbeat(redis.connect(), name)
    run_until_stopped(step, stop=StopAfter(2), wait_for_work=lambda: None, heartbeat=heartbeat)
    assert seen == ["waiting", doing]


def test_an_expirer_says_that_the_database_is_away(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step raises nothing, and ends right after it has said so: a beat that falls then says so too."""
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(heartbeats, "time", clock)
    heartbeat = Heartbeat(redis.connect(), name)
    heartbeat.note()
    expirer = Expirer(stopping=lambda: False, report_away=partial(heartbeat.note, away="database away", busy=True))
    with monkeypatch.context() as patched:
        patched.setitem(connections["default"].settings_dict, "HOST", "127.0.0.1")
        patched.setitem(connections["default"].settings_dict, "PORT", str(free_port()))
        assert expirer.work_once() == 0
    clock.now += 2
    heartbeat.note()
    assert named(name)[0].doing == "database away"
    clock.now += 2
    heartbeat.note()
    assert named(name)[0].doing == "waiting"
    heartbeat.end()
