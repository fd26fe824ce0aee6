"""What a connection of the web process may take, in seconds and bytes, and what is said when it takes more. Pure."""

from __future__ import annotations

import time
from collections import Counter
from email.utils import formatdate

from shop.http import BODY_SECONDS, MAX_PAGE_BYTES, MAX_UPLOAD_BYTES
from shop.replies import ID_NUMBERS, ID_PREFIX, REQUEST_ID, Head, plain_problem

HEAD_SECONDS = 5
IDLE_SECONDS = 75  # longer than a proxy keeps a connection that rests
LEAVING_SECONDS = 2
STALLED_SECONDS = 60  # how long a reader may take nothing of an answer
MAX_HEAD_BYTES = 16 * 1024
MAX_HEADERS = 100
# With the overhead of chunks, and with trailers, which nobody reads.
MAX_MESSAGE_BYTES = 512 * 1024
# The same, of a message whose body the application has let be an upload.
MAX_UPLOAD_MESSAGE_BYTES = MAX_UPLOAD_BYTES + MAX_MESSAGE_BYTES
# So much is parsed at a time. What comes after an unanswered call waits as it came.
PORTION_BYTES = 8 * 1024
# What the kernel keeps for a connection, which is also the most that one read brings; Linux doubles it.
RECEIVE_BUFFER_BYTES = 32 * 1024
MAX_CONNECTIONS = 25_000
# What a connection waits for: its first byte, the rest of a head, a body, our answer, the next call, or its end, when
# everything is said.
SILENT, HEAD, BODY, ANSWERING, IDLE, LEAVING = range(6)
# In seconds, by phase; an answer has no deadline here, because each store that it waits for has one.
DEADLINES = (HEAD_SECONDS, HEAD_SECONDS, int(BODY_SECONDS), 1 << 30, IDLE_SECONDS, LEAVING_SECONDS)
BUSY = (ANSWERING, LEAVING)
BAD_CALL = plain_problem("invalid_request", 400, "This is not a valid HTTP request.")
HEAD_TOO_LARGE = plain_problem("too_large", 431, f"The headers are larger than {MAX_HEAD_BYTES // 1024} KiB.")
MESSAGE_TOO_LARGE = plain_problem("too_large", 413, f"The body is larger than {MAX_PAGE_BYTES // 1024} KiB.")
BODY_BROKE_OFF = plain_problem("invalid_request", 400, "request body was truncated")
BODY_TOO_SLOW = plain_problem("invalid_request", 400, f"the body did not arrive within {BODY_SECONDS:.0f} s")
TOO_MANY = plain_problem("unavailable", 503, "Too many connections.", 2)
TOO_MANY_OF_ONE = plain_problem("unavailable", 503, "Too many connections from your address.", 2)


class AddressLimit:
    """How much each address holds of something. limit: as much as one address may hold; 0: no limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: Counter[str] = Counter()

    def take(self, address: str) -> bool:
        """Count one more for `address`; say False, and count nothing, when it holds as many as it may."""
        if self._limit and self._held[address] >= self._limit:
            return False
        self._held[address] += 1
        return True

    def give_back(self, address: str) -> None:
        """Count one less for `address`."""
        self._held[address] -= 1
        if not self._held[address]:
            del self._held[address]


class Clock:
    """Whole seconds since this process began, and what follows a head: asking the system for each call costs more.

    date: the Date header and the name of the request's id. made: the same and the beginning of an id of this process.
    """

    def __init__(self) -> None:
        self.tick()

    def tick(self) -> None:
        """Take over the time."""
        self.now = int(time.monotonic())
        self.date = b"date: %b\r\n%b: " % (formatdate(usegmt=True).encode(), REQUEST_ID)
        self.made = self.date + ID_PREFIX

    def refusal(self, head: Head, body: bytes) -> bytes:
        """Return the last answer of a connection, as it is sent."""
        length = b"%x\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (next(ID_NUMBERS), len(body))
        return head.wire + self.made + length + body
