"""A collector of traces: takes OTLP over HTTP from real processes and keeps every span; or takes and never answers.
Never leaves its thread behind.
"""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from inventory.telemetry.otlp import ids_of
from tests.support.waiting import PATIENCE_SECONDS


class Kept(NamedTuple):
    """One span as it came. about: its attributes, and those of its process; error: '' for none."""

    service: str
    name: str
    trace_id: int
    span_id: int
    parent_id: int
    began_ns: int
    ended_ns: int
    about: dict[str, str]
    error: str


class Collector(ThreadingHTTPServer):
    """Keeps what it was sent. raw: every body as it came."""

    daemon_threads = True

    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self.kept: list[Kept] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def environment(self) -> dict[str, str]:
        """Name this collector to a process."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server_address[1]}"}

    def take(self, body: bytes) -> None:
        """Keep the spans of one call."""
        self.raw.append(body)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            process = {each.key: each.value.string_value for each in group.resource.attributes}
            for span in (span for scope in group.scope_spans for span in scope.spans):
                own = {each.key: each.value.string_value for each in span.attributes}
                ids = (int.from_bytes(each) for each in (span.trace_id, span.span_id, span.parent_span_id))
                times = (span.start_time_unix_nano, span.end_time_unix_nano)
                about = {**process, **own}
                self.kept.append(Kept(process["service.name"], span.name, *ids, *times, about, span.status.message))

    def trace_of(self, request_id: str) -> dict[str, list[Kept]]:
        """Return the spans of one request by name."""
        found = defaultdict(list)
        for span in list(self.kept):
            if span.trace_id == ids_of(request_id)[0]:
                found[span.name].append(span)
        return dict(found)


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE_SECONDS
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        self.server.take(self.rfile.read(int(self.headers["Content-Length"])))
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Write no line for each call."""


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector for the length of a `with` block."""
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


class Silent:
    """A collector that takes every connection and answers nothing. taken: how many there were."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._take)

    @property
    def taken(self) -> int:
        return len(self._connections)

    @property
    def environment(self) -> dict[str, str]:
        """Name this collector to a process."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._listening.getsockname()[1]}"}

    def _take(self) -> None:
        try:
            while True:
                self._connections.append(self._listening.accept()[0])
        except OSError:
            return  # it was closed

    def __enter__(self) -> Silent:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for connection in self._connections:
            connection.close()
