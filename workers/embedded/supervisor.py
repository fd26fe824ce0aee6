"""Keeps an ordered set of children alive: one that dies is started again, with growing pauses; all end in stages.
Never restarts after stop_all began, never takes longer to stop than the stages' timeouts together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from workers.embedded.child_process import ChildProcess, adopt_orphans, reap_adopted

FIRST_PAUSE_SECONDS = 0.5
# Short, so that with its start a web process is back within about five seconds, however often it ended before.
MAX_PAUSE_SECONDS = 2.0
# A child that ran this long is healthy: its next death starts with the short pause again.
HEALTHY_SECONDS = 60.0
ORPHANS_SECONDS = 1.0


@dataclass(kw_only=True)
class Member:
    """One supervised child. stage: children of a lower one are ended first."""

    child: ChildProcess
    stage: int
    started_at: float
    pause_seconds: float = FIRST_PAUSE_SECONDS
    restart_at: float | None = None
    rests_until: float = 0.0


class Supervisor:
    """An ordered set of running children."""

    def __init__(self, *, report: Callable[[str], None]) -> None:
        self._members: list[Member] = []
        self._report = report
        adopt_orphans()

    def add(self, child: ChildProcess, *, stage: int) -> ChildProcess:
        """Watch a child from now on, starting it if it does not run."""
        if not child.running:
            child.start()
        self._members.append(Member(child=child, stage=stage, started_at=time.monotonic()))
        return child

    def restart_the_dead(self) -> None:
        """Start again every child that died and whose pause is over, and keep their logs short. Call it often."""
        now = time.monotonic()
        for member in self._members:
            if now < member.rests_until:
                continue
            try:
                self._restart_if_dead(member, now=now)
                member.child.bound_log()
            except OSError as error:  # no memory for a process, or no room for a log, ends none of the others
                self._report(f"{member.child.name} is tried again in {MAX_PAUSE_SECONDS:g} s: {error}")
                member.rests_until = now + MAX_PAUSE_SECONDS

    def _restart_if_dead(self, member: Member, *, now: float) -> None:
        if member.child.running:
            return
        if member.restart_at is None:
            self._plan_restart(member, now=now)
        elif now >= member.restart_at:
            member.child.start()
            member.started_at, member.restart_at = now, None

    def _plan_restart(self, member: Member, *, now: float) -> None:
        """End what the dead leader left behind (it may hold the port) and say when the child starts again."""
        member.child.kill_group()
        if now - member.started_at >= HEALTHY_SECONDS:
            member.pause_seconds = FIRST_PAUSE_SECONDS
        log = f", its log is {member.child.log_path}" if member.child.log_path else ""
        self._report(
            f"{member.child.name} ended by itself (code {member.child.exit_code}); it starts again in "
            f"{member.pause_seconds:g} s{log}"
        )
        member.restart_at = now + member.pause_seconds
        member.pause_seconds = min(member.pause_seconds * 2, MAX_PAUSE_SECONDS)

    def stop_all(self) -> None:
        """End every child, stage by stage, those of one stage together; nothing of any group is left."""
        for _, members in groupby(sorted(self._members, key=lambda member: member.stage), key=lambda m: m.stage):
            _stop_together([member.child for member in members])
        self._members.clear()
        # A killed PostgreSQL's processes are in sessions of their own; they end by themselves and are collected here.
        reap_adopted(timeout_seconds=ORPHANS_SECONDS)


def _stop_together(children: Iterable[ChildProcess]) -> None:
    children = list(children)
    for child in children:
        with suppress(ProcessLookupError):
            child.ask_to_stop()
    deadline = time.monotonic() + max(child.stop_timeout_seconds for child in children)
    for child in children:
        child.wait(timeout_seconds=max(0.0, deadline - time.monotonic()))
        child.kill_group()
