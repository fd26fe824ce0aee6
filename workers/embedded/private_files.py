"""Writes files that hold secrets, and logs: readable by their owner only from the first byte on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def write_private(path: Path, *, text: str) -> None:
    """Put `text` into a new file at `path` with mode 0600, in place of what was there; an old file is not followed."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def open_private(path: Path) -> BinaryIO:
    """Open the file at `path` to append to it. It has mode 0600 from now on, also if it was there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "ab")
