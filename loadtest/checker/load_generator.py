"""Measures how busy the load generator's own processes are: above nine tenths of a core its figures are its own.
Never guesses: a process that left no file is named.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.checker.case import Fault
from loadtest.record.clocks import clock_name
from loadtest.record.files import write_whole
from loadtest.record.history import FILE_PREFIX as HISTORY_PREFIX
from loadtest.record.history import History, history_files

FILE_PREFIX = "load-"
VOID_SHARE = 0.9
# A burst may fill a core; what counts is the busiest stretch of this length, or the whole of a shorter run.
SUSTAINED_SECONDS = 10.0
NS = 1_000_000_000

Sample = tuple[int, int]  # ns of this host's clock, CPU ns of this process so far


class LoadMeter:
    """Samples of one process, written alongside its history."""

    def __init__(self, folder: Path, *, begins_ns: int) -> None:
        self._path = folder / f"{FILE_PREFIX}{socket.gethostname()}-{os.getpid()}.json"
        self._begins_ns = begins_ns
        self._samples: list[Sample] = []

    def sample(self) -> None:
        """Note how much CPU this process has used so far."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        self._samples.append((time.monotonic_ns(), int((used.ru_utime + used.ru_stime) * NS)))

    def close(self) -> None:
        """Take the last sample and write the file."""
        self.sample()
        record = {"clock": clock_name(), "begins_ns": self._begins_ns, "samples": self._samples}
        write_whole(self._path, json.dumps(record) + "\n")


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """One process of the load generator. cpu_share: of one core, in its busiest sustained stretch."""

    name: str
    cpu_share: float


@dataclass(frozen=True, slots=True)
class OwnLoad:
    """All of them."""

    cpu_share: float
    void: bool
    processes: list[ProcessLoad] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def clear_load(folder: Path) -> None:
    """Remove what an earlier run left."""
    for path in folder.glob(f"{FILE_PREFIX}*.json"):
        path.unlink()


def read_load(*folders: Path, is_planned: bool = False) -> OwnLoad | None:
    """Sum a run's files up, of each machine; None where there are none, for a run without a plan of arrivals.

    is_planned: the run's own waits depend on what its processes could do, so each must have said how busy it was.
    """
    processes: list[ProcessLoad] = []
    missing: set[str] = set()
    for folder in folders:
        records = _records(folder)
        processes += [_process(name, record) for name, record in records.items()]
        missing |= {path.stem.removeprefix(HISTORY_PREFIX) for path in history_files(folder)} - set(records)
    if not processes and not (is_planned and missing):
        return None
    share = max((process.cpu_share for process in processes), default=0.0)
    return OwnLoad(share, share > VOID_SHARE, processes, sorted(missing))


def _process(name: str, record: dict[str, Any]) -> ProcessLoad:
    samples = [(int(at), int(cpu)) for at, cpu, *_ in record["samples"]]  # older records say more
    return ProcessLoad(name, busiest_share(samples))


def load_generator(history: History, load: OwnLoad) -> Iterator[Fault]:
    """The load generator's own CPU was measured, and was enough."""
    for name in load.missing:
        yield Fault(f"{name} did not say how busy it was")
    # A crowd without a plan comes as fast as it can: it fills its core by design, and only its waits are void.
    planned = any(operation.planned_ns for operation in history.operations)
    for process in load.processes:
        if planned and process.cpu_share > VOID_SHARE:
            busy = f"{process.name} was busy at {process.cpu_share:.0%} of a core"
            yield Fault(f"VOID: {busy}, more than {VOID_SHARE:.0%}")


def begins_ns(folder: Path) -> dict[str, int]:
    """Return when the doors opened, on each host's clock."""
    return {str(record["clock"]): int(record["begins_ns"]) for record in _records(folder).values()}


def busiest_share(samples: list[Sample], *, seconds: float = SUSTAINED_SECONDS) -> float:
    """Return the greatest share of a core that was used over a stretch of at least `seconds`; else over the whole."""
    if len(samples) < 2:
        return 0.0
    best, first = 0.0, 0
    for last, (at_ns, cpu_ns) in enumerate(samples):
        while first + 1 < last and at_ns - samples[first + 1][0] >= seconds * NS:
            first += 1
        if at_ns - samples[first][0] >= seconds * NS:
            best = max(best, _share(samples[first], (at_ns, cpu_ns)))
    return round(best or _share(samples[0], samples[-1]), 3)


def _share(first: Sample, last: Sample) -> float:
    return (last[1] - first[1]) / max(1, last[0] - first[0])


def _records(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what each process said of itself; one whose file is damaged has said nothing."""
    records = {}
    for path in sorted(folder.glob(f"{FILE_PREFIX}*.json")):
        with suppress(ValueError):
            records[path.stem.removeprefix(FILE_PREFIX)] = json.loads(path.read_text())
    return records
