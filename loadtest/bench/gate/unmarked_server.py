"""Serves the shop without what it adds to every answer: headers for browsers, ids, metrics, traces, and the bounds of
its pools of threads. It exists to measure what they cost:
`python -m loadtest.bench.gate.unmarked_server run_web --port N`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")

from inventory.telemetry import traces
from inventory.telemetry.measures import Histogram, Tally
from shop import replies
from shop.gate.server.limits import ANSWERING, IDLE, LEAVING, Clock
from shop.gate.server.protocol import GateProtocol
from shop.gate.server.threads import ThreadPool
from shop.replies import Head
from workers.__main__ import main


class UnmarkedClock(Clock):
    """date: the Date header alone."""

    def tick(self) -> None:
        """Take over the time."""
        super().tick()
        self.date = self.date.partition(b"\r\n")[0]


def send(self: GateProtocol, head: Head, body: bytes, own_id: bytes = b"") -> None:
    """Answer a hot call as before there were ids."""
    hot = self.hot
    if hot.response_complete:
        return
    hot.response_complete = True
    if self.phase == LEAVING or self.transport.is_closing():
        return
    self._write(b"%b%b\r\ncontent-length: %d\r\n\r\n%b" % (head.wire, self.clock.date, len(body), body))
    if self.ended or self.rest or self.pipeline or self.phase != ANSWERING or self.flow.read_paused:
        self.on_response_complete()
    else:
        self.phase, self.since = IDLE, self.clock.now


async def run(self: ThreadPool, call: Any, **_: Any) -> Any:
    """Call it in a thread, however many wait, and also for a caller that has left."""
    return await asyncio.get_running_loop().run_in_executor(self._pool, call)


def count_nothing(*_: Any, **_named: Any) -> None:
    """Do nothing."""


@contextmanager
def unmarked() -> Iterator[None]:
    """Leave all that out for the length of a `with` block."""
    security = replies._SECURITY_WIRE
    with ExitStack() as left_out:
        for owner, name, instead in (
            *((made, "wire", made.wire.replace(security, b"")) for made in (replies.OK, replies.ACCEPTED)),
            (replies, "_SECURITY_WIRE", b""),
            (GateProtocol, "clock", UNMARKED_CLOCK),
            (GateProtocol, "send", send),
            (ThreadPool, "run", run),
            (Histogram, "observe", count_nothing),
            (Histogram, "observe_since", count_nothing),
            (Tally, "add", count_nothing),
            (traces, "note_asks", count_nothing),
        ):
            left_out.enter_context(patch.object(owner, name, instead))
        yield


UNMARKED_CLOCK = UnmarkedClock()

if __name__ == "__main__":
    with unmarked():
        main()
