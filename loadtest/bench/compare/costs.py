"""Reads what a side has cost until now: commits, Redis commands, CPU time of the sellers and of the stores.
Never resets a counter: the difference of two readings counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psutil
from django.db import connection

from inventory.redis import connect, run_commands
from loadtest.bench.harness import processes
from workers.embedded.child_process import ChildProcess

COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
# What a reading itself asks of Redis.
OWN = ("info", "config")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Counters at one moment; CPU in seconds."""

    commits: int
    commands: int
    store_cpu: float


def read_costs(stores: Sequence[ChildProcess]) -> Reading:
    """Return the counters now. PostgreSQL counts what a connection did when it ends: end the sellers first."""
    with connection.cursor() as cursor:
        cursor.execute(COMMITS)
        (commits,) = cursor.fetchone()
    (statistics,) = run_commands(connect(), [("INFO", "commandstats")])
    commands = sum(each["calls"] for name, each in statistics.items() if name.removeprefix("cmdstat_") not in OWN)
    return Reading(commits=commits, commands=commands, store_cpu=cpu_seconds(stores))


def cpu_seconds(children: Sequence[ChildProcess]) -> float:
    """Return the CPU time of the children, of everything below them, and of what below them has ended."""
    used = [_times(process) for child in children for process in processes.family(child)]
    return sum(used)


def _times(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)
