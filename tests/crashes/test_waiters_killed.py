"""Proves that processes killed while they hold a lock or wait for it hold the others up for a moment only.
Which is killed when is drawn by lot, the same lots in every run. Real processes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

import psutil
import pytest

from inventory import redis
from inventory.locks.lock import GRANT_TTL_MS
from inventory.locks.report import LockReport, report_locks
from inventory.locks.token import owner_of
from tests.races.lock_crowd import Crowd, Entry, Pen, Plan, crowd, take_turns
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shop_database")
PROCESSES, KILLS, SEED = 8, 6, 20260301
LOOKS = 3
TTL_MS = 6000
HELD_UP_SECONDS = (TTL_MS + GRANT_TTL_MS) / 1000
# Many times the promise, for a machine that is busy. Nothing else would let the others go on sooner than after minutes:
# the control's lock holds them up for ten.
MAX_WAIT_SECONDS = 15 * HELD_UP_SECONDS


@dataclass
class Killer:
    """Kills one process after another, and lets the others go on in between."""

    people: Crowd
    lots: Random

    def living(self) -> list[BaseProcess]:
        """Return who was not killed yet."""
        return [each for each in self.people.processes if each.is_alive()]

    def strike(self, *, holding: bool) -> int:
        """Kill a process while it holds the lock, or while it waits for it; return which."""
        time.sleep(self.lots.uniform(0, 0.05))
        victim = wait_until(lambda: self._frozen(holding=holding), what="a victim is frozen")
        os.kill(victim, signal.SIGKILL)
        next(each for each in self.people.processes if each.pid == victim).join(timeout=120)
        return victim

    def _frozen(self, *, holding: bool) -> int:
        """Freeze one that seems to hold or wait; return it only if it still does: then it surely dies so."""
        found = self._candidates(report_of(self.people.plan.name), holding=holding)
        if not found:
            return 0
        victim = self.lots.choice(found)
        os.kill(victim, signal.SIGSTOP)
        wait_until(lambda: psutil.Process(victim).status() == psutil.STATUS_STOPPED, what="it is frozen")
        # What it sent just before may be heard by the server only now.
        if all(victim in self._candidates(report_of(self.people.plan.name), holding=holding) for _ in range(LOOKS)):
            return victim
        os.kill(victim, signal.SIGCONT)
        return 0

    def _candidates(self, report: LockReport, *, holding: bool) -> list[int]:
        tokens = [report.token or ""] if holding else list(report.waiters)
        named = {owner.process_id for owner in map(owner_of, tokens) if owner}
        return sorted(named & {each.pid for each in self.living() if each.pid})

    def let_the_others_go_on(self, *, since: float) -> None:
        """Return when every process that lives has had the lock once more since `since`."""

        def all_had_it() -> bool:
            had = {entry.process_id for entry in self.people.entries("holds") if entry.moment > since}
            return {each.pid for each in self.living()} <= had

        wait_until(all_had_it, what="the others go on")


def report_of(name: str) -> LockReport:
    """Return who has the lock and who waits."""
    return report_locks(redis.connect(), [name])[0]


def waits(entries: list[Entry], *, until: float) -> list[float]:
    """Return how long each wait took, also those that were not over at `until`."""
    asked: dict[int, float] = {}
    found = []
    for entry in entries:
        if entry.what == "asks":
            asked[entry.process_id] = entry.moment
        elif entry.process_id in asked:
            found.append(entry.moment - asked.pop(entry.process_id))
    return found + [until - moment for moment in asked.values()]


def overlaps(entries: list[Entry]) -> list[tuple[Entry, Entry]]:
    """Return each pair of holds of which the later began before the earlier was over."""
    found, open_hold = [], None
    for entry in entries:
        if entry.what == "holds":
            # One that was killed in its hold writes no end: its hold ended before the next began, or Redis lied.
            if open_hold is not None and entry.fence <= open_hold.fence:
                found.append((open_hold, entry))
            open_hold = entry
        elif entry.what in ("ends", "lost") and open_hold is not None and entry.process_id != open_hold.process_id:
            found.append((open_hold, entry))
    return found


def without_late_losses(entries: list[Entry]) -> list[Entry]:
    """Leave out each loss that came when nearly all of the lock's life had passed: its process stood still for it.

    A hold takes some milliseconds: one that a mistake of the lock ended is lost long before that.
    """
    began = {entry.fence: entry.moment for entry in entries if entry.what == "holds"}
    late_seconds = 0.9 * TTL_MS / 1000
    return [entry for entry in entries if entry.what != "lost" or entry.moment - began[entry.fence] < late_seconds]


def test_the_others_go_on_whoever_is_killed(new_sku: Callable[[], str], tmp_path: Path) -> None:
    lots, killed = Random(SEED), dict[int, bool]()
    plan = Plan(new_sku(), tmp_path, ttl_ms=TTL_MS, hold_seconds=0.01)
    with crowd(plan, take_turns, count=PROCESSES) as people:
        people.begin()
        killer = Killer(people, lots)
        for number in range(KILLS):
            holding = number % 2 == 0 if number < 2 else lots.random() < 0.5  # both kinds happen, whatever the lots
            killed[killer.strike(holding=holding)] = holding
            killer.let_the_others_go_on(since=time.monotonic())
        survivors = {each.pid for each in killer.living()}
        people.end()
        ended = time.monotonic()
    assert (len(killed), len(survivors), set(killed.values())) == (KILLS, PROCESSES - KILLS, {True, False})
    entries = without_late_losses(people.entries())
    assert max(waits([entry for entry in entries if entry.process_id in survivors], until=ended)) < MAX_WAIT_SECONDS
    fences = [entry.fence for entry in people.entries("holds")]
    assert len(fences) > KILLS * 2
    assert fences == sorted(set(fences))
    assert overlaps(entries) == []
    assert [entry for entry in entries if entry.what in ("lost", "gave up")] == []


def hold_without_a_lock(plan: Plan) -> None:
    """Hold what nobody guards."""
    pen, fence = Pen(plan), 0
    pen.write("ready")
    plan.wait_for("go")
    while not plan.said("stop"):
        fence += 1
        pen.write("asks")
        pen.write("holds", fence=fence)
        time.sleep(plan.hold_seconds)
        pen.write("ends", fence=fence)


def test_without_a_lock_the_log_shows_two_at_once(new_sku: Callable[[], str], tmp_path: Path) -> None:
    """The control: the log that is read above tells when two hold at once, and when fences do not rise."""
    with crowd(Plan(new_sku(), tmp_path, hold_seconds=0.01), hold_without_a_lock, count=3) as people:
        people.begin()

        def is_seen() -> bool:
            fences = [entry.fence for entry in people.entries("holds")]
            return overlaps(people.entries()) != [] and fences != sorted(set(fences))

        wait_until(is_seen, what="two hold at once, and fences do not rise")
        people.end()


def test_a_killed_holder_without_a_life_would_hold_everybody_up(new_sku: Callable[[], str], tmp_path: Path) -> None:
    """The control: with a lock that lives long, nobody goes on within the promise (L2)."""
    plan = Plan(new_sku(), tmp_path, ttl_ms=600_000, hold_seconds=0.01)
    with crowd(plan, take_turns, count=3) as people:
        people.begin()
        killer = Killer(people, Random(SEED))
        killer.strike(holding=True)
        since = time.monotonic()
        with pytest.raises(AssertionError, match="somebody goes on"):
            wait_until(
                lambda: any(entry.moment > since for entry in people.entries("holds")),
                timeout_seconds=HELD_UP_SECONDS,
                what="somebody goes on",
            )
        for each in killer.living():
            each.kill()
