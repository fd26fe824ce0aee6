"""A crowd that keeps its tickets: asks, follows its place, and shows the ticket when the shop has forgotten it.
Never gives up while the shop is away; writes down every state it was told.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from shop.sales.catalogue import SaleCard
from tests.support.http_calls import JSON, Answer, Buyer, Caller

THREADS = 8
PAUSE_SECONDS = 0.02
# What nobody is ever told after the other.
BACKWARDS = {("waitlisted", "queued"), ("held", "queued"), ("held", "waitlisted"), ("sold_out", "queued")}


@dataclass
class Client:
    """One buyer with a ticket. told: every state in its order; lost: the shop knows nothing of the request any more.

    heard_at: when it was last told where it stands (time.monotonic).
    """

    buyer: Buyer
    request_id: str = ""
    ticket: str = ""
    told: list[str] = field(default_factory=list)
    restored: int = 0
    lost: bool = False
    heard_at: float = 0.0

    @property
    def state(self) -> str:
        """The last state told."""
        return self.told[-1] if self.told else ""


@dataclass
class TicketCrowd:
    """Clients of one sale, in a few threads. restoring: whether they show their tickets (the control does not).

    backwards: what nobody may be told after the other.
    """

    web: Caller
    card: SaleCard
    restoring: bool = True
    backwards: Set[tuple[str, str]] = frozenset(BACKWARDS)
    clients: list[Client] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def send(self, count: int) -> None:
        """Let `count` more buyers come, in threads of their own."""
        each = count // THREADS
        self._start([Client(self.web.new_buyer()) for _ in range(each)] for _ in range(THREADS))

    def _start(self, groups: object) -> None:
        for group in groups:  # type: ignore[attr-defined]
            self.clients += group
            thread = threading.Thread(target=self._live, args=(group,))
            self._threads.append(thread)
            thread.start()

    @property
    def admitted(self) -> list[Client]:
        """Those who hold a ticket."""
        return [client for client in self.clients if client.ticket]

    def finish(self) -> None:
        """Let everybody go home, and fail if one was told what is not foreseen."""
        self.stop.set()
        for thread in self._threads:
            thread.join(timeout=120)
            assert not thread.is_alive()
        assert self.failures == []

    def _live(self, group: Sequence[Client]) -> None:
        try:
            for client in group:
                self._ask(client)
            while not self.stop.is_set():
                for client in group:
                    self._follow(client)
                time.sleep(PAUSE_SECONDS)
        except Exception as error:  # a thread that died in silence would look like a patient buyer
            self.failures.append(repr(error))

    def _ask(self, client: Client) -> None:
        while not self.stop.is_set():
            answer = self.web.ask(self.card.slug, client.buyer)
            if answer.status in (200, 202):
                told = answer.json()
                client.request_id, client.ticket = told["request_id"], told["ticket"]
                client.told.append(told["state"])
                return
            self._foreseen(answer)

    def _follow(self, client: Client) -> None:
        asked_at = time.monotonic()
        answer = self.web.status(client.request_id, client.buyer)
        if answer.status == 200:
            self._hear(client, answer.json()["state"])
            client.heard_at = asked_at
        elif answer.status != 404:
            self._foreseen(answer)
        elif self.restoring:
            self._restore(client)
        else:
            client.lost = True

    def _restore(self, client: Client) -> None:
        body = json.dumps({"ticket": client.ticket})
        answer = self.web.call("POST", "/api/v1/tickets/restore", body=body, headers={**JSON, **client.buyer.headers})
        if answer.status in (200, 202):
            client.restored += answer.status == 202
            self._hear(client, answer.json()["state"])
        else:
            self._foreseen(answer)

    def _hear(self, client: Client, state: str) -> None:
        if (client.state, state) in self.backwards:
            self.failures.append(f"{client.request_id} was told {client.told} and then {state}")
        if client.state != state:
            client.told.append(state)

    def _foreseen(self, answer: Answer) -> None:
        """The shop may be away, or not know its stock for a moment; nothing else is foreseen."""
        if answer.status != 503:
            self.failures.append(f"{answer.status} {answer.body!r:.200}")
        time.sleep(PAUSE_SECONDS)
