"""Adds up what each part of a run used of the cores: the load's own process, the web, the settlers, both stores.
Never looks at a process of somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadtest.bench.harness import processes
from workers.embedded.child_process import ChildProcess

GENERATOR, WEB, SETTLER, REDIS, POSTGRES = "generator", "web", "settler", "Redis", "PostgreSQL"
PARTS = (GENERATOR, WEB, SETTLER, REDIS, POSTGRES)


@dataclass(frozen=True, kw_only=True)
class Crew:
    """The processes of a running shop by part; a part without any used nothing."""

    children: Mapping[str, Sequence[ChildProcess]]

    def read(self) -> dict[str, float]:
        """Return the CPU seconds each part has used until now."""
        return {part: sum(map(processes.cpu_seconds, children)) for part, children in self.children.items()}


def used(before: Mapping[str, float], after: Mapping[str, float], *, generator: float) -> dict[str, float]:
    """Return the CPU seconds between two readings, and the generator's own."""
    return {GENERATOR: generator, **{part: after[part] - before[part] for part in after}}


def microseconds_each(cpu_seconds: Mapping[str, float], *, answers: int) -> dict[str, float]:
    """Return the µs of CPU that each part used for one of `answers`, 0 for a part that was not there."""
    return {part: cpu_seconds.get(part, 0.0) * 1_000_000 / max(answers, 1) for part in PARTS}
