"""A crowd that double-clicks: sends wishes over kept-alive connections, repeats some, asks again when told "busy".
Never parses an answer it does not have to; follows every nth wish to its decision.
"""

from __future__ import annotations

import heapq
import json
import select
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from loadtest.bench.compare.payloads import Wishes, look_of
from loadtest.bench.load.loader import no_collection, open_socket
from loadtest.bench.load.wire import LoadFailed, Wire

STALL_SECONDS = 15.0
# After "busy" a buyer tries again after so long, and after "queued" looks again after so long.
AGAIN_SECONDS, LOOK_SECONDS = 0.1, 0.025
# How long answers that are under way, and decisions that are followed, may take when the time is up.
DRAIN_SECONDS = 15.0
QUEUED, BUSY, SOLD_OUT = "queued", "503", "409"
ACCEPTED = frozenset({"200", "201", "202"})
_BODY_AFTER = b"\r\n\r\n"


@dataclass(kw_only=True)
class CompareVisit:
    """What a crowd was told. began_at: when the measured window of `seconds` began, in s since 1970; waits in ms.

    clicks: answered in the window; admissions: waits of the clicks among them that were answered yes; decisions: waits
    of followed wishes from their first click to the answer that decided them; accepted, refused: distinct wishes;
    unanswered: clicks that had no answer long after the end.
    """

    began_at: float
    seconds: float
    clicks: int
    statuses: Counter[str]
    admissions: list[float] = field(repr=False)
    decisions: list[float] = field(repr=False)
    accepted: int
    refused: int
    unanswered: int
    asked_all: bool


@dataclass(slots=True)
class _Connection(Wire):
    wish: int = -1
    look: bytes = b""  # the request, when it is a look at a status and no click
    sent_at: float = 0.0


class CompareCrowd:
    """One visit. follow: every nth wish is followed to its decision, 0: none; may_ask: while false, nobody clicks."""

    def __init__(
        self,
        wishes: Wishes,
        *,
        port: int,
        connections: int,
        follow: int = 0,
        may_ask: Callable[[float], bool] | None = None,
    ) -> None:
        self._wishes, self._port, self._most = wishes, port, connections
        self._follow, self._may_ask = follow, may_ask
        self._clicks: Iterator[int] = iter(wishes.clicks)
        self._connections: dict[int, _Connection] = {}
        self._resting: deque[_Connection] = deque()
        self._due: list[tuple[float, int, bytes]] = []  # when, which wish, a look; or b"" for another click
        self._first_click: dict[int, float] = {}
        self._answers: list[tuple[float, float, int, str]] = []  # when, waited, wish, status
        self._followed: set[int] = set()
        self._decided: dict[int, float] = {}
        self._in_flight = 0
        self._asked_all = False

    def visit(self, *, seconds: float, warm_up_seconds: float = 0.0, until_all_asked: bool = False) -> CompareVisit:
        """Click for the warm-up and then `seconds`, or until every wish was asked. Raises LoadFailed, OSError."""
        with select.epoll() as poll, no_collection():
            try:
                self._connect(poll)
                began_at, begins = time.time() + warm_up_seconds, time.monotonic() + warm_up_seconds
                self._click_until(poll, begins + seconds, until_all_asked=until_all_asked)
                ends = min(begins + seconds, time.monotonic())
                self._drain(poll)
            finally:
                for connection in self._connections.values():
                    connection.socket.close()
        return self._result(began_at, begins, ends)

    def _connect(self, poll: select.epoll) -> None:
        for _ in range(self._most):
            opened = open_socket(self._port)
            self._connections[opened.fileno()] = connection = _Connection(opened)
            self._resting.append(connection)
            poll.register(opened, select.EPOLLIN)

    def _click_until(self, poll: select.epoll, end: float, *, until_all_asked: bool) -> None:
        heard = now = time.monotonic()
        while now < end:
            self._send_due(now)
            self._send_clicks(now)
            if self._asked_all:
                if not until_all_asked:
                    raise LoadFailed("the server was faster than the wishes prepared for it")
                if not self._in_flight and not self._due:
                    return
            ready = poll.poll(0.002 if self._resting else 0.1)
            now = time.monotonic()
            if ready or not self._in_flight:
                heard = now
            elif now - heard > STALL_SECONDS:
                raise LoadFailed(f"no answer for {STALL_SECONDS:g} s")
            for handle, _ in ready:
                self._read(self._connections[handle], now)

    def _drain(self, poll: select.epoll) -> None:
        """Read what is under way, and follow what is followed; nobody clicks any more."""
        self._due = [each for each in self._due if each[2]]
        heapq.heapify(self._due)
        now = time.monotonic()
        end = now + DRAIN_SECONDS
        while (self._in_flight or self._due) and now < end:
            self._send_due(now, looks_only=True)
            for handle, _ in poll.poll(0.01):
                self._read(self._connections[handle], time.monotonic())
            now = time.monotonic()

    def _send_due(self, now: float, *, looks_only: bool = False) -> None:
        while self._resting and self._due and self._due[0][0] <= now:
            _, wish, look = heapq.heappop(self._due)
            if look or not looks_only:
                self._send(wish, look=look, now=now)

    def _send_clicks(self, now: float) -> None:
        while self._resting and not self._asked_all and (self._may_ask is None or self._may_ask(now)):
            wish = next(self._clicks, None)
            if wish is None:
                self._asked_all = True
                return
            self._first_click.setdefault(wish, now)
            self._send(wish, look=b"", now=now)

    def _send(self, wish: int, *, look: bytes, now: float) -> None:
        request = look or self._wishes.asks[wish]
        # The one that rested longest: a server closes a connection that says nothing for half a minute.
        connection = self._resting.popleft()
        connection.send_whole(request)
        connection.wish, connection.look, connection.sent_at = wish, look, now
        self._in_flight += 1

    def _read(self, connection: _Connection, now: float) -> None:
        data = connection.read_answer()
        if data is None:
            return
        self._in_flight -= 1
        self._resting.append(connection)
        self._note(connection, data, now)

    def _note(self, connection: _Connection, data: bytes, now: float) -> None:
        wish, status = connection.wish, data[9:12].decode()
        if not connection.look:
            self._answers.append((now, now - connection.sent_at, wish, status))
        if status == BUSY:
            heapq.heappush(self._due, (now + AGAIN_SECONDS, wish, connection.look))
        elif self._follow and wish % self._follow == 0 and wish not in self._decided:
            self._follow_on(connection, {} if status == SOLD_OUT else json.loads(data[data.index(_BODY_AFTER) :]), now)

    def _follow_on(self, connection: _Connection, told: dict[str, str], now: float) -> None:
        wish = connection.wish
        if told.get("state") != QUEUED:
            self._decided[wish] = now - self._first_click[wish]
        elif connection.look or wish not in self._followed:  # the second of two clicks is not followed as well
            self._followed.add(wish)
            token = self._wishes.tokens[wish]
            look = connection.look or look_of(told["status_url"], token=token, port=self._port)
            heapq.heappush(self._due, (now + LOOK_SECONDS, wish, look))

    def _result(self, began_at: float, begins: float, ends: float) -> CompareVisit:
        accepted = {wish for _, _, wish, status in self._answers if status in ACCEPTED}
        in_window = [each for each in self._answers if begins <= each[0] <= ends]
        return CompareVisit(
            began_at=began_at,
            seconds=ends - begins,
            clicks=len(in_window),
            statuses=Counter(status for *_, status in self._answers),
            admissions=[waited * 1000 for _, waited, _, status in in_window if status in ACCEPTED],
            decisions=[waited * 1000 for waited in self._decided.values()],
            accepted=len(accepted),
            refused=len({wish for _, _, wish, status in self._answers if status == SOLD_OUT} - accepted),
            unanswered=self._in_flight,
            asked_all=self._asked_all,
        )
