"""One open stream: what its reader was told, what was known then, and whether there may be news since.
Never asks a store, never keeps more than the newest message.
"""

from __future__ import annotations

import asyncio
import json
import time
from hashlib import blake2b
from typing import Any, NamedTuple

from inventory.states import WAITING_STATES, State
from shop.gate.sales.state import SaleEntry

MAX_SECONDS = 15.0  # everybody is looked at this often, whatever the board says
SALE_SECONDS = 1.0
# A place is told this much later than a poll would ask for it; a decision is told at once.
CALMER = 4
MIN_PLACE_SECONDS = 1.0
# These differ in every answer and are no news.
CHANGING = frozenset({"server_time", "poll_after_ms", "eta_seconds", "eta_range_seconds"})


def digest_of(value: dict[str, Any]) -> str:
    """Return the name of a state: the same state has the same name, in every process."""
    news = [part for name, part in value.items() if name not in CHANGING]
    return blake2b(repr(news).encode(), digest_size=8).hexdigest()


class Seen(NamedTuple):
    """What this process knew of a sale at one moment: how it was switched and why, what moved, how many it decided."""

    switched: tuple[str, str]
    changes: int
    moves: int
    decided: int


def seen_of(entry: SaleEntry) -> Seen:
    """Return what is known now. Taken before anything is asked: what comes while the answer is on its way is news."""
    card, figures = entry.card, entry.figures
    decided = figures.decided if figures is not None else 0
    return Seen((card.operator_state, card.pause_reason), entry.changes, entry.moves, decided)


class Follower:
    """One open stream. name: the state its reader has; '' when it has none."""

    def __init__(self, entry: SaleEntry, *, request_id: str = "", buyer: str = "", name: str = "") -> None:
        self.entry = entry
        self.request_id = request_id
        self.buyer = buyer
        self.name = name
        self.ended = False
        self.spoken_at = time.monotonic()
        self.position = 0
        self._message: bytes | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._seen = seen_of(entry)
        self.due = self._latest = 0.0

    def wants_look(self, now: float) -> bool:
        """Say whether there may be news of it: it is its time and something moved, or its turn may have come."""
        if now >= self._latest or self._is_switched():
            return True
        return self._is_moved() and (now >= self.due or self._may_be_decided())

    def is_urgent(self) -> bool:
        """Say whether there may be more news than another place: its turn may have come, or staff did something."""
        return self._is_switched() or self._may_be_decided()

    def _is_switched(self) -> bool:
        return self._seen.switched != (self.entry.card.operator_state, self.entry.card.pause_reason)

    def _may_be_decided(self) -> bool:
        # The request at place n is decided after n decisions at the earliest.
        decided = self.entry.figures.decided if self.entry.figures is not None else 0
        return decided - self._seen.decided >= self.position > 0

    def _is_moved(self) -> bool:
        if self.request_id:
            return self._seen.moves != self.entry.moves
        return self._seen.changes != self.entry.changes

    def looked(self, now: float, *, seen: Seen, pause_seconds: float) -> None:
        """Remember what was known when its news was asked for, and when it is looked at again."""
        self._seen = seen
        self.due, self._latest = now + pause_seconds, now + max(pause_seconds, MAX_SECONDS)

    def postpone(self, until: float) -> None:
        """Look again at `until` (monotonic seconds), before only if staff do something: it cannot be told now."""
        self._seen, self.position = seen_of(self.entry), 0
        self.due = self._latest = until

    def put(self, value: dict[str, Any], *, ends: bool) -> None:
        """Leave a message when `value` is news; it takes the place of one that was not sent yet."""
        name = digest_of(value)
        if name != self.name:
            self.name = name
            self._message = f"id: {name}\ndata: {json.dumps(value)}\n\n".encode()
        if ends:
            self.ended = True
        if ends or self._message is not None:
            self.wake()

    def end(self) -> None:
        """Let the stream end; its reader asks again."""
        self.ended = True
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self) -> bytes | None:
        """Return the newest message, once."""
        message, self._message = self._message, None
        return message

    async def wait(self) -> None:
        """Return when there is something to do: a message, the end, or a heartbeat."""
        if self._message is None and not self.ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None


def send_status(follower: Follower, status: dict[str, Any], now: float, *, seen: Seen) -> None:
    """Tell a follower where its request stands. seen: what was known of its sale before that was asked."""
    # One on standby may be decided before others that come first, so after any decision.
    follower.position = 1 if status["state"] == State.STANDBY else status["position"] or 0
    pause = max(MIN_PLACE_SECONDS, CALMER * status["poll_after_ms"] / 1000)
    follower.looked(now, seen=seen, pause_seconds=pause)
    follower.put(status, ends=status["state"] not in WAITING_STATES)


def send_sale(follower: Follower, answer: dict[str, Any], now: float) -> None:
    """Tell one who follows a sale what the board knows of it now."""
    follower.looked(now, seen=seen_of(follower.entry), pause_seconds=SALE_SECONDS)
    follower.put(answer, ends=answer["state"] == "closed")
