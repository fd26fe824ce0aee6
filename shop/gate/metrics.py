"""Shows what a web process sees to Prometheus: refusals, each sale's line and its age, streams, memory of Redis.
Never blocks, and asks no store: what it shows was read for other reasons.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from inventory.redis import clocks
from inventory.redis.clocks import ClockCollector
from inventory.redis.memory import WATCH
from inventory.telemetry import page
from shop.gate.sales.cache import Board
from shop.gate.sales.state import SaleEntry
from shop.gate.sse import Streams
from shop.replies import REFUSED, Head

PROCESS = "web"
HEAD = Head(200, [(b"content-type", page.CONTENT_TYPE.encode())])
FIGURES = ("available", "held", "sold", "queued", "admitted", "decided")


class RefusalCollector:
    """Shows how many calls were refused."""

    def collect(self) -> Iterator[Metric]:
        """Yield one counter, by code."""
        refusals = CounterMetricFamily("fairdrop_refusals", "Calls the gate refused, by code", labels=["code"])
        for code, count in {"rate_limited": 0, **REFUSED}.items():
            refusals.add_metric([code], count)
        yield refusals


def lines_text(entries: Sequence[SaleEntry]) -> str:
    """Return the board's figures, a gauge for each, and how long ago they were read.

    Text at once: with a thousand sales the library's families would hold the process up for twice as long as allowed.
    """
    shown = [
        (entry, figures, page.labels_text(sale=entry.card.slug, sku=entry.card.sku))
        for entry in entries
        if (figures := entry.figures) is not None
    ]
    texts = [
        page.gauge_text(
            f"fairdrop_{name}", f"{name}, by sale", [(labels, getattr(figures, name)) for _, figures, labels in shown]
        )
        for name in FIGURES
    ]
    now, moment = clocks.seconds(), time.monotonic()
    # One that is over, or opens much later, is looked at in turn: its age would say nothing.
    ages = [
        (page.labels_text(sale=entry.card.slug), round(moment - entry.seen_at, 2))
        for entry, _, _ in shown
        if entry.state_at(now) == "open"
    ]
    return "".join([*texts, page.gauge_text("fairdrop_figures_age_seconds", "Since they were read", ages)])


class ProcessCollector:
    """Shows what belongs to the process and no sale."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        """Yield the streams, and the memory of each server of the line."""
        yield GaugeMetricFamily("fairdrop_streams", "Open streams of events", value=self._streams.count)
        used = GaugeMetricFamily("fairdrop_redis_used_bytes", "Memory that Redis counts as used", labels=["node"])
        most = GaugeMetricFamily("fairdrop_redis_max_bytes", "maxmemory of Redis, 0 for no limit", labels=["node"])
        for node, memory in list(WATCH.seen.items()):
            used.add_metric([node], memory.used_bytes)
            most.add_metric([node], memory.max_bytes)
        yield from (used, most)


def parts(board: Board, streams: Streams) -> list[page.Part]:
    """Return what a web process shows beyond what every process counts."""
    return [RefusalCollector(), ClockCollector(), lambda: lines_text(board.counted()), ProcessCollector(streams)]


def render(board: Board, streams: Streams) -> bytes:
    """Return everything as Prometheus reads it."""
    return page.render(PROCESS, *parts(board, streams))
