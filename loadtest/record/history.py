"""Keeps what every client did and was told: a JSON line when a call begins, another when it ends, a file a process.
Never judges and never loses a line silently: a file without its last line counts as cut off.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import chain, count
from pathlib import Path
from typing import IO, Any, Self

from loadtest.record.clocks import Clocks, clock_name, wall_offset_ns

FILE_PREFIX = "history-"
FORMAT = 2  # 1 had no line for the beginning of a call; it is read as well

INVOKE = "invoke"  # the call has begun; only the file says this, never an operation that was read
OK = "ok"  # a definite yes
FAIL = "fail"  # a definite no: nothing happened
UNKNOWN = "unknown"  # timeout, reset or 5xx: it may or may not have happened
STOPPED = "stopped"  # code of a call that we ourselves cut off when the run was stopped
UNENDED = "unended"  # code of a call that had not ended when its file did: its process was killed, or stopped

encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def state_folder() -> Path:
    """Return this checkout's git-ignored state folder."""
    project = Path(__file__).resolve().parents[2]
    return Path(os.environ.get("FAIRDROP_STATE_DIR") or project / ".fairdrop")


def demo_folder() -> Path:
    """Return the folder of the demo's own flood, which no other run writes into by itself."""
    return state_folder() / "flood"


def runs_folder() -> Path:
    """Return the folder in which each run that is not told another has one of its own."""
    return Path(__file__).resolve().parents[2] / "out" / "flood"


def new_run_folder(root: Path, *, name: str) -> Path:
    """Return a folder in `root` that no run has yet, with the time and `name` in its own; makes nothing."""
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    names = chain([stem], (f"{stem}-{number}" for number in count(2)))
    return next(folder for folder in map(root.joinpath, names) if not folder.exists())


@dataclass(slots=True, kw_only=True)
class Operation:
    """One call of one client, from its invocation to its answer (or to the lack of one)."""

    kind: str  # join, browse, ask, look, recheck, pay, begin, page, choose, cancel, restore, watch, event
    began_ns: int = 0
    planned_ns: int = 0  # when it should have begun by the plan of arrivals; 0: there was no such plan
    clicked_ns: int = 0  # of an ask, when its click was first sent; 0: an older record
    ended_ns: int = 0
    outcome: str = UNKNOWN
    status: int = 0
    code: str = ""
    buyer: str = ""
    sale: str = ""
    key: str = ""  # of an ask, the wish's; of a join, the visit
    quantity: int = 0
    # Of an ask: first, double (alongside the first), again (after its answer), standby (after a no), retry (no answer,
    # or told to come again), hasty (the same without the pause that was asked for).
    click: str = ""
    request_id: str = ""
    seq: int = 0
    state: str = ""
    network: str = ""  # of an ask: from which simulated network it came
    number: int = 0  # of the operation in its file, from 1
    clock: str = ""  # whose clock the times are on; filled in when read
    client_died: bool = False  # its process left no last line, so nobody went on asking; filled in when read


OPERATION_FIELDS = tuple(field.name for field in fields(Operation))


def now_ns() -> int:
    """Return the time on the clock that all processes of this host share."""
    return time.monotonic_ns()


class HistoryWriter:
    """Appends operations to this process's own file, each line with one write: a killed process has lost none."""

    def __init__(self, folder: Path, *, process_name: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = process_name or f"{socket.gethostname()}-{os.getpid()}"
        self.path = folder / f"{FILE_PREFIX}{name}.jsonl"
        self._file: IO[bytes] | None = self.path.open("wb", buffering=0)
        self._begun = 0
        self._open: set[int] = set()
        self._put({"history": FORMAT, "clock": clock_name(), "wall_minus_monotonic_ns": wall_offset_ns()})

    def begin(self, operation: Operation) -> None:
        """Record that an operation is about to be sent, so that it is known even if its end never is."""
        if self._file is None:
            return
        self._number(operation)
        self._open.add(operation.number)
        self._put(_filled(operation) | {"outcome": INVOKE})

    def add(self, operation: Operation) -> None:
        """Record an operation that has ended; its line says everything, empty fields are left out."""
        if self._file is None:
            return
        if operation.number not in self._open:
            self._number(operation)
        self._open.discard(operation.number)
        self._put(_filled(operation))

    def close(self) -> None:
        """Write the last line, which says how many operations there must be, and how many of them never ended."""
        if self._file is None:
            return
        counts = {"operations": self._begun, "unended": len(self._open)}
        self._put({"end": True, **counts, "wall_minus_monotonic_ns": wall_offset_ns()})
        self._file.close()
        self._file = None

    def _number(self, operation: Operation) -> None:
        self._begun += 1
        operation.number = self._begun

    def _put(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(encode(line).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _filled(operation: Operation) -> dict[str, Any]:
    return {name: value for name in OPERATION_FIELDS if (value := getattr(operation, name))}


@dataclass(slots=True)
class History:
    """All operations of a run, their clocks, and the names of the files that were cut off."""

    operations: list[Operation]
    cut_off: list[str]
    files: int = 0
    clocks: Clocks = field(default_factory=Clocks)


def history_files(folder: Path) -> list[Path]:
    """Return the history files of a folder in a stable order."""
    return sorted(folder.glob(f"{FILE_PREFIX}*.jsonl"))


def clear_history(folder: Path) -> None:
    """Remove the history files of an earlier run, and nothing else."""
    for path in history_files(folder):
        path.unlink()


def is_complete(path: Path) -> bool:
    """Say whether this file has its last line, without reading the rest."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 200))
        lines = file.read().splitlines()
    return bool(lines) and lines[-1].startswith(b'{"end":true')


def read_history(*folders: Path) -> History:
    """Read all files of a run, in the order of invocation; the files of each machine may lie in a folder of their own.

    Each operation's times stay on its own clock; the order of those of different machines is that of the time of day,
    which is good enough to read and never enough to judge.
    """
    history = History([], [])
    for path in (path for folder in folders for path in history_files(folder)):
        history.files += 1
        if not _read_file(path, into=history):
            history.cut_off.append(path.name)
    shifts = history.clocks.shifts_ns
    history.operations.sort(key=lambda operation: operation.began_ns + shifts.get(operation.clock, 0))
    return history


def _read_file(path: Path, *, into: History) -> bool:
    """Add the operations of one file; say whether it was whole."""
    clock, promised = "", (-1, -1)
    ended: list[Operation] = []
    begun: dict[int, dict[str, Any]] = {}
    for line in _lines(path):
        if "wall_minus_monotonic_ns" in line:
            clock = str(line.get("clock", clock))
            into.clocks.note(clock, offset_ns=int(line["wall_minus_monotonic_ns"]))
        if "end" in line:
            promised = int(line["operations"]), int(line.get("unended", 0))
        elif "kind" in line:
            if line.get("outcome") == INVOKE:
                begun[line["number"]] = line
            else:
                begun.pop(line.get("number", 0), None)
                ended.append(_operation(line, clock=clock))
    last_ns = max((operation.ended_ns for operation in ended), default=0)
    unended = [_unended(line, clock=clock, last_ns=last_ns) for line in begun.values()]
    found = [*ended, *unended]
    whole = promised == (len(found), len(unended))
    for operation in found:
        operation.client_died = not whole
    into.operations += found
    return whole


def _operation(line: dict[str, Any], *, clock: str) -> Operation:
    return Operation(**{name: line[name] for name in OPERATION_FIELDS if name in line} | {"clock": clock})


def _unended(line: dict[str, Any], *, clock: str, last_ns: int) -> Operation:
    """Give a call that never ended the only honest end: unknown, not before the last that its client did."""
    operation = _operation(line, clock=clock)
    operation.outcome, operation.code = UNKNOWN, UNENDED
    operation.ended_ns = max(last_ns, operation.began_ns)
    return operation


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for text in file:
            try:
                line = json.loads(text)
            except ValueError:
                return  # the process died in the middle of this line
            if isinstance(line, dict):
                yield line
