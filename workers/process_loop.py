"""Runs a worker's step again and again until SIGTERM or SIGINT; waits for a hint or a second between empty steps, and
says once a second that it lives. Never ends because Redis or PostgreSQL is away; a long step ends itself by Stopped.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import structlog
from django.db import Error as DatabaseError
from django.db import ProgrammingError, close_old_connections, connections

from inventory.exceptions import RedisUnavailable
from inventory.heartbeats import Heartbeat
from inventory.postgres import is_away
from inventory.telemetry.measures import RETRIES, note_store_errors

log = structlog.get_logger(__name__)

RETRY_SECONDS = 0.3


class Stopped(Exception):
    """The process was asked to stop: a long step ended between two of its parts, and nothing is half done."""


class StopFlag(threading.Event):
    """Is set by the first SIGTERM or SIGINT; may be asked at any time."""

    def __init__(self) -> None:
        super().__init__()
        # The handler runs in the thread that waits, perhaps while that has the lock: it must be able to take it again.
        self._cond = threading.Condition(threading.RLock())

    def install(self) -> None:
        """Listen to SIGTERM and SIGINT from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.set())


def run_until_stopped(
    step: Callable[[], int],
    *,
    stop: StopFlag,
    wait_for_work: Callable[[], object],
    heartbeat: Heartbeat | None = None,
) -> None:
    """Call `step` until stopped; when it found nothing to do, call `wait_for_work` (which waits at most a second).

    heartbeat: where to say what it does; its note goes with an orderly stop.
    """
    if heartbeat:
        heartbeat.note()  # the first step may be long
    while not stop.is_set():
        close_old_connections()
        try:
            done = step()
            if heartbeat:
                heartbeat.note(done=done)
            if done == 0:
                wait_for_work()
        except Stopped:
            break
        except RedisUnavailable as error:
            RETRIES.add("redis")
            log.warning("the line is away", action="redis_retry", error=repr(error.__cause__))
            if heartbeat:
                heartbeat.note(away="line away")
            stop.wait(RETRY_SECONDS)
        except DatabaseError as error:
            note_store_errors("postgresql")
            RETRIES.add("refused" if isinstance(error, ProgrammingError) else "database")
            log.warning("database away or busy", action="database_retry", error=str(error))
            connections.close_all()
            if heartbeat:
                heartbeat.note(away="database away" if is_away(error.__cause__) else None)
            stop.wait(RETRY_SECONDS)
    if heartbeat:
        heartbeat.end()
