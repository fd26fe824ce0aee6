"""A mail server for tests: takes every mail, and can be told to keep silent after one, or to refuse an address.

Never sends anything on. Speaks as much SMTP as Django's backend needs.
"""

from __future__ import annotations

import email
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message


class MailServer(socketserver.ThreadingTCPServer):
    """taken: every mail that was handed over whole; is_silent: do not say so, as a server whose answer is lost.

    refused: addresses for which it takes none.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Conversation)
        self.taken: list[Message] = []
        self.is_silent = False
        self.refused: set[str] = set()
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.server_address[1]}"


class Conversation(socketserver.StreamRequestHandler):
    """One connection."""

    timeout = 30
    server: MailServer

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        for line in self.rfile:
            command = line[:4].upper()
            if command == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                self.take()
            is_refused = command == b"RCPT" and any(f"<{each}>".encode() in line for each in self.server.refused)
            ok = b"550 no such mailbox\r\n" if is_refused else b"250 ok\r\n"
            self.wfile.write(b"221 bye\r\n" if command == b"QUIT" else ok)

    def take(self) -> None:
        body = b"".join(iter(self.rfile.readline, b".\r\n"))
        self.server.taken.append(email.message_from_bytes(body))
        if self.server.is_silent:
            self.server.ended.wait(self.timeout)


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """Run a mail server until the end of the block."""
    with MailServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()
