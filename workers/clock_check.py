"""Says at a worker's start when its clock and the Redis server's differ: times of holds and openings would then too.
Never keeps a worker from starting, never sets a clock. Called by run_worker.
"""

from __future__ import annotations

import time

import structlog

from inventory.exceptions import RedisUnavailable
from inventory.redis import Client, run_commands

log = structlog.get_logger(__name__)

MOST_SECONDS = 1.0


def check_clock(client: Client) -> float | None:
    """Return by how many seconds the server is ahead of this machine, None when it is away; warn beyond a second (L21).

    The answer is taken for the middle of the call, so a slow one is no difference.
    """
    began = time.time()
    try:
        seconds, microseconds = run_commands(client, [("TIME",)])[0]
    except RedisUnavailable as error:
        log.info("clocks not compared", action="redis_retry", error=repr(error.__cause__))
        return None
    ended = time.time()
    ahead = int(seconds) + int(microseconds) / 1e6 - (began + ended) / 2
    if abs(ahead) > MOST_SECONDS + (ended - began) / 2:
        log.warning("clocks differ: holds and openings are off by as much", action="clock_differs", ahead_seconds=ahead)
    return ahead
