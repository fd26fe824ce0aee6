"""One buyer's conversation with the shop: arrive, ask, ask again, look until decided; all of it recorded.
Never takes a missing answer for a yes or a no: it asks again with the same key.
Called by the user classes; speaks through the Locust client it is given.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import gevent

from loadtest.contract import is_come_again, is_foreseen, outcome_of
from loadtest.history import FAIL, OK, STOPPED, Operation, now_ns
from loadtest.population import AGAIN, DOUBLE, FIRST, Visit, Wish

if TYPE_CHECKING:
    from locust.contrib.fasthttp import FastHttpSession

    from loadtest.crowd import Crowd, KnownRequest

RETRY = "retry"
MAX_TRIES = 8  # of one click that is shed, told to slow down, or not answered
MAX_RETRY_WAIT_SECONDS = 5.0
POLL_FLOOR_SECONDS, POLL_CEILING_SECONDS, POLL_DEFAULT_SECONDS = 0.05, 2.0, 0.5
DECISION_PATIENCE_SECONDS = 60.0
NS = 1_000_000_000


@dataclass(slots=True)
class Place:
    """A place in line that this buyer was given and has not seen decided yet."""

    request_id: str
    wish: Wish
    look_at_ns: int
    give_up_at_ns: int


class Conversation:
    """What one buyer says and hears, on one connection."""

    def __init__(self, client: FastHttpSession, *, crowd: Crowd) -> None:
        self._client = client
        self._crowd = crowd
        self._buyer = ""
        self._headers: dict[str, str] = {}
        self._places: dict[str, Place] = {}

    def visit(self, visit: Visit) -> None:
        """Live through one visit: every wish is clicked, every place in line is watched until it is decided."""
        if not visit.wishes:
            return
        self._browse(visit.wishes[0].sale)
        if not self._join():
            return
        for wish in visit.wishes:
            self._click(wish)
            self._look_at_due_places()
        while self._places:
            self._look_at_due_places()
            gevent.sleep(min(0.5, max(0.0, self._seconds_to_next_look())))

    def recheck(self, known: KnownRequest) -> str:
        """Ask once more how a request stands after everything; return its state ("" for no answer)."""
        operation = Operation(kind="recheck", request_id=known.request_id, sale=known.sale, buyer=known.buyer)
        self._call(operation, "GET", f"/api/v1/requests/{known.request_id}", headers=_bearer(known.token))
        return operation.state

    def _browse(self, sale: str) -> None:
        operation = Operation(kind="browse", sale=sale)
        self._call(operation, "GET", f"/api/v1/sales/{sale}", headers={})

    def _join(self) -> bool:
        for _ in range(MAX_TRIES):
            operation = Operation(kind="join")
            answer, wait_seconds = self._call(operation, "POST", "/api/v1/buyers", headers={}, body="{}")
            if operation.outcome == OK:
                self._buyer, token = str(answer.get("buyer", "")), str(answer.get("token", ""))
                self._headers = _bearer(token)
                self._crowd.remember_buyer(self._buyer, token=token)
                return True
            gevent.sleep(wait_seconds)
        self._crowd.counters.gave_up += 1
        return False

    def _click(self, wish: Wish) -> None:
        """Click once; double clicks leave at the same moment, repeats after the answer."""
        doubles = [gevent.spawn(self._ask, wish, DOUBLE) for style in wish.repeats if style == DOUBLE]
        self._ask(wish, FIRST)
        gevent.joinall(doubles, raise_error=True)
        for style in wish.repeats:
            if style == AGAIN:
                self._ask(wish, AGAIN)

    def _ask(self, wish: Wish, click: str) -> None:
        """Ask until there is a definite answer; the key stays the same, so asking again is safe."""
        self._crowd.counters.attempts += 1
        for _ in range(MAX_TRIES):
            operation = Operation(
                kind="ask",
                began_ns=0,
                buyer=self._buyer,
                sale=wish.sale,
                key=wish.key,
                quantity=wish.quantity,
                click=click,
            )
            headers = self._headers | {"Idempotency-Key": wish.key}
            body = f'{{"quantity":{wish.quantity}}}'
            path = f"/api/v1/sales/{wish.sale}/requests"
            answer, wait_seconds = self._call(operation, "POST", path, headers=headers, body=body)
            if operation.outcome == OK:
                self._place_given(operation, wish, answer)
                return
            if operation.outcome == FAIL and not is_come_again(operation):
                return
            click = RETRY
            gevent.sleep(wait_seconds)
        self._crowd.counters.gave_up += 1

    def _place_given(self, operation: Operation, wish: Wish, answer: dict[str, Any]) -> None:
        request_id = operation.request_id
        if not self._crowd.remember_request(request_id, sale=wish.sale, buyer=self._buyer):
            return  # a repeat: this place is being watched already
        if _is_decided(operation.state):
            self._crowd.counters.decided += 1
            return
        now = now_ns()
        patience_ns = int(DECISION_PATIENCE_SECONDS * NS)
        self._places[request_id] = Place(request_id, wish, now + _poll_ns(answer), now + patience_ns)

    def _look_at_due_places(self) -> None:
        for place in [place for place in self._places.values() if place.look_at_ns <= now_ns()]:
            self._look(place)

    def _look(self, place: Place) -> None:
        operation = Operation(
            kind="look",
            began_ns=0,
            buyer=self._buyer,
            sale=place.wish.sale,
            key=place.wish.key,
            request_id=place.request_id,
        )
        path = f"/api/v1/requests/{place.request_id}"
        answer, wait_seconds = self._call(operation, "GET", path, headers=self._headers)
        decided = operation.outcome == OK and _is_decided(operation.state)
        refused = operation.outcome == FAIL and not is_come_again(operation)
        if decided or refused or now_ns() > place.give_up_at_ns:
            self._places.pop(place.request_id, None)
            self._crowd.counters.decided += decided
            return
        place.look_at_ns = now_ns() + (_poll_ns(answer) if operation.outcome == OK else int(wait_seconds * NS))

    def _seconds_to_next_look(self) -> float:
        times = [place.look_at_ns for place in self._places.values()]
        return (min(times) - now_ns()) / NS if times else 0.0

    def _call(
        self, operation: Operation, method: str, path: str, *, headers: dict[str, str], body: str | None = None
    ) -> tuple[dict[str, Any], float]:
        """Send one call and record it whatever happens; return the answer and how long to wait before another try."""
        sent = {"Accept-Encoding": "identity", **headers} | ({"Content-Type": "application/json"} if body else {})
        name = NAMES[operation.kind]
        operation.began_ns = now_ns()
        try:
            with self._client.request(
                method, path, name=name, headers=sent, data=body, catch_response=True
            ) as response:
                operation.ended_ns = now_ns()
                answer = _json_of(response.content)
                _fill_in(operation, status=response.status_code, answer=answer)
                if is_foreseen(operation):
                    response.success()
                else:
                    response.failure(
                        f"{operation.status} {operation.code}".strip() if operation.status else "no answer"
                    )
                return answer, _retry_after_seconds(response.headers)
        except gevent.GreenletExit:
            operation.code = STOPPED
            raise
        finally:
            operation.ended_ns = operation.ended_ns or now_ns()
            self._crowd.record(operation)


NAMES = {
    "join": "POST /api/v1/buyers",
    "browse": "GET /api/v1/sales/[slug]",
    "ask": "POST /api/v1/sales/[slug]/requests",
    "look": "GET /api/v1/requests/[id]",
    "recheck": "GET /api/v1/requests/[id] at rest",
}


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _is_decided(state: str) -> bool:
    return state not in ("", "queued")


def _json_of(content: bytes | None) -> dict[str, Any]:
    try:
        answer = json.loads(content or b"{}")
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _fill_in(operation: Operation, *, status: int, answer: dict[str, Any]) -> None:
    """Copy what the verdict needs out of an answer."""
    operation.status, operation.outcome = status, outcome_of(status)
    operation.code = str(answer.get("code", "")) if status >= HTTPStatus.BAD_REQUEST else ""
    if operation.outcome == OK:
        operation.request_id = str(answer.get("request_id", operation.request_id))
        operation.seq = int(answer.get("seq") or 0)
        operation.state = str(answer.get("state", "")) if operation.kind != "browse" else ""
        operation.buyer = operation.buyer or str(answer.get("buyer", ""))


def _poll_ns(answer: dict[str, Any]) -> int:
    asked_for = float(answer.get("poll_after_ms") or POLL_DEFAULT_SECONDS * 1000) / 1000
    return int(min(POLL_CEILING_SECONDS, max(POLL_FLOOR_SECONDS, asked_for)) * NS)


def _retry_after_seconds(headers: Any) -> float:
    text = str((headers or {}).get("Retry-After", ""))
    return min(MAX_RETRY_WAIT_SECONDS, float(text)) if text.isdigit() else 0.2
