"""The pages of a web process and of a reconciler are bounded by live sales, with all that each of them shows; what a
web process shows of its sales is written as the library of Prometheus writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from inventory.line.reading import LineFigures
from inventory.redis import client
from inventory.redis.memory import WATCH, Memory
from inventory.telemetry import page
from shop.gate import metrics
from workers.reconciler.gauges import Gauges, Seen

# As long as a slug may be, and a SKU usually is.
SLUG_LETTERS, SKU_LETTERS = 60, 40


def sale(number: int) -> Any:
    name = f"{number:04}"
    return SimpleNamespace(
        card=SimpleNamespace(slug=name.ljust(SLUG_LETTERS, "s"), sku=name.ljust(SKU_LETTERS, "k")),
        figures=LineFigures(available=123_456, held=98_765, sold=1_234_567, queued=654_321, version=1, admitted=10**6),
        seen_at=0.0,
        state_at=lambda _moment: "open",
    )


@pytest.mark.parametrize(("live", "max_bytes"), [(50, 100_000), (1_000, 1_000_000)])
def test_the_page_is_bounded_by_live_sales(live: int, max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REFUSED", dict.fromkeys(map(str, range(40)), 10**6))
    for name in client.script_names()[:12]:  # a web process runs about ten
        client.SCRIPT_SECONDS.observe(0.002, name)
    nodes = {f"redis-{number}.example:6379": Memory(10**10, 10**10) for number in range(6)}
    monkeypatch.setattr(WATCH, "seen", nodes)
    board: Any = SimpleNamespace(counted=lambda: [sale(number) for number in range(live)])
    text = metrics.render(board, cast(Any, SimpleNamespace(count=10_000)))
    assert len(text) <= max_bytes
    assert text.count(b"fairdrop_available{") == live
    shown = {name.decode() for name in re.findall(rb"^# TYPE (fairdrop_\w+)", text, re.MULTILINE)}
    families = [part for part in metrics.parts(board, cast(Any, SimpleNamespace(count=0))) if not callable(part)]
    assert {page_name(family) for collector in families for family in collector.collect()} <= shown


@pytest.mark.parametrize(("live", "max_bytes"), [(50, 100_000), (1_000, 1_000_000)])
def test_the_page_of_a_reconciler_too(live: int, max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    units = {"available": 123_456, "held": 98_765, "sold": 1_234_567}
    seen = Seen(units=units, undecided=654_321, oldest_seconds=12.345678, idle_seconds=12.345678, dead_letters=12)
    gauges = Gauges()
    monkeypatch.setattr(gauges, "_skus", {f"{number:04}".ljust(SKU_LETTERS, "k"): seen for number in range(live)})
    text = page.render("reconciler", gauges)
    assert len(text) <= max_bytes
    assert text.count(b"fairdrop_line_undecided{") == live


def odd_sale(slug: str, *, count: int = 0, state: str = "open", seen: bool = True) -> Any:
    figures = LineFigures(available=count, held=0, sold=7 * count, queued=1, version=1, admitted=count, waiting=0)
    return SimpleNamespace(
        card=SimpleNamespace(slug=slug, sku=f"sku of {slug}"),
        figures=figures if seen else None,
        seen_at=count / 1_000,
        state_at=lambda _moment: state,
    )


class LibraryLines:
    """What lines_text promises, in the library's own families."""

    def __init__(self, sales: list[Any], *, now: float) -> None:
        self._sales, self._now = [sale for sale in sales if sale.figures is not None], now

    def collect(self) -> Iterator[Metric]:
        for name in metrics.FIGURES:
            gauge = GaugeMetricFamily(f"fairdrop_{name}", f"{name}, by sale", labels=["sku", "sale"])
            for sale in self._sales:
                gauge.add_metric([sale.card.sku, sale.card.slug], getattr(sale.figures, name))
            yield gauge
        ages = GaugeMetricFamily("fairdrop_figures_age_seconds", "Since they were read", labels=["sale"])
        for sale in self._sales:
            if sale.state_at(0.0) == "open":
                ages.add_metric([sale.card.slug], round(self._now - sale.seen_at, 2))
        yield ages


def test_the_lines_are_written_as_the_library_does(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 20_000.125
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: now))
    sales = [odd_sale(f"s{count}", count=count) for count in (0, 5, 999_999, 1_000_000, 1_200_000, 12_345_678)]
    sales += [odd_sale(slug) for slug in ('quo"te', "back\\slash", "new\nline", "\\n", "限量发售", "a,b={}", "")]
    sales += [odd_sale("over", count=3, state="closed"), odd_sale("unseen", seen=False)]
    registry = CollectorRegistry()
    registry.register(cast(Any, LibraryLines(sales, now=now)))
    assert metrics.lines_text(sales).encode() == generate_latest(registry)
    registry = CollectorRegistry()
    registry.register(cast(Any, LibraryLines([], now=now)))
    assert metrics.lines_text([]).encode() == generate_latest(registry)


def page_name(family: Metric) -> str:
    """Return the name of a family as the page has it."""
    return f"{family.name}_total" if family.type == "counter" else family.name
