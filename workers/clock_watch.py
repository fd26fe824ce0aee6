"""Compares a worker's clock with those of Redis and PostgreSQL for as long as it runs. Never sets one, never keeps its
worker waiting: it has a thread of its own.
"""

from __future__ import annotations

import threading

import structlog
from django.db import Error as DatabaseError
from django.db import connection

from inventory.postgres import look_at_clock
from inventory.redis import Client, clocks

log = structlog.get_logger(__name__)

# A connection to PostgreSQL is opened for each look, and looks at Redis are cheaper.
REDIS_SECONDS = 1.0
DATABASE_EVERY = 10


class ClockWatcher(threading.Thread):
    """Looks until it is told to end. client: of Redis, with a short timeout."""

    def __init__(self, client: Client) -> None:
        super().__init__(name="clock-watcher", daemon=True)
        self._client = client
        self._ending = threading.Event()

    def run(self) -> None:
        """Look at Redis once a second, at PostgreSQL every tenth time."""
        number = 0
        while True:
            try:
                clocks.look(self._client)
                if number % DATABASE_EVERY == 0:
                    _look_at_database()
            except Exception:
                log.exception("clocks not compared", action="clock_unread")
            number += 1
            if self._ending.wait(REDIS_SECONDS):
                return

    def end(self) -> None:
        """Stop looking."""
        self._ending.set()


def _look_at_database() -> None:
    try:
        look_at_clock()
    except DatabaseError as error:
        log.info("clocks not compared", action="database_retry", error=str(error))
    finally:
        connection.close()
