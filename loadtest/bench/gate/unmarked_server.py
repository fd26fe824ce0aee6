"""Serves the shop without what it adds to every answer: the headers for browsers, and ids. It exists to measure what
they cost: `python -m loadtest.bench.gate.unmarked_server run_web --port N`.
"""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")

from shop import replies
from shop.gate.server.limits import ANSWERING, IDLE, LEAVING, Clock
from shop.gate.server.protocol import GateProtocol
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
    self.transport.write(b"%b%b\r\ncontent-length: %d\r\n\r\n%b" % (head.wire, self.clock.date, len(body), body))
    if self.ended or self.rest or self.pipeline or self.phase != ANSWERING or self.flow.read_paused:
        self.on_response_complete()
    else:
        self.phase, self.since = IDLE, self.clock.now


if __name__ == "__main__":
    for made in (replies.OK, replies.ACCEPTED):
        made.wire = made.wire.replace(replies._SECURITY_WIRE, b"")
    replies._SECURITY_WIRE = b""
    GateProtocol.clock = UnmarkedClock()
    GateProtocol.send = send  # type: ignore[method-assign]
    main()
