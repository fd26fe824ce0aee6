"""Sends the calls of a flood, one connection pool for a user or for many places; each is recorded whatever happens.
Never retries and never judges an answer.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import gevent

from loadtest.record.history import OK, STOPPED, Operation, now_ns
from loadtest.users.addresses import coming_from
from loadtest.users.contract import is_foreseen, outcome_of

if TYPE_CHECKING:
    from locust.contrib.fasthttp import FastHttpSession

    from loadtest.users.crowd import Crowd

MAX_RETRY_WAIT_SECONDS = 5.0
NAMES = {
    "join": "POST /api/v1/buyers",
    "browse": "GET /api/v1/sales/[slug]",
    "ask": "POST /api/v1/sales/[slug]/requests",
    "look": "GET /api/v1/requests/[id]",
    "recheck": "GET /api/v1/requests/[id] at rest",
    "pay": "POST /api/v1/requests/[id]/payment",
    "begin": "POST /api/v1/requests/[id]/payment, a page",
    "page": "GET the hosted page",
    "choose": "POST the hosted page",
    "cancel": "POST /api/v1/requests/[id]/cancel",
    "restore": "POST /api/v1/tickets/restore",
    "watch": "GET /api/v1/sales/[slug]/events",
    "event": "GET /api/v1/requests/[id]/events",
}
# Their answers speak of a sale, whose state is no request's.
STATELESS_KINDS = ("browse", "watch")


class Answer(NamedTuple):
    """What came back: its JSON ({} when it is none), its bytes, its headers, and how long to wait before a retry."""

    fields: dict[str, Any]
    content: bytes
    headers: Any
    wait_seconds: float


class Calls:
    """Sends calls through one Locust client and records them with the crowd."""

    def __init__(self, client: FastHttpSession, *, crowd: Crowd) -> None:
        self.client = client
        self._crowd = crowd

    def send(
        self, operation: Operation, method: str, path: str, *, headers: dict[str, str], body: str | None = None
    ) -> Answer:
        """Send one call, fill `operation` in and record it; a body is JSON unless a header says otherwise.

        Raises GreenletExit when the record is closed: everybody has been sent home by then.
        """
        if self._crowd.is_closed:
            raise gevent.GreenletExit
        sent = {"Accept-Encoding": "identity"} | ({"Content-Type": "application/json"} if body else {}) | headers
        operation.began_ns = now_ns()
        self._crowd.begin(operation)
        try:
            with self.client.request(
                method, path, name=NAMES[operation.kind], headers=sent, data=body, catch_response=True
            ) as response:
                operation.ended_ns = now_ns()
                answer = Answer(
                    _json_of(response.content), response.content or b"", response.headers or {}, _wait(response.headers)
                )
                fill_in(operation, status=response.status_code, fields=answer.fields)
                if is_foreseen(operation):
                    response.success()
                else:
                    response.failure(
                        f"{operation.status} {operation.code}".strip() if operation.status else "no answer"
                    )
                return answer
        except gevent.GreenletExit:
            operation.code = STOPPED
            raise
        finally:
            operation.ended_ns = operation.ended_ns or now_ns()
            self._crowd.record(operation)


def bearer(token: str) -> dict[str, str]:
    """Return the headers that say who calls, and from where."""
    return {"Authorization": f"Bearer {token}"} | coming_from(token)


def _json_of(content: bytes | None) -> dict[str, Any]:
    try:
        answer = json.loads(content or b"{}")
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def fill_in(operation: Operation, *, status: int, fields: dict[str, Any]) -> None:
    """Copy what the verdict needs out of an answer."""
    operation.status, operation.outcome = status, outcome_of(status, kind=operation.kind)
    operation.code = str(fields.get("code", "")) if status >= HTTPStatus.BAD_REQUEST else ""
    if operation.outcome == OK:
        operation.request_id = str(fields.get("request_id", operation.request_id))
        operation.seq = int(fields.get("seq") or 0)
        operation.state = str(fields.get("state", "")) if operation.kind not in STATELESS_KINDS else ""
        operation.buyer = operation.buyer or str(fields.get("buyer", ""))


def _wait(headers: Any) -> float:
    text = str((headers or {}).get("Retry-After", ""))
    return min(MAX_RETRY_WAIT_SECONDS, float(text)) if text.isdigit() else 0.2
