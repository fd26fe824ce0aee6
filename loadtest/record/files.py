"""Writes the files of a run whole: who reads one while it is written sees the old text or the new one, never a part.
Never promises that a file outlives a crash of the machine.
"""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Give a file new text in one step."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
