"""Waits until something is so. Never waits for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from loadtest.bench.load.loop import LoadFailed

Value = TypeVar("Value")
LOOK_SECONDS = 0.05


def wait_for(
    wanted: Value, look: Callable[[], Value], *, seconds: float, what: str, every_seconds: float = LOOK_SECONDS
) -> None:
    """Return once `look` returns what is wanted. what: it looks at. Raises LoadFailed when that takes too long."""
    deadline = time.monotonic() + seconds
    while (found := look()) != wanted:
        if time.monotonic() > deadline:
            raise LoadFailed(f"{what}: {found} instead of {wanted} after {seconds:g} s")
        time.sleep(every_seconds)
