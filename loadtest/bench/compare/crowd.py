"""A crowd that double-clicks: new buyers, of whom some click twice, and all ask again when told "busy".
Never parses an answer it does not have to; follows every nth buyer to its decision.
"""

from __future__ import annotations

import heapq
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from loadtest.bench.load.loop import NEVER, LoadFailed, LoadLoop, Wire
from loadtest.bench.load.payloads import address, get, post
from shop.buyers import issue_buyer

# After "busy" a buyer tries again after so long, and after "queued" looks again after so long.
AGAIN_SECONDS, LOOK_SECONDS = 0.1, 0.025
# How long answers that are under way, and decisions that are followed, may take when the time is up.
DRAIN_SECONDS = 15.0
QUEUED, BUSY, SOLD_OUT = "queued", "503", "409"
ACCEPTED = frozenset({"200", "201", "202"})
_BODY_AFTER = b"\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class Payloads:
    """tokens, asks: of each buyer, a whole request; clicks: who clicks, one after the other, some twice at once."""

    tokens: Sequence[str]
    asks: Sequence[bytes]
    clicks: Sequence[int]


def make_payloads(path: str, *, port: int, count: int, repeated: float, seed: int) -> Payloads:
    """Return the POSTs to `path` of `count` new buyers; the share `repeated` of them clicks twice at once."""
    lot = random.Random(seed)
    tokens = [issue_buyer()[1] for _ in range(count)]
    asks = [post(path, port=port, token=token, origin=address(number)) for number, token in enumerate(tokens)]
    clicks = [buyer for buyer in range(count) for _ in range(2 if lot.random() < repeated else 1)]
    return Payloads(tokens=tokens, asks=asks, clicks=clicks)


@dataclass(kw_only=True)
class CompareVisit:
    """What a crowd was told. began_at: when the measured window of `seconds` began, in s since 1970; waits in ms.

    clicks: answered in the window; admissions: waits of the clicks among them that were answered yes; decisions: waits
    of followed buyers from their first click to the answer that decided them; accepted, refused: distinct buyers;
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


class CompareCrowd(LoadLoop):
    """One visit. follow: every nth buyer is followed to its decision, 0: none; may_ask: while false, nobody clicks."""

    stall_seconds = 15.0

    def __init__(
        self,
        payloads: Payloads,
        *,
        port: int,
        connections: int,
        follow: int = 0,
        may_ask: Callable[[float], bool] | None = None,
    ) -> None:
        super().__init__(port, connections=connections)
        self._payloads, self._follow, self._may_ask = payloads, follow, may_ask
        self._clicks: Iterator[int] = iter(payloads.clicks)
        self._due: list[tuple[float, int, bytes]] = []  # when, which buyer, a look; or b"" for another click
        self._first_click: dict[int, float] = {}
        self._answers: list[tuple[float, float, int, str]] = []  # when, waited, buyer, status
        self._followed: set[int] = set()
        self._decided: dict[int, float] = {}
        self._asked_all = False

    def visit(self, *, seconds: float, warm_up_seconds: float = 0.0, until_all_asked: bool = False) -> CompareVisit:
        """Click for the warm-up and then `seconds`, or until every buyer has asked. Raises LoadFailed, OSError."""
        with self._running():
            began_at, begins = time.time() + warm_up_seconds, time.monotonic() + warm_up_seconds
            self._click_until(begins + seconds, until_all_asked=until_all_asked)
            ends = min(begins + seconds, time.monotonic())
            self._drain()
        return self._result(began_at, begins, ends)

    def _click_until(self, end: float, *, until_all_asked: bool) -> None:
        now = time.monotonic()
        while now < end:
            self._send_due(now)
            self._send_clicks(now)
            if self._asked_all:
                if not until_all_asked:
                    raise LoadFailed("the server was faster than the payloads prepared for it")
                if not self._in_flight and not self._due:
                    return
            now = self._read(wait_seconds=0.002 if self._resting else 0.1)

    def _drain(self) -> None:
        """Read what is under way, and follow what is followed; nobody clicks any more."""
        self._due = [each for each in self._due if each[2]]
        heapq.heapify(self._due)
        self.stall_seconds = NEVER  # what has no answer by the end is counted
        now = time.monotonic()
        end = now + DRAIN_SECONDS
        while (self._in_flight or self._due) and now < end:
            self._send_due(now, looks_only=True)
            now = self._read(wait_seconds=0.01)

    def _send_due(self, now: float, *, looks_only: bool = False) -> None:
        while self._resting and self._due and self._due[0][0] <= now:
            _, buyer, look = heapq.heappop(self._due)
            if look or not looks_only:
                self._send_one(buyer, look=look, now=now)

    def _send_clicks(self, now: float) -> None:
        while self._resting and not self._asked_all and (self._may_ask is None or self._may_ask(now)):
            buyer = next(self._clicks, None)
            if buyer is None:
                self._asked_all = True
                return
            self._first_click.setdefault(buyer, now)
            self._send_one(buyer, look=b"", now=now)

    def _send_one(self, buyer: int, *, look: bytes, now: float) -> None:
        connection = self._send(look or self._payloads.asks[buyer], sent_at=now)
        # The request, when it is a look at a status and no click.
        connection.number, connection.request = buyer, look

    def _note(self, connection: Wire, data: bytes, now: float) -> None:
        buyer, status = connection.number, data[9:12].decode()
        if not connection.request:
            self._answers.append((now, now - connection.sent_at, buyer, status))
        if status == BUSY:
            heapq.heappush(self._due, (now + AGAIN_SECONDS, buyer, connection.request))
        elif self._follow and buyer % self._follow == 0 and buyer not in self._decided:
            self._follow_on(connection, {} if status == SOLD_OUT else json.loads(data[data.index(_BODY_AFTER) :]), now)

    def _follow_on(self, connection: Wire, told: dict[str, str], now: float) -> None:
        buyer, look = connection.number, connection.request
        if told.get("state") != QUEUED:
            self._decided[buyer] = now - self._first_click[buyer]
        elif look or buyer not in self._followed:  # the second of two clicks is not followed as well
            self._followed.add(buyer)
            token = self._payloads.tokens[buyer]
            look = look or get(told["status_url"], port=self._port, headers=f"Authorization: Bearer {token}\r\n")
            heapq.heappush(self._due, (now + LOOK_SECONDS, buyer, look))

    def _result(self, began_at: float, begins: float, ends: float) -> CompareVisit:
        accepted = {buyer for _, _, buyer, status in self._answers if status in ACCEPTED}
        in_window = [each for each in self._answers if begins <= each[0] <= ends]
        return CompareVisit(
            began_at=began_at,
            seconds=ends - begins,
            clicks=len(in_window),
            statuses=Counter(status for *_, status in self._answers),
            admissions=[waited * 1000 for _, waited, _, status in in_window if status in ACCEPTED],
            decisions=[waited * 1000 for waited in self._decided.values()],
            accepted=len(accepted),
            refused=len({buyer for _, _, buyer, status in self._answers if status == SOLD_OUT} - accepted),
            unanswered=self._in_flight,
            asked_all=self._asked_all,
        )
