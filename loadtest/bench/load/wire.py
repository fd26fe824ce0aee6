"""One keep-alive connection of a load generator: sends a whole request, puts an answer together from its pieces.
Never waits and never reads what an answer says.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

_READ_BYTES = 16_384
_LENGTH = b"content-length: "


class LoadFailed(Exception):
    """The server went away, stalled, or there were too few requests for the time."""


@dataclass(slots=True)
class Wire:
    """One connection with at most one request on its way. socket: not blocking."""

    socket: socket.socket
    rest: bytes = b""  # the beginning of an answer that came in pieces

    def send_whole(self, request: bytes) -> None:
        """Hand `request` to the system. Raises LoadFailed when it takes only a part."""
        if self.socket.send(request) != len(request):
            raise LoadFailed("a socket took only a part of a request")

    def read_answer(self) -> bytes | None:
        """Read what has come; return the answer when it is whole. Raises LoadFailed when the server hung up."""
        data = self.socket.recv(_READ_BYTES)
        if not data:
            raise LoadFailed("the server closed a connection")
        if self.rest:
            data = self.rest + data
        if not is_whole(data):
            self.rest = data
            return None
        self.rest = b""
        return data


def is_whole(data: bytes) -> bool:
    """Say whether `data` is a whole answer, by its content-length. Raises LoadFailed when it has none."""
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0:
        return False
    at = data.find(_LENGTH, 0, head_end)
    if at < 0:
        at = data.lower().find(_LENGTH, 0, head_end)  # some servers write it Content-Length
    if at < 0:
        raise LoadFailed("an answer without content-length")
    at += len(_LENGTH)
    return len(data) - head_end - 4 >= int(data[at : data.index(b"\r\n", at)])
