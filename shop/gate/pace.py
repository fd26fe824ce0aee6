"""Says how soon a waiting buyer should ask again. Pure."""

from __future__ import annotations

SOONEST_MS = 250
LATEST_MS = 5000


def poll_after_ms(position: int, seq: int) -> int:
    """Return the pause before the next poll: short near the front, ± 20 % so that a crowd does not ask in step.

    position: 0 when the request does not wait. seq: its place in µs, whose last digits scatter the crowd.
    """
    if position <= 0:
        return LATEST_MS
    calm = min(LATEST_MS, SOONEST_MS + position // 4)
    return calm * (80 + seq % 41) // 100
