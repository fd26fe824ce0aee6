"""An HTTP server of one callback: uvloop and httptools answer every request with the same bytes, and no more.
Never looks at the request. It is what a web process in Python could do at most.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import httptools
import uvloop

ANSWER = b"HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Bare(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._write = transport.write
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Answer."""
        self._write(ANSWER)


async def serve(*, port: int) -> None:
    """Serve until a signal ends the process."""
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", port, backlog=8192)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    uvloop.run(serve(port=parser.parse_args().port))
