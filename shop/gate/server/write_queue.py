"""Writes the answers of many connections one after the other, after they are made. Never keeps one beyond a turn of the
event loop.

A system call between any two answers costs more than itself: what the processor has in its caches is gone. Answers from
memory take about three quarters of the CPU time this way.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from weakref import WeakKeyDictionary

# Few enough that the first reader does not wait for long: so many are made in a millisecond or two.
ANSWERS_AT_ONCE = 32


class Writer(Protocol):
    """A connection with something to write."""

    def write_out(self) -> None:
        """Write it."""


class WriteQueue:
    """The connections of one event loop that have an answer to write."""

    def __init__(self) -> None:
        self._waiting: list[Writer] = []

    def add(self, connection: Writer) -> None:
        """Have `connection` write in this turn of the event loop, before anything that is planned from now on."""
        self._waiting.append(connection)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self.write_all)
        elif len(self._waiting) == ANSWERS_AT_ONCE:
            self.write_all()

    def write_all(self) -> None:
        """Let everyone who waits write; one who cannot is reported."""
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            try:
                connection.write_out()
            except Exception as error:  # of one connection only: the others have their answers
                report = {"message": "answer not written", "exception": error}
                asyncio.get_running_loop().call_exception_handler(report)


# A queue does not know its loop: it would keep it.
_QUEUES: WeakKeyDictionary[asyncio.AbstractEventLoop, WriteQueue] = WeakKeyDictionary()


def queue_of(loop: asyncio.AbstractEventLoop) -> WriteQueue:
    """Return the one queue of an event loop."""
    found = _QUEUES.get(loop)
    if found is None:
        found = _QUEUES[loop] = WriteQueue()
    return found
