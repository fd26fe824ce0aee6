"""One buyer's visit to the shop: arrive, ask, ask again; what comes of a place in line is the follow-ups' business.
Never takes a missing answer for a yes or a no: it asks again with the same key.
Speaks only through the calls it is given.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING

import gevent

from loadtest.plan.population import (
    AGAIN,
    BOT,
    BOT_NETWORKS,
    DOUBLE,
    FIRST,
    ON_STANDBY,
    SENT_AWAY,
    STANDS_BY,
    WATCHER,
    Visit,
    Wish,
)
from loadtest.record.history import OK, Operation, now_ns
from loadtest.users.addresses import coming_from, network_in
from loadtest.users.calls import Answer, Calls, bearer
from loadtest.users.contract import NONE_LEFT, NOT_OPEN, is_refusal
from loadtest.users.order_life import PATIENCE_SECONDS
from loadtest.users.sse import listen

if TYPE_CHECKING:
    from loadtest.users.crowd import Crowd, KnownRequest

# HASTY: without the pause that the shop asked for.
RETRY, HASTY = "retry", "hasty"
MAX_TRIES = 8  # of one call that is shed, told to slow down, or not answered; with a pause of 5 s at most, 40 s
NS = 1_000_000_000
# How long a watcher reads what happens to a sale before asking for a unit of it.
WATCH_SECONDS = 2.0
# A bot does not wait as long as it is told to.
HAMMER_SECONDS = 0.05


class Conversation:
    """What one buyer says and hears, on one connection."""

    def __init__(self, calls: Calls, *, crowd: Crowd, visit: Visit, planned_ns: int = 0) -> None:
        self._calls = calls
        self._crowd = crowd
        self._visit = visit
        self._buyer = ""
        self._headers = coming_from(token_hex(8))  # until there is a token, whose address is the buyer's
        # How much later than planned this visit began; None when nothing was planned.
        self._late_ns = max(0, now_ns() - planned_ns) if planned_ns else None

    def run(self) -> None:
        """Live through the visit: every wish is clicked, every place in line is handed to the follow-ups."""
        visit = self._visit
        if not visit.wishes:
            return
        sale = visit.wishes[0].sale
        for _ in range(visit.page_views):
            self._browse(sale)
        if visit.kind == WATCHER:
            watch = Operation(kind="watch", sale=sale)
            path = f"/api/v1/sales/{sale}/events"
            for _ in listen(self._calls.client, watch, path, crowd=self._crowd, seconds=WATCH_SECONDS,
                            headers=self._headers):  # fmt: skip
                pass
        if not self._join():
            return
        if visit.at_once:
            gevent.joinall([gevent.spawn(self._click, wish) for wish in visit.wishes], raise_error=True)
        else:
            for wish in visit.wishes:
                self._click(wish)

    def pause(self, *, seconds: float) -> None:
        """Think for a while; meanwhile this user plays nobody else."""
        gevent.sleep(seconds)

    def _due_ns(self) -> int:
        """When what is done now was to be done: earlier by as much as the visit began late. 0: nothing was planned."""
        return 0 if self._late_ns is None else now_ns() - self._late_ns

    def _browse(self, sale: str) -> None:
        operation = Operation(kind="browse", sale=sale, planned_ns=self._due_ns())
        self._calls.send(operation, "GET", f"/api/v1/sales/{sale}", headers=self._headers)

    def _join(self) -> bool:
        due_ns = self._due_ns()
        for _ in range(MAX_TRIES):
            operation = Operation(kind="join", key=f"visit-{self._visit.number}", planned_ns=due_ns)
            answer = self._calls.send(operation, "POST", "/api/v1/buyers", headers=self._headers, body="{}")
            if operation.outcome == OK:
                self._buyer, token = str(answer.fields.get("buyer", "")), str(answer.fields.get("token", ""))
                self._headers = bearer(token)
                if self._visit.kind == BOT:
                    self._headers |= coming_from(f"bots {self._visit.number % BOT_NETWORKS}")
                self._crowd.remember_buyer(self._buyer, token=token)
                return True
            gevent.sleep(answer.wait_seconds)
        return False

    def _click(self, wish: Wish) -> None:
        """Click once; double clicks leave at the same moment, repeats after the answer. Some then stand by."""
        doubles = [gevent.spawn(self._ask, wish, DOUBLE) for style in wish.repeats if style == DOUBLE]
        told = self._ask(wish, FIRST)
        gevent.joinall(doubles, raise_error=True)
        for style in wish.repeats:
            if style == AGAIN:
                self._ask(wish, AGAIN)
        kind = self._visit.kind
        if told in NONE_LEFT and self._crowd.next_card(wish.sale, SENT_AWAY, buyer_kind=kind) == STANDS_BY:
            self._ask(wish, ON_STANDBY, standby=True)

    def _ask(self, wish: Wish, click: str, *, standby: bool = False) -> str:
        """Ask until there is a definite answer; return the code of a no. The key stays the same, so this is safe."""
        self._crowd.counters.attempts += 1
        due_ns = self._due_ns()  # of a click that must be repeated, the first time counts
        clicked_ns = now_ns()
        tries, gives_up_ns = 0, clicked_ns + int(PATIENCE_SECONDS * NS)
        while tries < MAX_TRIES:
            operation = Operation(
                kind="ask",
                buyer=self._buyer,
                sale=wish.sale,
                key=wish.key,
                quantity=wish.quantity,
                click=click,
                planned_ns=due_ns,
                clicked_ns=clicked_ns,
                network=network_in(self._headers),
            )
            answer = self._send_ask(operation, wish, standby=standby)
            if operation.outcome == OK:
                ticket = str(answer.fields.get("ticket", ""))
                self._crowd.keep_ticket(ticket, sale=wish.sale)
                self._crowd.remember_request(
                    operation.request_id,
                    sale=wish.sale,
                    buyer=self._buyer,
                    state=operation.state,
                    buyer_kind=self._visit.kind,
                    ticket=ticket,
                )
                return ""
            if is_refusal(operation):
                return operation.code
            # A sale that is paused says so until it goes on: a buyer waits for it as long as for a decision, a bot not.
            tries += operation.code != NOT_OPEN or self._visit.hammers or now_ns() > gives_up_ns
            click = HASTY if self._visit.hammers else RETRY
            gevent.sleep(HAMMER_SECONDS if self._visit.hammers else answer.wait_seconds)
        return ""

    def _send_ask(self, operation: Operation, wish: Wish, *, standby: bool) -> Answer:
        headers = self._headers | {"Idempotency-Key": wish.key}
        path = f"/api/v1/sales/{wish.sale}/requests"
        more = ',"standby":true' if standby else ""
        return self._calls.send(operation, "POST", path, headers=headers, body=f'{{"quantity":{wish.quantity}{more}}}')


def recheck(calls: Calls, known: KnownRequest) -> str:
    """Ask once more how a request stands after everything; return its state ("" for no answer)."""
    operation = Operation(kind="recheck", request_id=known.request_id, sale=known.sale, buyer=known.buyer)
    calls.send(operation, "GET", f"/api/v1/requests/{known.request_id}", headers=bearer(known.token))
    return operation.state
