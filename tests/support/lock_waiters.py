"""Looks at those who wait for a lock, and lets them wait on a machine that stands still. Uses the real servers."""

from __future__ import annotations

from inventory import redis
from inventory.locks.lock import Lock
from tests.support.servers.server_matrix import sum_of_info

# How much longer a waiter stays noted than it asks for: for a machine that stands still for longer than a note lives.
NOTE_MS = 60_000


def blocked_clients() -> int:
    """Return how many clients wait in a blocking call on the tests' servers."""
    return sum_of_info(redis.connect(), "clients", "blocked_clients")


def note_for_long(lock: Lock) -> None:
    """Let nobody forget that `lock` is waited for: where the order of waiting is tested, and not the end of a note."""
    ask = lock._ask

    def ask_noted(*, wait_ms: int, nonce: str) -> tuple[int, str, int]:
        return ask(wait_ms=wait_ms and wait_ms + NOTE_MS, nonce=nonce)

    lock._ask = ask_noted  # type: ignore[method-assign]
