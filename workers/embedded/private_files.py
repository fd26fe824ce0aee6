"""Writes files that hold secrets: readable by their owner only from the first byte on. Never follows an old file."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, *, text: str) -> None:
    """Put `text` into a new file at `path` with mode 0600, in place of what was there."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
