"""Reads the shop's live events for a while; every message is recorded like an answer to a call.
Never takes the end of a stream for news, and never reads longer than it is told.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import gevent

from loadtest.record.history import STOPPED, Operation, now_ns
from loadtest.users.calls import NAMES, fill_in

if TYPE_CHECKING:
    from locust.contrib.fasthttp import FastHttpSession

    from loadtest.users.crowd import Crowd

ANSWER_SECONDS = 10.0
NS, NS_PER_MS = 1_000_000_000, 1_000_000
DATA = b"data:"


def listen(
    client: FastHttpSession,
    first: Operation,
    path: str,
    *,
    crowd: Crowd,
    seconds: float,
    headers: dict[str, str] | None = None,
) -> Iterator[Operation]:
    """Yield an operation like `first` for each message; Locust counts the first one, by how long it took to come.

    All begin with the stream: what a message says may have been true at any moment since.
    """
    first.began_ns = now_ns()
    messages = 0
    try:
        for status, fields in _messages(client.base_url or "", path, seconds=seconds, headers=headers or {}):
            operation = replace(first, ended_ns=now_ns())
            fill_in(operation, status=status, fields=fields)
            if not messages:
                _count(client, operation)
            messages += 1
            crowd.record(operation)
            yield operation
    except (OSError, http.client.HTTPException):
        pass  # a stream may break; what was not heard is looked up
    except gevent.GreenletExit:
        first.code = STOPPED
        raise
    finally:
        if not messages:
            first.ended_ns = now_ns()
            crowd.record(first)


def _messages(
    host_url: str, path: str, *, seconds: float, headers: dict[str, str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the status and the fields of each message, or of the one answer that is no stream."""
    ends_ns = now_ns() + int(seconds * NS)
    parts = urlsplit(host_url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path, headers={"Accept": "text/event-stream"} | headers)
        socket = connection.sock
        response = connection.getresponse()
        if response.status != HTTPStatus.OK:
            yield response.status, _json_of(response.read())
            return
        while (left_ns := ends_ns - now_ns()) > 0:
            socket.settimeout(left_ns / NS)
            line = response.readline()
            if not line:
                return
            if line.startswith(DATA):
                yield response.status, _json_of(line[len(DATA) :])
    finally:
        connection.close()


def _count(client: FastHttpSession, operation: Operation) -> None:
    client.request_event.fire(
        request_type="GET",
        name=NAMES[operation.kind],
        response_time=(operation.ended_ns - operation.began_ns) / NS_PER_MS,
        response_length=0,
        exception=None if operation.status == HTTPStatus.OK else Exception(f"{operation.status} {operation.code}"),
        context={},
    )


def _json_of(text: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
