"""Shows to Prometheus what belongs to one web process: refusals, streams, and how old what it shows of each sale is.
Never blocks, and asks no store. How the sales stand is the same for all processes: a reconciler shows it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from inventory.redis import clocks
from inventory.redis.clocks import ClockCollector
from inventory.telemetry import page
from inventory.telemetry.families import family, labels
from shop.gate.sales.cache import Board
from shop.gate.sales.state import SaleEntry
from shop.gate.sse import Streams
from shop.replies import REFUSED, Head

PROCESS = "web"
HEAD = Head(200, [(b"content-type", page.CONTENT_TYPE.encode())])


class RefusalCollector:
    """Shows how many calls were refused."""

    def collect(self) -> Iterator[str]:
        """Yield one counter, by code."""
        refused = [(labels(code=code), count) for code, count in {"rate_limited": 0, **REFUSED}.items()]
        yield family("fairdrop_refusals_total", "Calls the gate refused, by code", samples=refused, kind="counter")


class SaleCollector:
    """Shows how long ago this process read each open sale."""

    def __init__(self, entries: Sequence[SaleEntry]) -> None:
        self._entries = entries

    def collect(self) -> Iterator[str]:
        """Yield one gauge, by sale."""
        now, moment = clocks.seconds(), time.monotonic()
        ages = [
            (labels(sale=entry.card.slug), round(moment - entry.seen_at, 2))
            for entry in self._entries
            # One that is over, or opens much later, is looked at in turn: its age would say nothing.
            if entry.figures is not None and entry.state_at(now) == "open"
        ]
        yield family("fairdrop_figures_age_seconds", "Since they were read", samples=ages)


class StreamCollector:
    """Shows how many streams are open."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def collect(self) -> Iterator[str]:
        """Yield one gauge."""
        yield family("fairdrop_streams", "Open streams of events", samples=[("", self._streams.count)])


def collectors(board: Board, streams: Streams) -> list[page.Collector]:
    """Return what a web process shows beyond what every process counts."""
    return [RefusalCollector(), ClockCollector(), SaleCollector(board.entries()), StreamCollector(streams)]


def render(board: Board, streams: Streams) -> bytes:
    """Return everything as Prometheus reads it."""
    return page.render(PROCESS, *collectors(board, streams))
