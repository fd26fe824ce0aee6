"""What a buyer does with a place, to its very end: wait, stand by, leave, pay, cancel, let it lapse, pay late, listen.
Never takes a missing answer for a yes or a no: it looks, or asks again. One greenlet for each place.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from http.cookies import SimpleCookie
from json import dumps
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import gevent

from loadtest.plan.population import CANCELS, IMPATIENT, LEAVES, PAYS, PAYS_LATE, RESTORER, WATCHER
from loadtest.record.history import OK, Operation, now_ns
from loadtest.users.calls import Answer, Calls, bearer
from loadtest.users.contract import is_refusal
from loadtest.users.sse import listen

if TYPE_CHECKING:
    from loadtest.users.crowd import Crowd, KnownRequest

MAX_TRIES = 8
NS = 1_000_000_000
# A place is watched for this long after its last change.
PATIENCE_SECONDS = 120.0
# More often would keep one process of a load generator busy with nothing else; less would miss what becomes of a hold.
MIN_LOOK_SECONDS, MAX_LOOK_SECONDS = 0.3, 1.0
# So many refreshes of the ticket page at once make an impatient buyer.
REFRESHES = 3
# A watcher who heard nothing of a decision for so long looks now and then, like everybody else.
LISTEN_SECONDS = 30.0
# On standby one looks seldom, and for so long at most.
STANDBY_LOOK_SECONDS, STANDBY_SECONDS = 2.0, 90.0
QUEUED, WAITLISTED, STANDBY, HELD = "queued", "waitlisted", "standby", "held"
WAITING = ("", QUEUED, WAITLISTED, STANDBY)
CSRF = re.compile(rb'name="csrfmiddlewaretoken" value="([^"]+)"')


class FollowUp:
    """One place and its buyer."""

    def __init__(self, calls: Calls, known: KnownRequest, *, crowd: Crowd, state: str = QUEUED) -> None:
        self._calls = calls
        self._known = known
        self._crowd = crowd
        self._headers = bearer(known.token)
        self._state = state
        self._changed_ns = now_ns()
        self._waited = False
        self._holds_ahead: int | None = None  # units held by others that may come back, as the shop said last

    def run(self) -> None:
        """Live through it until nothing can happen to this place any more, or its patience is over."""
        self._begin_as(self._known.buyer_kind)
        if self._watch_while(WAITING):
            self._crowd.counters.decided += 1
        if self._state == HELD:
            self._use_hold(self._next_card(HELD))
        if self._known.buyer_kind == RESTORER:
            self._restore()

    def _begin_as(self, buyer_kind: str) -> None:
        """Do what this kind of buyer does as soon as there is a place."""
        if buyer_kind == RESTORER:
            self._restore()
        elif buyer_kind == WATCHER:
            self._listen()
        elif buyer_kind == IMPATIENT:
            for _ in range(REFRESHES):
                self._look()

    def _restore(self) -> None:
        """Show the ticket: a place that is known is only told of, whatever its state."""
        if self._known.ticket:
            self._insist("restore", body=dumps({"ticket": self._known.ticket}), path="/api/v1/tickets/restore")

    def _listen(self) -> None:
        """Read live events until the decision."""
        path = f"/api/v1/requests/{self._known.request_id}/events"
        first = self._operation("event")
        for event in listen(
            self._calls.client, first, path, crowd=self._crowd, seconds=LISTEN_SECONDS, headers=self._headers
        ):
            self._note(event)

    def _next_card(self, kind: str) -> str:
        return self._crowd.next_card(self._known.sale, kind, buyer_kind=self._known.buyer_kind)

    def _use_hold(self, intent: str) -> None:
        if intent == PAYS:
            self._insist("pay", "payment", body="{}")
            self._crowd.counters.paid += self._state == "paid"
            self._look_until_answered()
        elif intent == CANCELS:
            self._insist("cancel", "cancel", body="{}")
            self._look_until_answered()
        elif intent == PAYS_LATE:
            self._pay_late()
        else:
            self._watch_while((HELD,))

    def _pay_late(self) -> None:
        """Open the provider's page while the unit is held, and pay there when the hold is over."""
        answer = self._insist("begin", "payment", body='{"page": true}')
        url = str(answer.fields.get("payment_url", ""))
        if not url or not self._watch_while((HELD,)):
            return
        path = urlsplit(url).path
        page = self._calls.send(self._operation("page"), "GET", path, headers={})
        found = CSRF.search(page.content)
        if found is None:
            return
        choice = self._operation("choose")
        body = urlencode({"csrfmiddlewaretoken": found[1].decode(), "choice": "pay"})
        self._calls.send(choice, "POST", path, headers=_form_headers(page, url), body=body)
        self._watch_while((HELD, "expired", "cancelled"))

    def _watch_while(self, states: Collection[str]) -> bool:
        """Look until the place is in none of `states`; say whether that was seen. A buyer who must wait may leave."""
        while self._state in states:
            if now_ns() > self._changed_ns + int(PATIENCE_SECONDS * NS):
                return False
            gevent.sleep(self._look())
            if self._state == WAITLISTED and not self._waited:
                self._waited = True
                if self._next_card(WAITLISTED) == LEAVES:
                    self._insist("cancel", "cancel", body="{}")
            elif self._state == STANDBY and self._is_in_vain():
                self._insist("cancel", "cancel", body="{}")
        return True

    def _is_in_vain(self) -> bool:
        """Say whether to stop standing by: nothing can come back any more, the run is stopped, or it takes too long."""
        if self._crowd.is_stopping or now_ns() > self._changed_ns + int(STANDBY_SECONDS * NS):
            return True
        if self._holds_ahead != 0:
            return False
        # What is not held may be free and about to be given, as before the first decision of a sale.
        known = self._known
        browse = Operation(kind="browse", sale=known.sale, buyer=known.buyer)
        sale = self._calls.send(browse, "GET", f"/api/v1/sales/{known.sale}", headers=self._headers).fields
        return browse.outcome == OK and sale.get("available") == sale.get("held") == 0

    def _look(self) -> float:
        """Ask where the place stands; return how long to wait before the next look."""
        operation, answer = self._send_look()
        if operation.outcome != OK:
            return answer.wait_seconds
        if self._state in (WAITLISTED, STANDBY):
            return MAX_LOOK_SECONDS if self._state == WAITLISTED else STANDBY_LOOK_SECONDS
        asked_for = float(answer.fields.get("poll_after_ms") or 0) / 1000
        return min(MAX_LOOK_SECONDS, max(MIN_LOOK_SECONDS, asked_for))

    def _send_look(self) -> tuple[Operation, Answer]:
        operation = self._operation("look")
        answer = self._calls.send(operation, "GET", f"/api/v1/requests/{self._known.request_id}", headers=self._headers)
        if operation.outcome == OK:
            self._holds_ahead = answer.fields.get("holds_ahead")
            self._note(operation)
        return operation, answer

    def _look_until_answered(self) -> None:
        """Ask once more after an act: what it was answered must not be taken back."""
        for _ in range(MAX_TRIES):
            operation, answer = self._send_look()
            if operation.outcome == OK:
                return
            gevent.sleep(answer.wait_seconds)

    def _insist(self, kind: str, endpoint: str = "", *, body: str, path: str = "") -> Answer:
        """Call one endpoint of a request until there is a definite answer: each is safe to call again."""
        path = path or f"/api/v1/requests/{self._known.request_id}/{endpoint}"
        for _ in range(MAX_TRIES):
            operation = self._operation(kind)
            answer = self._calls.send(operation, "POST", path, headers=self._headers, body=body)
            if operation.outcome == OK:
                self._note(operation)
                return answer
            if is_refusal(operation):
                return answer
            gevent.sleep(answer.wait_seconds)
        return answer

    def _note(self, operation: Operation) -> None:
        if operation.state and operation.state != self._state:
            self._state, self._changed_ns = operation.state, now_ns()

    def _operation(self, kind: str) -> Operation:
        known = self._known
        return Operation(kind=kind, buyer=known.buyer, sale=known.sale, request_id=known.request_id)


def _form_headers(page: Answer, url: str) -> dict[str, str]:
    """Return what a browser would send with the form of a page."""
    cookies = SimpleCookie(str(page.headers.get("Set-Cookie", "")))
    parts = urlsplit(url)
    return {
        "Content-Type": "application/x-www-form-urlencoded",
        "Cookie": "; ".join(f"{name}={morsel.value}" for name, morsel in cookies.items()),
        "Origin": f"{parts.scheme}://{parts.netloc}",
        "Referer": url,
    }
