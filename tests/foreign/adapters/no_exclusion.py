"""A pytest plugin for the control: our lock is given to everybody who asks."""

from __future__ import annotations

from typing import Any

from inventory.locks.lock import Lock

ask = Lock._ask


def give(lock: Lock, **call: Any) -> tuple[int, str, int]:
    """Ask as ever, and take every answer for a yes."""
    _, _, waiters = ask(lock, **call)
    return 1, "1", waiters


Lock._ask = give  # type: ignore[method-assign]
