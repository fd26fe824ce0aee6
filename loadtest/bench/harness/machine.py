"""Says on what a run was measured, and what its processes used: processor, versions, CPU time, memory, cores.
Never guesses: what cannot be read is "unknown". Never touches a process that is not the run's own.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from django.db import connection

from inventory.redis import Client, as_dict, connect, run_commands
from loadtest.bench.harness.core_speed import CORE_SPEED, LOOP_TURNS
from loadtest.record import facts as facts_of_run
from workers.embedded.child_process import ChildProcess

MIB = 1024 * 1024
GENERATOR, WEB, SETTLER, REDIS, POSTGRES = "generator", "web", "settler", "Redis", "PostgreSQL"
PARTS = (GENERATOR, WEB, SETTLER, REDIS, POSTGRES)


def facts(*, packages: Iterable[str], database: bool = True) -> dict[str, Mapping[str, str]]:
    """Return what a report says of the stores of a run. database: PostgreSQL was one of them."""
    client = connect()
    return {
        "Versions": versions(client, packages=packages) | (postgres_version() if database else {}),
        "Persistence": {"valkey": append_mode(client)} | (persistence() if database else {}),
    }


def now() -> str:
    """Return the date and time as a report shows it."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def hardware() -> dict[str, str]:
    """Return processor, cores, memory and system, how fast its Python is, and how busy it was."""
    found = {name: value or "unknown" for name, value in facts_of_run.hardware().items()}
    load = {"load before the run": found.pop("load before the run")}
    return found | {"interpreter": f"{CORE_SPEED.fastest_us:.0f} µs for a loop of {LOOP_TURNS:,} turns"} | load


class Stolen:
    """The share of CPU time that the host of this machine gave to others, from now on."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def share(self) -> float:
        """Return it; 0 where the system does not say."""
        now = psutil.cpu_times()
        passed = sum(now) - sum(self._before)
        stolen = getattr(now, "steal", 0.0) - getattr(self._before, "steal", 0.0)
        return stolen / passed if passed > 0 else 0.0


def versions(client: Client, *, packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python, of `packages` and of the Redis or Valkey."""
    (server,) = run_commands(client, [("INFO", "server")])
    store = "valkey" if "valkey_version" in server else "redis server"
    found = {name: metadata.version(name) for name in packages}
    return {
        "python": platform.python_version(),
        **found,
        store: str(server.get("valkey_version", server["redis_version"])),
    }


def postgres_version() -> dict[str, str]:
    """Return the version of PostgreSQL."""
    return {"postgresql": _setting("server_version").split()[0]}


def persistence() -> dict[str, str]:
    """Return what PostgreSQL does before it calls a transaction committed."""
    names = ("fsync", "synchronous_commit", "full_page_writes")
    return {"postgresql": ", ".join(f"{name} {_setting(name)}" for name in names)}


def append_mode(client: Client) -> str:
    """Return what a Redis does before it answers a write."""
    replies = run_commands(client, [("CONFIG", "GET", "appendonly"), ("CONFIG", "GET", "appendfsync")])
    return ", ".join(f"{name} {value}" for reply in replies for name, value in as_dict(reply).items())


def _setting(name: str) -> str:
    return str(one_row("SELECT current_setting(%s)", name)[0])


def one_row(query: str, *values: Any) -> tuple[Any, ...]:
    """Return the one row that a query gives."""
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return tuple(cursor.fetchone())


def revision(checkout: Path) -> str:
    """Return the git revision, with a + when files differ from it."""
    known = facts_of_run.revision(checkout)
    return known["commit"] + ("+" if known["dirty"] else "") if known else "unknown"


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
    return sum(map(_cpu_seconds, family(child)))


def _cpu_seconds(process: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess):  # it ended since it was listed, and counts as its parent's from now on
        return sum(process.cpu_times()[:4])
    return 0.0


def memory_mib(child: ChildProcess) -> float:
    """Return the resident memory of the child's largest process in MiB."""
    return max(process.memory_info().rss for process in family(child)) / MIB


@dataclass(frozen=True, kw_only=True)
class Crew:
    """The processes of a running shop by part; a part without any used nothing."""

    children: Mapping[str, Sequence[ChildProcess]]

    def read(self) -> dict[str, float]:
        """Return the CPU seconds each part has used until now."""
        return {part: sum(map(cpu_seconds, children)) for part, children in self.children.items()}


def used(before: Mapping[str, float], after: Mapping[str, float], *, generator: float) -> dict[str, float]:
    """Return the CPU seconds between two readings, and the generator's own."""
    return {GENERATOR: generator, **{part: after[part] - before[part] for part in after}}


def microseconds_each(used_seconds: Mapping[str, float], *, answers: int) -> dict[str, float]:
    """Return the µs of CPU that each part used for one of `answers`, 0 for a part that was not there."""
    return {part: used_seconds.get(part, 0.0) * 1_000_000 / max(answers, 1) for part in PARTS}
