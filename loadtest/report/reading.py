"""Reads what a run left in its folder and brings every time to one scale: seconds after the first purchase attempt.
Never judges: the verdict is read as it was written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.checker.buyer_record import BuyerRecord
from loadtest.checker.latency import due_ns
from loadtest.checker.verdict import AUDIT_FILE, VERDICT_FILE
from loadtest.fault_marks import read_faults
from loadtest.record.facts import read_facts
from loadtest.record.history import OK, History, Operation, read_history
from loadtest.record.sampling import SAMPLES_FILE
from loadtest.users.contract import is_refusal

NS_PER_SECOND = 1_000_000_000
NS_PER_MS = 1_000_000


class NoRun(Exception):
    """The folder is not that of a finished run; the text is one sentence for the operator."""


@dataclass(frozen=True, slots=True)
class Waited:
    """One wait of one client: when it began (seconds), how long it took (milliseconds)."""

    began: float
    took_ms: float


@dataclass(frozen=True, slots=True)
class Look:
    """One look at one sale at a moment (seconds): counts by name."""

    at: float
    sale: str
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Mark:
    """A fault somebody put in, and when (seconds)."""

    at: float
    fault: str


@dataclass(slots=True, kw_only=True)
class Run:
    """Everything the report shows."""

    verdict: dict[str, Any]
    facts: dict[str, Any]
    books: dict[str, Any]
    began_unix_ns: int = 0
    seconds: float = 0.0
    admissions: list[Waited] = field(default_factory=list)
    refusals: list[Waited] = field(default_factory=list)
    decisions: list[Waited] = field(default_factory=list)
    figures: list[Look] = field(default_factory=list)
    audits: list[Look] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    faults: list[Mark] = field(default_factory=list)


def read_run(folder: Path) -> Run:
    """Return the run of a folder. Raises NoRun when there is no verdict in it."""
    try:
        verdict, books = (json.loads((folder / name).read_text()) for name in (VERDICT_FILE, AUDIT_FILE))
    except (OSError, ValueError) as error:
        raise NoRun(f"{folder} has no finished run: {VERDICT_FILE} and {AUDIT_FILE} are needed.") from error
    run = Run(verdict=verdict, facts=read_facts(folder), books=books)
    history = read_history(folder)
    offsets = history.clocks.offsets_ns
    began_ns = [_wall_ns(due_ns(o), o.clock, offsets) for o in history.operations if o.kind == "ask"]
    run.began_unix_ns = min(began_ns, default=int(run.facts.get("began_unix_ns") or 0))
    _add_waits(run, history, offsets=offsets)
    _add_samples(run, folder)
    run.faults = [Mark(_seconds(run, mark["at_unix_ns"]), mark["fault"]) for mark in read_faults(folder)]
    run.seconds = _length(run, history, offsets=offsets)
    return run


def _wall_ns(at_ns: int, clock: str, offsets: dict[str, int]) -> int:
    return at_ns + offsets.get(clock, 0)


def _seconds(run: Run, unix_ns: int) -> float:
    return (unix_ns - run.began_unix_ns) / NS_PER_SECOND


def _add_waits(run: Run, history: History, *, offsets: dict[str, int]) -> None:
    """Add every purchase attempt that was answered, and every place whose buyer saw what became of it."""

    def waited(began_ns: int, ended_ns: int, clock: str) -> Waited:
        return Waited(_seconds(run, _wall_ns(began_ns, clock, offsets)), (ended_ns - began_ns) / NS_PER_MS)

    by_sale: dict[str, list[Operation]] = {slug: [] for slug in run.books}
    for operation in history.operations:
        by_sale.get(operation.sale, []).append(operation)
    for slug, operations in by_sale.items():
        record = BuyerRecord(slug, operations)
        admitted = [ask for ask in record.asks if ask.outcome == OK]
        for asks, waits in ((admitted, run.admissions), (filter(is_refusal, record.asks), run.refusals)):
            waits += [waited(due_ns(o), o.ended_ns, o.clock) for o in asks]
        for place in record.places.values():
            first = min((wish.asks[0] for wish in place.wishes), key=lambda ask: ask.began_ns)
            if ended_ns := place.answered_ns():
                run.decisions.append(waited(due_ns(first), ended_ns, first.clock))


def _add_samples(run: Run, folder: Path) -> None:
    """Add every look at the shop; a look that failed is a gap."""
    path = folder / SAMPLES_FILE
    offset_ns = 0
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        line = _json(text)
        if "samples" in line:
            offset_ns = int(line.get("wall_minus_monotonic_ns") or 0)
        elif "at_ns" in line:
            _add_look(run, line, at=_seconds(run, int(line["at_ns"]) + offset_ns))


def _add_look(run: Run, line: dict[str, Any], *, at: float) -> None:
    if "gap" in line:
        run.gaps.append(at)
    elif "audit" in line:
        run.audits.append(Look(at, str(line.get("sale")), _numbers(line["audit"].get("counts", {}))))
    else:
        run.figures += [Look(at, slug, _numbers(counts)) for slug, counts in line.get("figures", {}).items()]


def _numbers(counts: dict[str, Any]) -> dict[str, int]:
    return {name: int(value) for name, value in counts.items() if isinstance(value, int)}


def _length(run: Run, history: History, *, offsets: dict[str, int]) -> float:
    """Return how many seconds the charts show: to the last answer, or to the last look while something still moved."""
    last = max((_seconds(run, _wall_ns(o.ended_ns, o.clock, offsets)) for o in history.operations), default=0.0)
    moved, before = 0.0, dict[str, dict[str, int]]()
    for look in run.figures:
        if before.get(look.sale) != look.counts:
            before[look.sale], moved = look.counts, look.at
    return max(last, moved, *(mark.at for mark in run.faults), 1.0)


def _json(text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        return {}  # the process died in the middle of this line
    return line if isinstance(line, dict) else {}
