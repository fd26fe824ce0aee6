"""Keeps what every client did and was told, one JSON line an operation, one file a process.
Never judges and never loses a line silently: a file without its last line counts as cut off.
Called by the crowd (writing) and by the verdict (reading).
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any, Self

FILE_PREFIX = "history-"
LINES_BETWEEN_FLUSHES = 2000

OK = "ok"  # a definite yes
FAIL = "fail"  # a definite no: nothing happened
UNKNOWN = "unknown"  # timeout, reset or 5xx: it may or may not have happened
STOPPED = "stopped"  # code of a call that we ourselves cut off when the run was stopped


@dataclass(slots=True, kw_only=True)
class Operation:
    """One call of one client, from its invocation to its answer (or to the lack of one)."""

    kind: str  # join, browse, ask, look, recheck, pay, begin, page, choose, cancel
    began_ns: int = 0
    ended_ns: int = 0
    outcome: str = UNKNOWN
    status: int = 0
    code: str = ""
    buyer: str = ""
    sale: str = ""
    key: str = ""
    quantity: int = 0
    click: str = ""  # of an ask: first, double (beside the first), again (after its answer), retry (no answer)
    request_id: str = ""
    seq: int = 0
    state: str = ""
    clock: str = ""  # whose clock the times are on; filled in when read


OPERATION_FIELDS = tuple(field.name for field in fields(Operation))


def now_ns() -> int:
    """Return the time on the clock that all processes of this host share."""
    return time.monotonic_ns()


def clock_name() -> str:
    """Return a name of this host's monotonic clock: times of two names must not be compared."""
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    return boot_id.read_text().strip() if boot_id.exists() else socket.gethostname()


class HistoryWriter:
    """Appends operations to this process's own file; buffered, written out at the latest by close()."""

    def __init__(self, folder: Path, *, process_name: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = process_name or f"{socket.gethostname()}-{os.getpid()}"
        self.path = folder / f"{FILE_PREFIX}{name}.jsonl"
        self._file: IO[str] | None = self.path.open("w", encoding="utf-8")
        self._waiting: list[str] = []
        self._written = 0
        offset_ns = time.time_ns() - time.monotonic_ns()
        self._put({"history": 1, "clock": clock_name(), "wall_minus_monotonic_ns": offset_ns})

    def add(self, operation: Operation) -> None:
        """Record one finished operation; empty fields are left out of the line."""
        if self._file is None:
            return
        self._put({name: value for name in OPERATION_FIELDS if (value := getattr(operation, name))})
        self._written += 1

    def close(self) -> None:
        """Write out everything and the last line, which says how many operations there must be."""
        if self._file is None:
            return
        self._put({"end": True, "operations": self._written})
        self._flush()
        self._file.close()
        self._file = None

    def _put(self, line: dict[str, Any]) -> None:
        self._waiting.append(json.dumps(line, separators=(",", ":")))
        if len(self._waiting) >= LINES_BETWEEN_FLUSHES:
            self._flush()

    def _flush(self) -> None:
        if self._file is not None and self._waiting:
            self._file.write("\n".join(self._waiting) + "\n")
            self._file.flush()
        self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class History:
    """All operations of a run and the names of the files that were cut off."""

    operations: list[Operation]
    cut_off: list[str]
    files: int = 0


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


def read_history(folder: Path) -> History:
    """Read all files of a run, in the order of invocation."""
    history = History([], [])
    for path in history_files(folder):
        history.files += 1
        if not _read_file(path, into=history.operations):
            history.cut_off.append(path.name)
    history.operations.sort(key=lambda operation: operation.began_ns)
    return history


def _read_file(path: Path, *, into: list[Operation]) -> bool:
    """Add the operations of one file; say whether it was whole."""
    clock, count, promised = "", 0, -1
    for line in _lines(path):
        if "history" in line:
            clock = str(line["clock"])
        elif "end" in line:
            promised = int(line["operations"])
        else:
            into.append(Operation(**{name: line[name] for name in OPERATION_FIELDS if name in line} | {"clock": clock}))
            count += 1
    return promised == count


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for text in file:
            try:
                line = json.loads(text)
            except ValueError:
                return  # the process died in the middle of this line
            if isinstance(line, dict):
                yield line
