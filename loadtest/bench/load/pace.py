"""Lets requests out at an even pace, and floods a server at one from a process of its own.
Never catches up a burst later: a slow server gets fewer.
"""

from __future__ import annotations

from loadtest.bench.load.loader import Load, Loader

CONNECTIONS = 128
MAX_HELD_BACK_SECONDS = 0.1


class Pace:
    """Says whether one more may be sent: `per_second` of them, spread evenly."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1 / per_second
        self._next_at = 0.0

    def may_send(self, now: float) -> bool:
        """Say so, and count it as sent."""
        if now < self._next_at:
            return False
        # Of what a stall held back only the last moment's share goes out at once: a crowd does not save up its clicks.
        self._next_at = max((self._next_at or now) + self._gap, now - MAX_HELD_BACK_SECONDS)
        return True


def flood(port: int, requests: list[bytes], *, per_second: float, seconds: float) -> Load:
    """Send `requests` to `port` at that pace. Raises LoadFailed."""
    loader = Loader(port, connections=CONNECTIONS, may_send=Pace(per_second).may_send)
    return loader.run(requests, seconds=seconds, warm_up_seconds=0.0)
