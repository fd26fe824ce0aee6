"""Writes the files of a run whole: who reads one while it is written sees the old text or the new one, never a part.
Never promises that a file outlives a crash of the machine. And removes the folders of runs that were killed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil

PID_NAMESPACE = Path("/proc/self/ns/pid")


def write_whole(path: Path, text: str) -> None:
    """Give a file new text in one step."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def own_mark() -> str:
    """Return what says in a folder's name whose it is: the number of this process, and in which namespace it counts."""
    return f"{os.getpid()}-{_namespace()}-"


def remove_left_behind(parent: Path, *, prefix: str) -> None:
    """Remove each folder `prefix` + `own_mark()` + … in `parent` whose process was killed before it could do so.

    Those of another namespace stay: a container that shares the folder has processes that are not seen from here.
    """
    for folder in parent.glob(f"{prefix}*-{_namespace()}-*"):
        owner = folder.name.removeprefix(prefix).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _namespace() -> int:
    return PID_NAMESPACE.stat().st_ino if PID_NAMESPACE.exists() else 0
