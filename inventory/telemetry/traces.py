"""Spans of single requests, from the press to the decision and after: one trace for each request.

The ids of a trace and of its first span are made of the request's id, which every process has: nothing is carried from
one to the next. Off without OTEL_EXPORTER_OTLP_ENDPOINT, and then the library is not imported. Never holds work up,
never raises into it; no span has a buyer, an e-mail or an address.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

import structlog
from django.conf import settings

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from inventory.telemetry.otlp import Tracer

log = structlog.get_logger(__name__)

# A collector that does not answer may keep a process that was asked to end for so long.
END_SECONDS = 1.0
# The answers that give a place: with one of them a trace begins.
FIRST_ANSWERS = ("admitted", "standby")


class Asked(NamedTuple):
    """One ask that the line has answered. came_at: monotonic seconds; answer: in a word."""

    request_id: str
    came_at: float
    answer: str


class Spans:
    """The spans of one piece of work by request id: of those that are sampled, none while traces are off."""

    def __init__(self, spans: Mapping[str, Span]) -> None:
        self._spans = spans

    def note_outcomes(self, outcomes: Iterable[tuple[str, str]]) -> None:
        """Note what became of each request."""
        if self._spans:
            for request_id, outcome in outcomes:
                if span := self._spans.get(request_id):
                    span.set_attribute("fairdrop.outcome", outcome)


_NONE = Spans({})
_tracer: Tracer | None = None


def start(process: str) -> None:
    """Send spans of this process from now on, if a collector is named. process: its kind.

    Without the library that is logged, and the process works on: to sell comes first.
    """
    global _tracer
    if not settings.TRACES_ENDPOINT or _tracer is not None:
        return
    try:
        from inventory.telemetry.otlp import Tracer

        _tracer = Tracer(process)
    except Exception as error:
        log.error("no traces", action="traces_failed", error=repr(error))


def end() -> None:
    """Send what is left, and no spans after it."""
    global _tracer
    ended, _tracer = _tracer, None
    if ended is not None:
        sending = Thread(target=ended.end, name="traces-end", daemon=True)
        sending.start()
        sending.join(END_SECONDS)


def note_asks(asked: Iterable[Asked], *, sent_at: float) -> None:
    """Note asks that one script call has answered just now. sent_at: when it was sent, monotonic seconds."""
    if _tracer is None:
        return
    now = time.time_ns()
    ahead = now - time.monotonic_ns()
    sent = int(sent_at * 1e9) + ahead
    with _never_failing():
        for ask in asked:
            came = int(ask.came_at * 1e9) + ahead
            _tracer.note_ask(ask.request_id, ask.answer, is_first=ask.answer in FIRST_ANSWERS, times=(came, sent, now))


@contextmanager
def spans(name: str, request_ids: Sequence[str], *, store: str = "", sku: str = "") -> Iterator[Spans]:
    """Give each of these requests a span for the length of a `with` block; in the block of another one, below that.

    store: which it asks. An error is noted by its type alone: its text may say anything.
    """
    if _tracer is None:
        yield _NONE
        return
    from inventory.telemetry.otlp import open_until_end

    about = {key: value for key, value in (("db.system.name", store), ("fairdrop.sku", sku)) if value}
    begun: dict[str, Span] = {}
    with _never_failing():
        begun = _tracer.begin(name, request_ids, about=about)
    with open_until_end(begun):
        yield Spans(begun)


@contextmanager
def _never_failing() -> Iterator[None]:
    try:
        yield
    except Exception:
        log.exception("spans not made", action="traces_failed")
