"""Speaks HTTP to a running shop: ordinary calls, buyers, event streams, and bytes that no client would send.
Only until_answered and answer_to send anything again; nothing waits without a bound.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

TIMEOUT_SECONDS = 60.0
TIMES_AGAIN, REST_SECONDS = 5, 1.0
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer. headers: by lower-case name; seconds: from the first byte sent to the last received."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    def json(self) -> Any:
        """Return the body as JSON."""
        assert self.body, f"{self.status} without a body: {self.headers}"
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Buyer:
    """A buyer as the shop made it."""

    name: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        """The header that says who calls."""
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True, slots=True)
class Caller:
    """Calls the shop at one port of this machine."""

    port: int

    def call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Answer:
        """Send one request on a connection of its own and return the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_seconds)
        began = time.monotonic()
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            return _read(connection.getresponse(), began=began)
        finally:
            connection.close()

    @contextmanager
    def keeping(self) -> Iterator[Callable[..., Answer]]:
        """Give what calls as `call` does, over one connection that is kept while the shop keeps it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)

        def call(method: str, path: str, *, body: bytes | None, headers: Mapping[str, str]) -> Answer:
            began = time.monotonic()
            connection.request(method, path, body=body, headers=dict(headers))
            return _read(connection.getresponse(), began=began)

        try:
            yield call
        finally:
            connection.close()

    def get(self, path: str, **more: Any) -> Answer:
        """GET `path`."""
        return self.call("GET", path, **more)

    def send_raw(self, text: bytes, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Answer:
        """Send exactly these bytes and return the answer, also when the shop stops reading before the end."""
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_seconds) as connection:
            # It may answer early and hang up: the answer is there to be read all the same.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(text)
            response = http.client.HTTPResponse(connection)
            response.begin()
            return _read(response, began=began)

    def new_buyer(self) -> Buyer:
        """Return a new buyer."""
        made = self.call("POST", "/api/v1/buyers").json()
        return Buyer(made["buyer"], made["token"])

    def ask(
        self,
        slug: str,
        buyer: Buyer,
        *,
        quantity: int = 1,
        key: str | None = None,
        wish: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Answer:
        """POST the wish of `buyer` for `quantity` units; key: the Idempotency-Key; wish: more fields of the body."""
        headers = {**JSON, **buyer.headers, **({} if key is None else {"Idempotency-Key": key})}
        body = json.dumps({"quantity": quantity, **(wish or {})})
        return self.call("POST", f"/api/v1/sales/{quote(slug)}/requests", body=body, headers=headers, **more)

    def status(self, request_id: str, buyer: Buyer, **more: Any) -> Answer:
        """GET where the request of `buyer` stands."""
        return self.get(f"/api/v1/requests/{request_id}", headers=buyer.headers, **more)

    @contextmanager
    def follow(
        self, path: str, *, headers: Mapping[str, str] | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> Iterator[tuple[Answer, Iterator[str]]]:
        """Open an event stream: give its head, and its lines as they come until the shop ends it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_seconds)
        began = time.monotonic()
        try:
            connection.request("GET", path, headers=dict(headers or {}))
            response = connection.getresponse()
            head = Answer(response.status, _names(response), b"", time.monotonic() - began)
            yield head, (line.decode().rstrip("\n") for line in response)
        finally:
            connection.close()


def until_answered(send: Callable[[], Answer]) -> Iterator[Answer]:
    """Send a request again while it gets 503, which asks for that; give every answer, the last one at the end."""
    for _ in range(1 + TIMES_AGAIN):
        yield (answer := send())
        if answer.status != 503:
            return
        time.sleep(REST_SECONDS)


def answer_to(send: Callable[[], Answer]) -> Answer:
    """Return the first answer that is not 503, or the last: where a machine stands still a store seems away."""
    *_, answer = until_answered(send)
    return answer


def _read(response: http.client.HTTPResponse, *, began: float) -> Answer:
    body = response.read()
    return Answer(response.status, _names(response), body, time.monotonic() - began)


def _names(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}
