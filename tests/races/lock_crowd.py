"""Lets real processes take turns with one lock and write down what they did, so that a test can read who held it when.
Never shares anything but Redis and files: a process that is killed disturbs no other.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from inventory import redis
from inventory.locks.lock import Lock
from tests.support.waiting import wait_until

# One process loads everything once; the others are its forks. It has no threads, as the tests' own process has.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.races.lock_crowd"])
START_SECONDS = 120.0
PUSHES = 10


class Entry(NamedTuple):
    """One line of the log: which process did what, under which fence, at which moment of the machine's one clock."""

    process_id: int
    what: str
    fence: int
    moment: float
    told: Mapping[str, int]


@dataclass(frozen=True)
class Plan:
    """What every process of a crowd does. folder: where they write, and where `go` and `stop` appear as files."""

    name: str
    folder: Path
    ttl_ms: int = 30_000
    hold_seconds: float = 0.005
    fair: bool = True
    timeout_seconds: float = 120.0

    @property
    def log(self) -> Path:
        """Where all of them write; each line in one write, so that lines never mix."""
        return self.folder / "log"

    def lock(self) -> Lock:
        """Return one more candidate."""
        return Lock(redis.connect(timeout_seconds=60), self.name, ttl_ms=self.ttl_ms, fair=self.fair)

    def said(self, word: str) -> bool:
        """Say whether the test said `go` or `stop`."""
        return (self.folder / word).exists()

    def wait_for(self, word: str) -> None:
        """Return when the test said `word`, or was gone for long."""
        wait_until(lambda: self.said(word), what=f"the test says {word}")


class Pen:
    """Writes the log of one process."""

    def __init__(self, plan: Plan) -> None:
        self._file = os.open(plan.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, *, fence: int = 0, told: Mapping[str, int] | None = None) -> None:
        """Write one line."""
        line = json.dumps([os.getpid(), what, fence, time.monotonic(), told or {}])
        os.write(self._file, f"{line}\n".encode())


def take_turns(plan: Plan) -> None:
    """Hold the lock again and again until the test says stop."""
    pen, lock = Pen(plan), plan.lock()
    pen.write("ready")
    plan.wait_for("go")
    while not plan.said("stop"):
        pen.write("asks")
        # Pushes in before it waits: a lock that is not fair lets it.
        pushed_in = any(lock.acquire(blocking=False) for _ in range(PUSHES))
        if not (pushed_in or lock.acquire(timeout_seconds=plan.timeout_seconds)):
            pen.write("gave up")
            continue
        pen.write("holds", fence=lock.fence)
        time.sleep(plan.hold_seconds)
        pen.write("ends" if lock.is_valid() else "lost", fence=lock.fence)
        lock.release()


@dataclass
class Crowd:
    """Processes that follow one plan."""

    plan: Plan
    processes: list[BaseProcess] = field(default_factory=list)

    def add(self, action: Callable[[Plan], None]) -> BaseProcess:
        """Start one more process."""
        process = CONTEXT.Process(target=action, args=(self.plan,), daemon=True)
        process.start()
        self.processes.append(process)
        return process

    def say(self, word: str) -> None:
        """Say `go` or `stop` to all."""
        (self.plan.folder / word).touch()

    def entries(self, *what: str) -> list[Entry]:
        """Return the log in the order in which it was written, or only the lines of some kinds."""
        text = self.plan.log.read_text() if self.plan.log.exists() else ""
        # Of a line that is being written only a part may be there.
        found = [Entry(*json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [entry for entry in found if not what or entry.what in what]

    def begin(self) -> float:
        """Say go when all are ready; return the moment."""
        count = len(self.processes)
        wait_until(lambda: len(self.entries("ready")) == count, what="all are ready")
        self.say("go")
        return time.monotonic()

    def end(self) -> None:
        """Say stop, and return when all have ended."""
        self.say("stop")
        for process in self.processes:
            process.join(timeout=START_SECONDS)
            assert not process.is_alive()


@contextmanager
def crowd(plan: Plan, action: Callable[[Plan], None], *, count: int) -> Iterator[Crowd]:
    """Start `count` processes; none outlives the block."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    people = Crowd(plan)
    try:
        for _ in range(count):
            people.add(action)
        yield people
    finally:
        people.say("stop")
        for process in people.processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()


def figures(counts: Mapping[Any, int]) -> tuple[float, float]:
    """Return by which part the lowest and the highest of `counts` differ from their mean."""
    mean = sum(counts.values()) / len(counts)
    return min(counts.values()) / mean - 1, max(counts.values()) / mean - 1
