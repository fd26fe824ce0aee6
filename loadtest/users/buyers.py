"""The user classes of the flood: one for each kind of buyer, with its weight and its tag, and the base of one's own.
Never decides when somebody comes or what becomes of a unit: that is planned, so that the verdict can judge it.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import gevent
from locust import FastHttpUser, constant, tag, task

from loadtest.plan.population import (
    BOT,
    BUILT_IN,
    HOARDER,
    HONEST,
    IMPATIENT,
    KINDS,
    LATE_PAYER,
    RESTORER,
    SHOPPER,
    WATCHER,
    Kind,
)
from loadtest.users.arrival_gate import IDLE_SECONDS, ArrivalGate
from loadtest.users.calls import Calls
from loadtest.users.conversation import Conversation
from loadtest.users.crowd import Crowd

__all__ = ["Buyer", "Conversation"]


class Party(Protocol):
    """What buyers must know of the run: nobody comes while there is neither crowd nor gate."""

    crowd: Crowd | None
    arrival_gate: ArrivalGate | None


class Buyer(FastHttpUser):
    """A connection that plays planned buyers one after the other, without a pause, those of its own kind first.

    A kind of one's own: a subclass with a `kind`, a `plan`, a `weight`, and a task that calls play_next.
    """

    abstract = True
    wait_time = constant(0)
    concurrency = 4  # a double click needs a second connection at the same moment
    connection_timeout = 5.0
    network_timeout = 10.0
    kind: ClassVar[str]
    plan: ClassVar[Kind]
    party: ClassVar[Party]
    of_kind: ClassVar[dict[str, type[Buyer]]] = {}

    def __init_subclass__(cls) -> None:
        """Make the kind known to the plan of the crowd; a class without a plan of its own has that of its kind."""
        super().__init_subclass__()
        Buyer.of_kind[cls.kind] = cls
        if cls.kind != SHOPPER:
            KINDS[cls.kind] = getattr(cls, "plan", None) or KINDS[cls.kind]

    def on_start(self) -> None:
        """Keep no cookies: the next buyer on this connection is somebody else."""
        self.client.client.cookiejar = None

    def play_next(self) -> None:
        """Play one buyer from arrival to the last click; the places they got are followed to their end."""
        crowd, gate = Buyer.party.crowd, Buyer.party.arrival_gate
        if crowd is None or gate is None:
            gevent.sleep(IDLE_SECONDS)
            return
        arrival = gate.enter(self.kind)
        if arrival is None:
            return
        try:
            calls = Calls(self.client, crowd=crowd)
            conversation = Conversation(calls, crowd=crowd, visit=arrival.visit, planned_ns=arrival.planned_ns)
            # Of whatever kind this user is: when all of a kind are busy, another one plays it.
            Buyer.of_kind[arrival.visit.kind].live(conversation)
        finally:
            gate.leave()

    @classmethod
    def live(cls, conversation: Conversation) -> None:
        """Say what a buyer of this kind does from arrival to the last click."""
        conversation.run()


class Shopper(Buyer):
    """Everybody of the standard flood: clicks, repeats and goes from sale to sale."""

    kind, weight = SHOPPER, BUILT_IN[SHOPPER]

    @tag("buy", "flood", "shopper")
    @task
    def visit(self) -> None:
        """Play one buyer."""
        self.play_next()


class Honest(Buyer):
    """Looks, asks once, pays; two of ten cancel instead."""

    kind, weight = HONEST, BUILT_IN[HONEST]

    @tag("buy", "flood", "honest")
    @task
    def visit(self) -> None:
        """Play one buyer."""
        self.play_next()


class Impatient(Buyer):
    """Reloads, has two tabs with a key each, clicks twice, asks again, refreshes the ticket."""

    kind, weight = IMPATIENT, BUILT_IN[IMPATIENT]

    @tag("buy", "flood", "impatient")
    @task
    def visit(self) -> None:
        """Play one buyer."""
        self.play_next()


class Bot(Buyer):
    """Looks at no page; four keys at once, each twice; does not pause when it is told to."""

    kind, weight = BOT, BUILT_IN[BOT]

    @tag("buy", "flood", "bot")
    @task
    def visit(self) -> None:
        """Play one buyer."""
        self.play_next()


class Hoarder(Buyer):
    """Holds a unit and never pays."""

    kind, weight = HOARDER, BUILT_IN[HOARDER]

    @tag("buy", "flood", "hoarder")
    @task
    def visit(self) -> None:
        """Play one buyer."""
        self.play_next()


class LatePayer(Buyer):
    """Opens the provider's page and pays when the hold is over."""

    kind, weight = LATE_PAYER, BUILT_IN[LATE_PAYER]

    @tag("buy", "flood", "late-payer")
    @task
    def visit(self) -> None:
        """Play one buyer."""
        self.play_next()


class Restorer(Buyer):
    """Shows the ticket, as after a lost line, at once and again at the end."""

    kind, weight = RESTORER, BUILT_IN[RESTORER]

    @tag("buy", "flood", "restorer")
    @task
    def visit(self) -> None:
        """Play one buyer."""
        self.play_next()


class Watcher(Buyer):
    """Reads the sale's live events, asks, and follows the request by its live events."""

    kind, weight = WATCHER, BUILT_IN[WATCHER]

    @tag("buy", "flood", "watcher")
    @task
    def visit(self) -> None:
        """Play one buyer."""
        self.play_next()


class Looker(FastHttpUser):
    """Somebody who reads the list of sales now and then and never buys."""

    wait_time = constant(1)
    fixed_count = 1
    connection_timeout = 5.0
    network_timeout = 10.0

    @tag("browse")
    @task
    def list_sales(self) -> None:
        """Look at what is on sale."""
        self.client.get("/api/v1/sales", name="GET /api/v1/sales")
