"""Writes the files of a run whole: who reads one while it is written sees the old text or the new one, never a part.
Never promises that a file outlives a crash of the machine. And removes the folders of runs that were killed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil


def write_whole(path: Path, text: str) -> None:
    """Give a file new text in one step."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def remove_left_behind(parent: Path, *, prefix: str) -> None:
    """Remove each folder `prefix`PID-… in `parent` whose process is gone: it was killed before it could do so."""
    for folder in parent.glob(f"{prefix}*-*"):
        owner = folder.name.removeprefix(prefix).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
