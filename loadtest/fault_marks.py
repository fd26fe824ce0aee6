"""Marks a fault in a run: who kills or stops something writes down what and when, and the report shows it.
Never does the fault itself. Usage: python -m loadtest.fault_marks "kill -9 settler-1" FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from loadtest.record.history import demo_folder

FAULTS_FILE = "faults.jsonl"


def mark_fault(folder: Path, fault: str) -> None:
    """Append `fault` with the time of day: a process of another machine may mark it."""
    mark = {"fault": fault, "at_unix_ns": time.time_ns()}
    with (folder / FAULTS_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(mark) + "\n")


def read_faults(folder: Path) -> list[dict[str, Any]]:
    """Return the marks of a run in the order of time; a line that is none is left out."""
    path = folder / FAULTS_FILE
    marks = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            mark = json.loads(line)
            marks.append({**mark, "fault": str(mark["fault"]), "at_unix_ns": int(mark["at_unix_ns"])})
        except (ValueError, TypeError, KeyError):
            continue
    return sorted(marks, key=lambda mark: mark["at_unix_ns"])


def clear_faults(folder: Path) -> None:
    """Remove the marks of an earlier run."""
    (folder / FAULTS_FILE).unlink(missing_ok=True)


def main(words: list[str]) -> int:
    """Mark a fault now."""
    if len(words) not in (1, 2) or not words[0].strip():
        print('usage: python -m loadtest.fault_marks "what was done" [FOLDER of the run]', file=sys.stderr)
        return 2
    folder = Path(words[1]) if len(words) == 2 else demo_folder()
    if not folder.is_dir():
        print(f"{folder} is no folder of a run.", file=sys.stderr)
        return 2
    mark_fault(folder, words[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
