"""Makes the spans of traces.py with OpenTelemetry's library, and sends them to a collector from a thread of its own.
Never waits for that: what finds its queue full is dropped. Imported only where a collector is named.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from types import MappingProxyType

from django.conf import settings
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

EXPORT_SECONDS = 3.0
EXPORT_EVERY_SECONDS = 1.0
# Spans that may wait for the collector, about 2 KB each; each call takes a quarter of them.
MAX_QUEUED = 4096
QUIET_SECONDS = 60.0
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
# The spans that the present thread or task has begun and not ended, by request id.
_OPEN: ContextVar[Mapping[str, Span]] = ContextVar("open_spans", default=MappingProxyType({}))


class _Seldom(logging.Filter):
    """Lets one line through in so many seconds: a collector that is away is no news each second."""

    _at = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether this line is written."""
        is_due = record.created - self._at >= QUIET_SECONDS
        self._at = record.created if is_due else self._at
        return is_due


class _Ids(RandomIdGenerator, threading.local):
    """Gives the first span of a trace the ids that are made of the request's, every other one a random one."""

    first: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return self.first[0] if self.first else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.first[1] if self.first else super().generate_span_id()


def ids_of(request_id: str) -> tuple[int, int]:
    """Return the ids of a request's trace and of its first span."""
    digest = sha256(request_id.encode()).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


class Tracer:
    """Makes and sends the spans of one process. process: its kind.

    The address of the collector is read by the library, from the environment.
    """

    def __init__(self, process: str) -> None:
        logging.getLogger(OTLPSpanExporter.__module__).addFilter(_Seldom())
        self._ids = _Ids()
        self._sampler = TraceIdRatioBased(settings.TRACES_RATIO)
        self._provider = TracerProvider(
            sampler=self._sampler,
            resource=Resource.create({"service.name": f"fairdrop-{process}"}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        sending = BatchSpanProcessor(
            OTLPSpanExporter(timeout=EXPORT_SECONDS),
            max_queue_size=MAX_QUEUED,
            max_export_batch_size=MAX_QUEUED // 4,
            schedule_delay_millis=EXPORT_EVERY_SECONDS * 1000,
        )
        self._provider.add_span_processor(sending)
        self._tracer = self._provider.get_tracer("fairdrop")

    def end(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def _first(self, request_id: str) -> SpanContext | None:
        """Return the first span of a request as others name it, None when it is not sampled.

        The trace's id alone decides: so all processes decide alike.
        """
        trace_id, span_id = ids_of(request_id)
        decision = self._sampler.should_sample(None, trace_id, "ask").decision
        if decision is not Decision.RECORD_AND_SAMPLE:
            return None
        return SpanContext(trace_id, span_id, is_remote=True, trace_flags=SAMPLED)

    def note_ask(self, request_id: str, answer: str, *, is_first: bool, times: tuple[int, int, int]) -> None:
        """Note an ask by its times in ns: it came, was sent to the line, was answered. is_first: it got its place."""
        first = self._first(request_id)
        if first is None:
            return
        came, sent, answered = times
        # A press that is sent again has a span of its own below the one that got the place.
        parent = Context() if is_first else set_span_in_context(NonRecordingSpan(first), Context())
        self._ids.first = (first.trace_id, first.span_id) if is_first else None
        about = {"fairdrop.request_id": request_id, "fairdrop.answer": answer}
        try:
            ask = self._tracer.start_span("ask", parent, SpanKind.SERVER, about, start_time=came)
        finally:
            self._ids.first = None
        below = set_span_in_context(ask, Context())
        store = {"db.system.name": "redis"}
        self._tracer.start_span("admit", below, SpanKind.CLIENT, store, start_time=sent).end(answered)
        ask.end(answered)

    def begin(self, name: str, request_ids: Sequence[str], *, about: Mapping[str, str]) -> dict[str, Span]:
        """Return new spans of those that are sampled, by request id."""
        kind = SpanKind.CLIENT if "db.system.name" in about else SpanKind.INTERNAL
        begun = {}
        for request_id in request_ids:
            first = self._first(request_id)
            if first is not None:
                above = set_span_in_context(_OPEN.get().get(request_id, NonRecordingSpan(first)), Context())
                named = {**about, "fairdrop.request_id": request_id}
                begun[request_id] = self._tracer.start_span(name, above, kind, named)
        return begun


@contextmanager
def open_until_end(begun: Mapping[str, Span]) -> Iterator[None]:
    """Let spans that are begun in a `with` block be below these; end these with it, and note an error by its type."""
    token = _OPEN.set(begun)
    try:
        yield
    except BaseException as error:
        for span in begun.values():
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        raise
    finally:
        _OPEN.reset(token)
        for span in begun.values():
            span.end()
