"""Proves that what several processes count about one lock adds up exactly, and that an operator sees it.
Begins with its control, a process that is killed before it sends what it counted. Real processes.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from inventory import redis
from inventory.line.forgetting import skus_known
from inventory.locks.lock import Lock, force_release
from inventory.locks.statistics import STATISTICS, read_statistics
from inventory.redis import keys
from tests.races.lock_crowd import Pen, Plan, crowd
from tests.support.servers.stores import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
PROCESSES, TURNS = 4, 25
# Of the one lock that is lost: its holder hears of it at a third of that.
SHORT_TTL_MS = 2000


def count_own_turns(plan: Plan) -> None:
    """Use the lock in every way; tell what came of it, and stay until the test says stop."""
    pen, told = Pen(plan), Counter[str]()
    pen.write("ready")
    plan.wait_for("go")
    for turn in range(TURNS):
        lock = plan.lock()
        told["attempts"] += 1
        taken = lock.acquire(timeout_seconds=[120.0, 0.0, 0.003][turn % 3])
        if taken:
            told["waits"] += 1
            told["holds"] += 1
            time.sleep(plan.hold_seconds)
            lock.release()
        else:
            told["timeouts"] += turn % 3 == 2
            told["not taken"] += 1
    pen.write("told", told=told)
    plan.wait_for("stop")


def count_own_turns_unsent(plan: Plan) -> None:
    """Count as above, and send nothing by itself before the test ends this process."""
    STATISTICS.flush_at = math.inf
    count_own_turns(plan)


def lose_a_lock(plan: Plan) -> None:
    """Have a lock taken away; tell it."""
    client = redis.connect(timeout_seconds=60)
    pen, lock = Pen(plan), Lock(client, plan.name, ttl_ms=SHORT_TTL_MS)
    pen.write("ready")
    plan.wait_for("go")
    assert lock.acquire(timeout_seconds=60)
    force_release(client, plan.name, token=lock.token)  # if it is late, from nobody else
    assert lock.lost.wait(timeout=120)
    pen.write("told", told={"attempts": 1, "waits": 1, "holds": 1, "losses": 1})
    plan.wait_for("stop")


def shown(name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what an operator's command, a process of its own, says of a lock."""
    command = [sys.executable, "manage.py", "locks", name, "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env=dict(environment), capture_output=True, text=True, timeout=300, check=True
    )
    return json.loads(done.stdout)[name]


def counted(name: str) -> dict[str, int]:
    """Return what all processes have sent about a lock so far."""
    return read_statistics(redis.connect(), name)


def test_what_a_killed_process_had_not_sent_is_missing(new_sku: Callable[[], str], tmp_path: Path) -> None:
    """The control: the sums are compared with what the processes tell, so a missing count is seen."""
    with crowd(Plan(new_sku(), tmp_path), count_own_turns_unsent, count=1) as people:
        people.begin()
        (told,) = wait_until(lambda: people.entries("told"), what="it has counted")
        os.kill(people.processes[0].pid, signal.SIGKILL)
        people.processes[0].join(timeout=120)
        assert counted(people.plan.name).get("attempts", 0) < told.told["attempts"] == TURNS


def test_the_counts_of_all_processes_add_up_exactly(
    new_sku: Callable[[], str], tmp_path: Path, process_environment: dict[str, str]
) -> None:
    with crowd(Plan(new_sku(), tmp_path), count_own_turns, count=PROCESSES) as people:
        people.add(lose_a_lock)
        people.begin()
        tellers = wait_until(lambda: all_told(people.entries("told")), what="all have counted")
        sums = sum((Counter(entry.told) for entry in tellers), Counter[str]())
        wanted = {name: sums[name] for name in ("attempts", "waits", "holds", "timeouts", "losses")}
        name = people.plan.name

        def seen() -> dict[str, int]:
            found = counted(name)
            return {field: found.get(field, 0) for field in wanted}

        wait_until(lambda: seen() == wanted, what=f"{wanted} are counted")
        assert wanted["attempts"] == PROCESSES * TURNS + 1
        people.end()
    report = shown(name, process_environment)
    numbers = report["statistics"]
    assert {field: numbers[field] for field in wanted} == wanted
    assert (report["state"], report["waiters"]) == ("free", [])
    assert sums["not taken"] <= numbers["contended"] <= numbers["attempts"]
    for kind in ("waits", "holds"):  # each is in one field of the histogram, and in the sum
        buckets = {field: number for field, number in numbers.items() if field.startswith(f"{kind}_below_")}
        assert sum(buckets.values()) + numbers.get(f"{kind}_longer", 0) == numbers[kind]
        assert numbers[f"{kind}_max_us"] <= numbers[f"{kind}_us"] <= numbers[kind] * numbers[f"{kind}_max_us"]
    assert 1 <= numbers["waiters_max"] <= PROCESSES


def all_told(entries: list[Any]) -> list[Any]:
    """Return the entries when all have told, else nothing."""
    return entries if len(entries) == PROCESSES + 1 else []


def test_a_name_whose_counts_have_ended_is_forgotten() -> None:
    """The control is the same list before anything is counted again: nothing else takes a name out."""
    client = redis.connect()
    gone, kept = (f"kite-{os.getpid()}-{name}" for name in ("gone", "kept"))
    STATISTICS.flush()  # what other tests have counted would draw names, too, while it is told
    wait_until(lambda: not any(each.name == "lock-statistics" for each in threading.enumerate()), what="it is told")
    client.delete(keys.lock_names())  # those of other tests: which of many is drawn is a matter of time
    client.sadd(keys.lock_names(), gone)
    assert gone in skus_known(client)

    def count() -> bool:
        with Lock(client, kept, ttl_ms=5000):
            STATISTICS.flush()
        return gone not in skus_known(client)

    wait_until(count, what="the unused name is forgotten")
    wait_until(lambda: kept in skus_known(client))
