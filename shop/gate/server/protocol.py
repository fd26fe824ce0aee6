"""One HTTP connection of the web process: a protocol class of uvicorn that answers hot calls in its callbacks.
The only module that knows uvicorn's protocol: tests/unit/shop/test_protocol_contract.py says what it relies on.
Never lets two answers of a connection change places, waits for a sender without a deadline, or knows what a call means.

A hot call is one that the application names by its `hot_call`. It has no task, no future and no ASGI scope. Every
other call takes uvicorn's ordinary path, and so does one behind an unanswered call on its connection, or behind answers
that the reader has not taken.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shop.gate.server.draining import LEAVING as LEAVING_STATE
from shop.gate.server.limits import (
    ANSWERING,
    BAD_CALL,
    BODY,
    BODY_BROKE_OFF,
    BODY_TOO_SLOW,
    BUSY,
    DEADLINES,
    HEAD,
    HEAD_TOO_LARGE,
    IDLE,
    LEAVING,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_MESSAGE_BYTES,
    MAX_UPLOAD_MESSAGE_BYTES,
    MESSAGE_TOO_LARGE,
    PORTION_BYTES,
    SILENT,
    STALLED_SECONDS,
    AddressLimit,
    Clock,
)
from shop.gate.server.write_queue import queue_of
from shop.http import HAS_END, MAX_BODY_BYTES, MAX_PAGE_BYTES, NOT_MODIFIED, UPLOAD, UPLOAD_SECONDS
from shop.replies import ID_NUMBERS, REQUEST_ID, Handler, Head, Headers, HotCall, request_id_of


class Refused(Exception):
    """This message is not handed on."""


# Method, target, headers by lower-case name, and the address at the other end of the connection.
FindsHotCall: TypeAlias = Callable[[bytes, bytes, Headers, str], HotCall | None]
# An absolute target whose path is empty stands for "/", but uvicorn takes none without a path.
NO_PATH = re.compile(rb"\A(https?://[^/?#]+)(?=[?#]|\Z)")
# What a callback may raise because of what was sent; anything else is a mistake of ours.
REFUSALS = (Refused, httptools.HttpParserError)


class HotCycle:
    """Stands where uvicorn has the cycle of a request and its response, while the answer to a hot call is owed."""

    __slots__ = ("keep_alive", "response_complete")

    def __init__(self) -> None:
        self.keep_alive = True
        self.response_complete = True


class GateProtocol(HttpToolsProtocol):
    """One connection. It is the Reply to the one hot call that is unanswered on it."""

    clock: ClassVar[Clock] = Clock()
    # How many connections each address has.
    addresses: ClassVar[AddressLimit] = AddressLimit(0)
    cycle: Any  # uvicorn's, or ours while the answer to a hot call is owed
    # With uvicorn's they are more than 30, and each connection would have a dictionary of 1.5 kB.
    __slots__ = (
        "address", "argument", "before", "behind", "body", "caller", "ended", "feeding", "fields", "handler", "hot",
        "hot_call", "hung_up", "is_upload", "large", "message_bytes", "phase", "planned", "refusal", "rest", "running",
        "since", "stopping", "unsent", "unwritten", "writes",
    )  # fmt: skip

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=False)
        self.hot_call: FindsHotCall = getattr(self.app, "hot_call", lambda *_: None)
        self.hot = HotCycle()
        self.phase: int = SILENT
        self.caller = ""  # the address at its other end
        self.address: str | None = None  # for which this connection is counted
        self.since = self.clock.now
        self.unsent = 0  # bytes that the reader had not taken at the last look
        self.unwritten = b""  # an answer that goes out in this turn of the event loop
        self.writes = queue_of(self.loop)
        self.handler: Handler | None = None
        self.running: Any = None  # the last cycle that has a task
        self.rest = b""  # what came and is not parsed yet
        self.feeding = False
        self.planned = False  # the rest is parsed in the next turn of the event loop
        self.behind = False  # the message that is parsed came after an unanswered one
        self.ended = False  # nothing more will come, or be listened to
        self.hung_up = False  # the other side has sent its end
        self.stopping = LEAVING_STATE in self.app_state  # each answer is the last one of its connection
        self.refusal: tuple[Head, bytes] | None = None  # goes out after what is owed
        self.large: Any = None  # the cycle of a message with a large body, the last one of this connection
        self.is_upload = False  # the application lets that body come

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self.flow = Flow(self, transport)
        self.caller = self.client[0] if self.client else ""

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was not answered. A hot call that was handed over goes on without its caller."""
        if self.address is not None:
            self.addresses.give_back(self.address)
        self.phase, self.rest, self.unwritten = LEAVING, b"", b""
        if self.cycle is self.hot:
            self.cycle = None
        if self.running is not None:  # uvicorn tells the newest cycle only
            self.running.disconnected = True
            self.running.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)
        # They know this connection, and would keep it until Python looks for circles.
        self.flow = self.cycle = self.running = None  # type: ignore[assignment]

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep a connection whose other side only stopped sending, until its answers are out."""
        self.write_out()
        if self.phase == LEAVING or not (self.rest or self._owes()) or self._streams():
            return None
        if self.phase == BODY and not self.rest:
            self.refuse(BODY_BROKE_OFF)
        self.ended = self.hung_up = True
        self._signal_hung_up()
        return True

    def _signal_hung_up(self) -> None:
        """Wake who works for a caller that sends nothing more, and may have left: its receive returns once more."""
        if self.hung_up and self.running is not None:
            self.running.message_event.set()

    def shutdown(self) -> None:
        """Answer what was begun, then end. A live stream ends at once: its reader comes back to another process."""
        self.stopping = True
        if self._streams():
            self._end_stream()
        elif self._owes():
            self.cycle.keep_alive = False
        elif self.phase in (SILENT, IDLE):
            self._close()

    def _end_stream(self) -> None:
        self.ended, self.rest = True, b""
        self.running.disconnected = True
        self.running.message_event.set()
        if not self.running.scope["state"].get(HAS_END):  # else its reader would take a piece for the whole
            self.transport.write(b"0\r\n\r\n")
        self.transport.close()

    def resume_writing(self) -> None:
        """Go on with what waits."""
        super().resume_writing()
        self._continue()

    def check_deadline(self, now: int) -> None:
        """End this connection when it is too late; now: seconds of the clock."""
        if (self.rest or self.behind) and self._streams() and not self.transport.is_closing():
            return self._end_stream()  # what it sent cannot be answered, and would be kept as long as the stream
        unsent = self.transport.get_write_buffer_size()
        if unsent:  # the reader is slow: no other deadline, as long as something is taken
            if unsent != self.unsent:
                self.unsent, self.since = unsent, now
            elif now - self.since > STALLED_SECONDS:
                self.transport.abort()
        elif self.transport.is_closing() and self.phase != LEAVING:
            self.phase, self.since = LEAVING, now
        elif now - self.since <= (UPLOAD_SECONDS if self.is_upload and self.phase == BODY else DEADLINES[self.phase]):
            self._signal_hung_up()  # again: at the time of the end it may not have listened yet
        elif self.phase == LEAVING:
            self.transport.abort()
        elif self.flow.read_paused or self.behind:
            self.since = now  # it is we who do not read
        elif self.phase == BODY and self._owes():
            self.refuse(BODY_TOO_SLOW)
        else:
            self._close()
        return None

    # What comes in.

    def data_received(self, data: bytes) -> None:
        """Parse what came, or keep it while an answer is owed."""
        if self.phase in BUSY or self.behind or self.rest or self.ended or len(data) > PORTION_BYTES:
            self._keep(data)
        else:
            self._parse(data)

    def _keep(self, data: bytes) -> None:
        if self.phase != LEAVING and not self.ended:
            self.rest += data
            self._continue()

    def _continue(self) -> None:
        """Parse what waits as far as that may be done now. The rest keeps the connection from being read."""
        while self.rest and not self._must_wait():
            portion, self.rest = self.rest[:PORTION_BYTES], self.rest[PORTION_BYTES:]
            self._parse(portion)
        if self.phase == LEAVING or self.transport.is_closing():
            return
        if self.rest:
            self.flow.pause_reading()
        elif self.ended and not self._owes():
            self._close()
        elif self.flow.read_paused and not self._must_wait():
            self.flow.resume_reading()

    def _must_wait(self) -> bool:
        waits = self.phase in BUSY or self.behind or self.feeding or self.planned or self.flow.write_paused
        # What has come of a large body waits until the application has taken it.
        return waits or (self.large is not None and len(self.large.body) > HIGH_WATER_LIMIT)

    def _continue_next_turn(self) -> None:
        """Let other connections have their turn after an answer. One plan is enough for all answers of a portion."""
        if not self.planned:
            self.planned = True
            self.loop.call_soon(self._continue_planned)

    def _continue_planned(self) -> None:
        self.planned = False
        self._continue()

    def _parse(self, data: bytes) -> None:
        self.feeding = True
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.ended, self.rest = True, b""  # what follows is not HTTP
        except httptools.HttpParserError as error:
            if isinstance(error, httptools.HttpParserCallbackError) and not isinstance(error.__context__, REFUSALS):
                self.logger.error("unexpected error in the server", exc_info=error)
            if not self.ended:  # else it came after the last call, which said so
                self.refuse(self.refusal or BAD_CALL)
        finally:
            self.feeding = False
        if self.phase == HEAD or self.phase == BODY:
            self._check_size(len(data))

    def _check_size(self, more_bytes: int) -> None:
        """Refuse a message that is too large as it comes: what counts is every byte of it."""
        self.message_bytes += more_bytes
        if self.phase == HEAD and self.message_bytes > MAX_HEAD_BYTES + PORTION_BYTES:
            self.refuse(HEAD_TOO_LARGE)
        elif self.message_bytes > (MAX_UPLOAD_MESSAGE_BYTES if self.is_upload else MAX_MESSAGE_BYTES):
            self.refuse(MESSAGE_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Begin a message."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self.handler = None
        self.body = b""
        self.message_bytes = 0
        cycle = self.cycle
        self.behind = cycle is not None and not cycle.response_complete
        self.phase, self.since = HEAD, self.clock.now

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header; a trailer is none."""
        if self.phase == HEAD:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Choose the path."""
        headers = dict(self.headers)
        if self.behind or self.flow.write_paused or not self._is_plain(headers):
            self._begin_ordinary(headers)
        elif found := self.hot_call(self.parser.get_method(), self.url, headers, self.caller):
            self.handler, self.argument = found
            self.fields = headers
            self.hot.response_complete = False
            self.hot.keep_alive = self.parser.should_keep_alive() and not self.stopping
            self.cycle = self.hot
        else:
            self._begin_ordinary(headers)
        self.phase, self.since = BODY, self.clock.now

    def _is_plain(self, headers: Headers) -> bool:
        """Say whether nothing about this message needs the ordinary path."""
        length = headers.get(b"content-length", b"0")
        return (
            len(headers) == len(self.headers)
            and len(length) <= 4
            and int(length) <= MAX_BODY_BYTES
            and b"host" in headers
            and b"transfer-encoding" not in headers
            and b"expect" not in headers
            and b"upgrade" not in headers
            and (
                (b"connection" not in headers and self.parser.should_keep_alive())
                or self.parser.get_http_version() == "1.1"
            )
        )

    def _begin_ordinary(self, headers: Headers) -> None:
        """Hand the message to uvicorn. Raises Refused for one that must be refused."""
        self._check_head(headers)
        url, pairs = NO_PATH.sub(rb"\1/", self.url), self.headers
        super().on_message_begin()
        self.url = url
        self.headers.extend(pairs)
        self.expect_100_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        self.before = self.cycle
        length = headers.get(b"content-length", b"0")
        is_large = len(length) > 9 or int(length) > MAX_PAGE_BYTES
        if is_large:
            self.scope["extensions"] = {UPLOAD: {"allow": self._allow_upload}}
        super().on_headers_complete()
        if is_large:
            self.large = self.cycle
        if self.stopping or self.parser.should_upgrade() or is_large:
            self.cycle.keep_alive = False
        if not self.cycle.keep_alive:
            self.cycle.transport = Closing(self)

    def _allow_upload(self) -> None:
        """Give the body that is being read the bounds of an upload."""
        self.is_upload, self.since = True, self.clock.now

    def _check_head(self, headers: Headers) -> None:
        if len(self.headers) > MAX_HEADERS:
            self.refusal = HEAD_TOO_LARGE
            raise Refused
        version = self.parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        is_known = version == "1.0" or (version == "1.1" and hosts == 1)
        is_path = self.url.startswith((b"/", b"http://", b"https://")) and self.url.isascii()
        # The body of an upgrade would be read as the next message.
        has_body = b"content-length" in headers or b"transfer-encoding" in headers
        if not is_known or not is_path or (has_body and self.parser.should_upgrade()):
            self.refusal = BAD_CALL
            raise Refused

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if self.handler is not None:
            self.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Answer a hot call, or have it answered."""
        handler, self.handler = self.handler, None
        self.phase = ANSWERING
        if handler is not None:
            self.ended = self.ended or not self.hot.keep_alive
            handler(self, self.argument, self.fields, self.body)
            return
        self.ended = self.ended or not self.cycle.keep_alive
        super().on_message_complete()
        if not self._owes():
            self.phase = IDLE

    # What goes out.

    def send(self, head: Head, body: bytes, own_id: bytes = b"") -> None:
        """Answer the hot call that is unanswered; see Reply."""
        hot = self.hot
        if hot.response_complete:
            return
        hot.response_complete = True
        if self.phase == LEAVING or self.transport.is_closing():
            return
        if hot.keep_alive and head.status != NOT_MODIFIED and REQUEST_ID not in self.fields:
            mark = self.clock.date + own_id if own_id else b"%b%x" % (self.clock.made, next(ID_NUMBERS))
            self._write(b"%b%b\r\ncontent-length: %d\r\n\r\n%b" % (head.wire, mark, len(body), body))
        else:
            length = b"" if head.status == NOT_MODIFIED else b"content-length: %d\r\n" % len(body)
            end = b"" if hot.keep_alive else b"connection: close\r\n"
            name = request_id_of(self.fields, own_id)
            self._write(b"%b%b%b\r\n%b%b\r\n%b" % (head.wire, self.clock.date, name, length, end, body))
        if not hot.keep_alive:
            self._leave()
        if self.ended or self.rest or self.pipeline or self.phase != ANSWERING or self.flow.read_paused:
            self.on_response_complete()
        else:
            self.phase, self.since = IDLE, self.clock.now

    def _write(self, answer: bytes) -> None:
        """Write an answer in this turn, or at once behind one that waits: more than one is never kept.

        Ordinary calls write to the transport themselves, in tasks: they begin after the queue, which was planned first.
        """
        if self.unwritten:
            self.unwritten += answer
            self.write_out()
        else:
            self.unwritten = answer
            self.writes.add(self)

    def write_out(self) -> None:
        """Write what waits."""
        answer, self.unwritten = self.unwritten, b""
        if answer and not self.transport.is_closing():
            self.transport.write(answer)

    def _close(self) -> None:
        self.write_out()
        self.transport.close()

    def on_response_complete(self) -> None:
        """Go on with the next message of this connection."""
        self.server_state.total_requests += 1
        if self.phase == LEAVING or self.transport.is_closing():
            return None
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        self.behind = bool(self.pipeline) or (self.phase == HEAD and self._owes())
        self.since = self.clock.now
        if not self._owes():
            if self.phase == ANSWERING:
                self.phase = IDLE
            if self.refusal:
                return self._send_refusal(self.refusal)
        if self.rest or self.ended:
            self._continue_next_turn()
        elif self.flow.read_paused and not self._must_wait():
            self.flow.resume_reading()
        return None

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def refuse(self, refusal: tuple[Head, bytes]) -> None:
        """Answer the message that is being parsed with `refusal`, after everything that is owed, and end."""
        self.ended, self.rest = True, b""
        if self.phase == BODY:
            if not self._owes():
                return self._leave()  # it has its answer
            self._withdraw()
        self.phase, self.refusal = ANSWERING, refusal
        if not self._owes():
            self._send_refusal(refusal)
        return None

    def _withdraw(self) -> None:
        """Take back the message that is being parsed; the reader of its body is told that the sender has left."""
        cycle = self.cycle
        if self.pipeline:
            self.pipeline.popleft()
            self.cycle = self.before
            return
        self.cycle = None
        if cycle is self.hot:
            self.hot.response_complete = True
            return
        if cycle.response_started:
            self.transport.close()
        cycle.disconnected = True
        cycle.message_event.set()

    def _send_refusal(self, refusal: tuple[Head, bytes]) -> None:
        head, body = refusal
        if not self.transport.is_closing():
            self._write(self.clock.refusal(head, body))
        self._leave()

    def _leave(self) -> None:
        """Say that nothing more is sent; drop for a moment what still comes, so that the answer can be read."""
        if self.phase == LEAVING or self.transport.is_closing():
            return
        self.write_out()
        complete = self.phase in (ANSWERING, IDLE) and not self.rest and self.refusal is None
        self.phase, self.since, self.rest = LEAVING, self.clock.now, b""
        if complete or not self.transport.can_write_eof():
            self.transport.close()
        else:
            self.transport.write_eof()
            self.flow.resume_reading()

    def _owes(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _streams(self) -> bool:
        """Say whether the answer that is under way has no end."""
        cycle = self.running
        return cycle is not None and cycle.response_started and not cycle.response_complete and cycle.chunked_encoding


class Flow(FlowControl):
    """Reads nothing while something waits to be parsed: each ordinary call asks to read on when it begins."""

    def __init__(self, connection: GateProtocol, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._connection = connection

    def resume_reading(self) -> None:
        """Go on reading, unless there is enough to parse."""
        if not self._connection.rest:
            super().resume_reading()
        elif self._connection.large is not None:
            self._connection._continue_next_turn()


class Closing:
    """The transport of a connection's last cycle: its end waits for a sender who is still sending."""

    def __init__(self, connection: GateProtocol) -> None:
        self._connection = connection
        self.write = connection.transport.write
        self.is_closing = connection.transport.is_closing

    def close(self) -> None:
        """End the connection."""
        self._connection._leave()
