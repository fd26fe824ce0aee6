"""Shows the gate's refusals and every sale's line to Prometheus. Never blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from shop.gate.sales.state import SaleEntry
from shop.replies import REFUSED, Head

HEAD = Head(200, [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")])
FIGURES = ("available", "held", "sold", "queued", "admitted", "decided")


class RefusalCollector:
    """Shows how many calls were refused."""

    def collect(self) -> Iterator[Metric]:
        """Yield one counter, by code."""
        refusals = CounterMetricFamily("fairdrop_refusals", "Calls the gate refused, by code", labels=["code"])
        for code, count in REFUSED.items():
            refusals.add_metric([code], count)
        yield refusals


class LineCollector:
    """Shows the board's figures, as a gauge each."""

    def __init__(self, entries: Sequence[SaleEntry]) -> None:
        self._entries = entries

    def collect(self) -> Iterator[Metric]:
        """Yield a gauge for every figure of every sale."""
        for name in FIGURES:
            gauge = GaugeMetricFamily(f"fairdrop_{name}", f"{name}, by sale", labels=["sale", "sku"])
            for entry in self._entries:
                if entry.figures is not None:
                    gauge.add_metric([entry.card.slug, entry.card.sku], getattr(entry.figures, name))
            yield gauge


def render(entries: Iterable[SaleEntry]) -> bytes:
    """Return everything as Prometheus reads it."""
    registry = CollectorRegistry()
    registry.register(RefusalCollector())
    registry.register(LineCollector(list(entries)))
    return generate_latest(registry)
