"""What the users of one process share: the visits still to make, what was learned, the history, the counters.
Never decides whether the shop did well; counters are for the progress line only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtest.plan.population import SHOPPER, Population, Visit
from loadtest.record.files import write_whole
from loadtest.record.history import HistoryWriter, Operation
from loadtest.record.tickets import TicketWriter

PROGRESS_PREFIX = "progress-"


@dataclass(slots=True)
class Counters:
    """How far this process is."""

    attempts: int = 0
    requests: int = 0
    admitted: int = 0
    decided: int = 0
    paid: int = 0
    planned: int = 0


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """A request this process was given, with what is needed to ask for it again."""

    request_id: str
    sale: str
    buyer: str
    token: str
    buyer_kind: str = SHOPPER
    ticket: str = ""


class Crowd:
    """One process's part of the population."""

    def __init__(self, population: Population, *, folder: Path, part: int = 0, parts: int = 1) -> None:
        self.population = population
        self.counters = Counters(planned=population.clicks)
        self.known: dict[str, KnownRequest] = {}
        self.busy_users = 0
        self.is_stopping = False  # somebody ends the run before its end: nobody waits any longer for what may come
        self.is_closed = False
        # Told of every new place with its state; set by the one that follows places to their end.
        self.follow: Callable[[KnownRequest, str], None] = lambda _known, _state: None
        self._part = part
        self._cards: dict[tuple[str, str, str], Iterator[str]] = {}
        self._visits: Iterator[Visit] | None = population.visits(part=part, parts=parts)
        self._tokens: dict[str, str] = {}
        self._history = HistoryWriter(folder)
        self._tickets = TicketWriter(folder)
        name = self._history.path.stem.removeprefix("history-")
        self._progress_path = folder / f"{PROGRESS_PREFIX}{name}.json"

    def next_visit(self) -> Visit | None:
        """Hand out the next visit, or None when this process has made all of its own."""
        visit = next(self._visits, None) if self._visits is not None else None
        if visit is None:
            self._visits = None
        return visit

    def send_home(self) -> None:
        """Let nobody else in."""
        self._visits = None

    @property
    def finished(self) -> bool:
        """Say whether every visit was made and every user is idle."""
        return self._visits is None and self.busy_users == 0

    def remember_buyer(self, buyer: str, *, token: str) -> None:
        """Keep a buyer's token for the questions at the end; it never goes into the history."""
        self._tokens[buyer] = token

    def remember_request(
        self, request_id: str, *, sale: str, buyer: str, state: str, buyer_kind: str = SHOPPER, ticket: str = ""
    ) -> None:
        """Keep a request for the question at the end, and have it followed; a repeat changes nothing."""
        if request_id in self.known:
            return
        token = self._tokens.get(buyer, "")
        known = self.known[request_id] = KnownRequest(request_id, sale, buyer, token, buyer_kind, ticket)
        self.counters.admitted += 1
        self.follow(known, state)

    def keep_ticket(self, ticket: str, *, sale: str) -> None:
        """Keep a ticket that a buyer was given, to be checked at the end; also one that was given again."""
        self._tickets.add(ticket, sale=sale)

    def next_card(self, sale: str, kind: str, *, buyer_kind: str = SHOPPER) -> str:
        """Draw what the next buyer of `sale` does who is held a unit, or waitlisted (see population.DECKS)."""
        key = (sale, kind, buyer_kind)
        if key not in self._cards:
            self._cards[key] = self.population.cards(sale, kind, part=self._part, buyer_kind=buyer_kind)
        return next(self._cards[key])

    def begin(self, operation: Operation) -> None:
        """Write down that an operation is on its way, before it is: its process may be killed."""
        self._history.begin(operation)

    def record(self, operation: Operation) -> None:
        """Write one operation down."""
        self.counters.requests += 1
        self._history.add(operation)

    def write_progress(self) -> None:
        """Put the counters where run_flood sees them."""
        write_whole(self._progress_path, json.dumps(asdict(self.counters)))

    def close(self) -> None:
        """Finish the history; nothing is sent after this, since it would not be on record."""
        self.is_closed = True
        self.write_progress()
        self._tickets.close()
        self._history.close()


def read_progress(folder: Path) -> Counters:
    """Add up the counters of all processes of a run."""
    total = Counters()
    for path in folder.glob(f"{PROGRESS_PREFIX}*.json"):
        for name, value in json.loads(path.read_text()).items():
            # Every process plans the same whole crowd; everything else adds up.
            setattr(total, name, value if name == "planned" else getattr(total, name) + value)
    return total


def clear_progress(folder: Path) -> None:
    """Remove the counters of an earlier run."""
    for path in folder.glob(f"{PROGRESS_PREFIX}*.json"):
        path.unlink()
