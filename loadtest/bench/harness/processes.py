"""Binds a child with all its processes and threads to cores, and reads their CPU time and memory.
Never touches a process that is not the child's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress

import psutil

from workers.embedded.child_process import ChildProcess

MIB = 1024 * 1024


def cores() -> list[int]:
    """Return the cores this process may run on, in order."""
    return sorted(os.sched_getaffinity(0))


def family(child: ChildProcess) -> list[psutil.Process]:
    """Return the child's leader and everything below it."""
    leader = psutil.Process(child.pid)
    return [leader, *leader.children(recursive=True)]


def bind(child: ChildProcess, *, to: Set[int]) -> None:
    """Let every thread of the child run on the cores `to` only; later threads inherit that."""
    for process in family(child):
        for thread in process.threads():
            with suppress(ProcessLookupError):  # a thread that ended a moment ago
                os.sched_setaffinity(thread.id, to)


@contextmanager
def bound(*, to: Set[int]) -> Iterator[None]:
    """Run this process on the cores `to` for the length of a `with` block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, to)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(child: ChildProcess) -> float:
    """Return the CPU time the child's processes have used until now, those that have ended too."""
    # Without what ended a reading may be lower than the one before: Redis forks to rewrite its file.
    return sum(sum(process.cpu_times()[:4]) for process in family(child))


def memory_mib(child: ChildProcess) -> float:
    """Return the resident memory of the child's largest process in MiB."""
    return max(process.memory_info().rss for process in family(child)) / MIB
